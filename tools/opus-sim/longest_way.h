// The longest way through an iteration: from its end back to its beginning, always to what was awaited last. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "tools/opus-sim/circuit_uses.h"

namespace opus::job {

struct WaySegment {
    enum class Kind : std::uint8_t {
        compute,  // a stream of a GPU
        host,
        on_node,    // an operation that stays on a node
        operation,  // between nodes
        dark,       // all members are there; circuits for it are being turned
        occupied,   // likewise; its GPUs' ports serve others, or are turned for them
        control,    // likewise, and none of both: messages, and a plan that lets another go first
    };
    Kind kind = Kind::compute;
    std::uint32_t label = 0;  // of operations, and of what waits: JobLaunches::labels
    std::uint32_t rank = 0;
    std::int64_t from_ns = 0, to_ns = 0;  // since the iteration began
};
inline constexpr std::size_t kWayKinds = 7;

struct LongestWay {
    std::uint32_t iteration = 0;
    double ms = 0;                     // all of it; the segments leave no gap
    std::vector<WaySegment> segments;  // in order; neighbours of one kind, label and rank are one
    double of_kind(WaySegment::Kind kind) const;
};

// Through the last iteration of a job that ended. `uses` are those of the variant, `turns` its moves.
LongestWay longest_way(const JobLaunches& launches, const replay::DryRunOptions& options, const VariantLaunches& played,
                       const std::vector<CircuitUse>& uses);

}  // namespace opus::job
