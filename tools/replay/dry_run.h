// A workload in virtual time: what each rank would launch when. Launches meet as NCCL's do: those of one
// communicator in order, a collective when all members are there, a transfer when both sides are. The network is
// never dark, unless gates hold launches back. Pure; what prediction, windows and circuits are judged by without
// running anything.
#pragma once

#include <cstdint>
#include <vector>

#include "tools/replay/workload.h"

namespace opus::replay {

struct DryRunLaunch {
    std::uint32_t iteration = 0;
    std::uint64_t seq = 0;                // its number in the rank's program
    std::vector<const Step*> operations;  // of the dry run's own steps
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
    virtual bool recorded(Name name, const DryRunLaunch& launch, std::int64_t now) = 0;  // false: not held
    virtual void reached(Name name, std::int64_t now) = 0;  // it would begin now; of those that are held
    virtual void ended(Name name, std::int64_t now) = 0;
    // Of the bandwidth that a launch which begins now would have with all its GPUs' ports; of those that are held.
    virtual double share(Name) { return 1; }
    virtual std::int64_t next_ns() const = 0;  // when it wants to be asked again
    virtual void advance(std::int64_t now, std::vector<Name>& open) = 0;
};

struct DryRunOptions {
    std::uint32_t iterations = 0;  // 0: the workload's
    double bytes_per_us = 25'000;  // of an operation that has all ports of its GPUs; 200 Gbit/s
    double latency_us = 20;        // of an operation
    bool rings = false;  // collectives take what a ring of their members takes; else what one transfer of their bytes does
    double node_bytes_per_us = 0;  // of what stays on a node; 0: as between nodes
    double node_latency_us = 0;    // with it; of each step of a ring, where there are rings
    double jitter = 0;             // each computation lasts up to so much longer, as a part of it
    double uneven = 0;             // all of an iteration does, for all ranks: sequences of other lengths
    double slower = 0;             // all of them do, from the iteration `slower_from` on: processors that run slower
    std::uint32_t slower_from = 0;
    std::uint64_t seed = 1;
    Gates* gates = nullptr;
};

// All members of an operation were there, and it did not begin.
struct HeldOperation {
    std::uint32_t rank = 0, iteration = 0;  // of the member that came first
    const Step* step = nullptr;
    std::int64_t full_ns = 0, begin_ns = 0;
};

struct DryRun {
    std::vector<std::vector<Step>> steps;               // of each role, loops unrolled
    std::vector<std::vector<DryRunLaunch>> ranks;       // of each rank, in the order in which they begin
    std::vector<std::vector<std::int64_t>> iterations;  // of each rank: when each of them was over
    std::vector<HeldOperation> held;
    bool ended = false;  // false: it came to a halt, as it would on any NCCL

    std::vector<std::int64_t> ends() const;  // of each iteration: when the last rank was through with it
};

DryRun dry_run(const Workload& workload, const DryRunOptions& options);

// How long a gap lasts, and an operation once all are there, with a share of the bandwidth. `at`: number of the step in the rank's program, from 1.
std::int64_t gap_ns(const Workload& workload, const DryRunOptions& options, const Step& step, std::uint32_t rank,
                    std::uint32_t iteration, std::size_t at);

// How often the bytes of an operation pass each link of a ring of its members; a transfer's pass once.
double ring_passes(StepKind kind, double members);

// How long operations take once all are there. Of one workload, which must outlive it.
class OperationTimes {
public:
    OperationTimes(const Workload& workload, const DryRunOptions& options);
    // Of an operation of `rank` with a share of the bandwidth.
    std::int64_t ns(const Step& step, std::uint32_t rank, double length, double share = 1) const;

private:
    struct Group {
        std::uint32_t members = 0;
        bool crosses = false;  // from node to node
    };

    const Workload& workload_;
    const DryRunOptions& options_;
    std::vector<std::vector<Group>> groups_;            // by communicator; empty where nothing asks for them
    std::vector<std::vector<std::uint32_t>> group_of_;  // by communicator and rank
};

}  // namespace opus::replay
