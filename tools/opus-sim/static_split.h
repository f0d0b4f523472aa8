// Circuits that never move: each GPU's ports are split between the neighbours that the job's communicators give it, once and for all.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/replay/rehearsal.h"

namespace opus::job {

struct StaticSplit {
    double iteration_ms = 0;            // of the best split that was found; 0: no split serves the job
    std::uint32_t needed_ports = 0;     // of the GPU with the most neighbours: with fewer there is no split
    std::vector<std::string> circuits;  // "dp: 2": circuits of each pair of a communicator's neighbours
    std::uint32_t tried = 0;
};

// Begins with one circuit a pair and adds, wherever ports are left, the one that gains most, until none does. Operations that have
// fewer circuits than they could use take longer; those of different communicators do not slow each other. Deterministic.
StaticSplit best_static_split(const replay::Workload& workload, std::uint32_t ports, const replay::RehearsalOptions& options);

}  // namespace opus::job
