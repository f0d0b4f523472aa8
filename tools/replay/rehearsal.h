// A workload in virtual time: what each rank would launch when. Launches meet as NCCL's do: those of one
// communicator in order, a collective when all members are there, a transfer when both sides are. The network is
// never dark, unless gates hold launches back. Pure; what prediction, windows and circuits are judged by without
// running anything.
#pragma once

#include <cstdint>
#include <vector>

#include "tools/replay/workload.h"

namespace opus::replay {

struct RehearsedLaunch {
    std::uint32_t iteration = 0;
    std::uint64_t seq = 0;                // its number in the rank's program
    std::vector<const Step*> operations;  // of the rehearsal's own steps
    std::vector<double> lengths;          // of each: the factor of its bytes
    std::int64_t ready_ns = 0, begin_ns = 0, end_ns = 0;
};

// What holds launches back until they may begin. Called in the order of time.
class Gates {
public:
    struct Name {
        std::uint32_t rank = 0;
        std::uint64_t seq = 0;
    };
    virtual ~Gates() = default;
    virtual bool recorded(Name name, const RehearsedLaunch& launch, std::int64_t now) = 0;  // false: not held
    virtual void reached(Name name, std::int64_t now) = 0;  // it would begin now; of those that are held
    virtual void ended(Name name, std::int64_t now) = 0;
    // Of the bandwidth that a launch which begins now would have with all its GPUs' ports; of those that are held.
    virtual double share(Name) { return 1; }
    virtual std::int64_t next_ns() const = 0;  // when it wants to be asked again
    virtual void advance(std::int64_t now, std::vector<Name>& open) = 0;
};

struct RehearsalOptions {
    std::uint32_t iterations = 0;  // 0: the workload's
    double bytes_per_us = 25'000;  // of an operation that has all ports of its GPUs; 200 Gbit/s
    double latency_us = 20;        // of an operation
    double jitter = 0;             // each computation lasts up to so much longer, as a part of it
    std::uint64_t seed = 1;
    Gates* gates = nullptr;
};

// All members of an operation were there, and it did not begin.
struct HeldOperation {
    std::uint32_t rank = 0, iteration = 0;  // of the member that came first
    const Step* step = nullptr;
    std::int64_t full_ns = 0, begin_ns = 0;
};

struct Rehearsal {
    std::vector<std::vector<Step>> steps;               // of each role, loops unrolled
    std::vector<std::vector<RehearsedLaunch>> ranks;    // of each rank, in the order in which they begin
    std::vector<std::vector<std::int64_t>> iterations;  // of each rank: when each of them was over
    std::vector<HeldOperation> held;
    bool ended = false;  // false: it came to a halt, as it would on any NCCL

    std::vector<std::int64_t> ends() const;  // of each iteration: when the last rank was through with it
};

Rehearsal rehearse(const Workload& workload, const RehearsalOptions& options);

// How long a gap lasts, and an operation once all are there, with a share of the bandwidth. `at`: number of the step in the rank's program, from 1.
std::int64_t gap_ns(const Workload& workload, const RehearsalOptions& options, const Step& step, std::uint32_t rank,
                    std::uint32_t iteration, std::size_t at);
std::int64_t operation_ns(const RehearsalOptions& options, const Step& step, double length, double share = 1);

}  // namespace opus::replay
