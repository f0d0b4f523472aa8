// Random programs of a job, such as end on a network that always carries everything.
#pragma once

#include "test/sim/random.h"
#include "test/sim/scenario.h"

namespace opus::sim {

// Gives the job's ranks (already in scenario.ranks) communicators and calls.
void write_programs(Scenario& scenario, std::uint32_t job, Random random);

// Whether the job's programs end without Opus: NCCL's own order of things (connections on the host at
// first use, kernels of a communicator in order, a transfer ends when both ends have come), no circuits.
bool ends_without_opus(const Scenario& scenario, std::uint32_t job);

}  // namespace opus::sim
