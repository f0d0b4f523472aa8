// A workload in virtual time, on a network that is never dark: what each rank would launch when. Launches meet
// as NCCL's do: those of one communicator in order, a collective when all members are there, a transfer when
// both sides are. Pure; what prediction and windows are judged by without running anything.
#pragma once

#include <cstdint>
#include <vector>

#include "tools/replay/workload.h"

namespace opus::replay {

struct RehearsalOptions {
    std::uint32_t iterations = 0;  // 0: the workload's
    double bytes_per_us = 25'000;  // of an operation; 200 Gbit/s
    double latency_us = 20;        // of an operation
    double jitter = 0;             // each computation lasts up to so much longer, as a part of it
    std::uint64_t seed = 1;
};

struct RehearsedLaunch {
    std::uint32_t iteration = 0;
    std::vector<const Step*> operations;  // of the rehearsal's own steps
    std::vector<double> lengths;          // of each: the factor of its bytes
    std::int64_t ready_ns = 0, begin_ns = 0, end_ns = 0;
};

struct Rehearsal {
    std::vector<std::vector<Step>> steps;             // of each role, loops unrolled
    std::vector<std::vector<RehearsedLaunch>> ranks;  // of each rank, in the order in which they begin
    bool ended = false;                               // false: it came to a halt, as it would on any NCCL
};

Rehearsal rehearse(const Workload& workload, const RehearsalOptions& options);

}  // namespace opus::replay
