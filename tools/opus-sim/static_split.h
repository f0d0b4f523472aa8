// Circuits that never move: each GPU's ports are split between the neighbours that the job's communicators give it, once and for all.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/replay/dry_run.h"

namespace opus::job {

struct StaticSplit {
    double iteration_ms = 0;            // of the best split that was found; 0: no split serves the job
    std::uint32_t needed_ports = 0;     // of the GPU with the most neighbours: with fewer not all pairs have a circuit
    std::vector<std::string> circuits;  // "dp: 2": circuits of each pair of a communicator's neighbours; "pp: packets"
    std::uint32_t tried = 0;
};

// Begins with one circuit a pair and adds, wherever ports are left, the one that gains most, until none does. Operations that have
// fewer circuits than they could use take longer; those of different communicators do not slow each other. Deterministic.
// `packet_share`: of a GPU's bandwidth, that it has on a packet network: operations go over it where a pair has no circuit, and
// the search begins without circuits, too. Without it each pair has one, or there is no split.
StaticSplit best_static_split(const replay::Workload& workload, std::uint32_t ports,
                              const replay::DryRunOptions& options, std::optional<double> packet_share = std::nullopt);

}  // namespace opus::job
