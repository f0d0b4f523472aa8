// What a job would do on photonic rails, looked at closely: what `opus-sim run` says beside iteration times, of each variant.
#pragma once

#include <string>
#include <vector>

#include "tools/opus-sim/circuit_uses.h"
#include "tools/opus-sim/longest_way.h"

namespace opus::job {

// What GPUs of one rail do in the last iteration.
struct TimelineSpan {
    enum class Kind : std::uint8_t { operation, held, dark };
    Kind kind = Kind::operation;
    std::uint32_t label = 0;
    std::int64_t from_ns = 0, to_ns = 0;  // since the iteration began
};
struct TimelineRow {
    std::uint32_t gpu = 0;
    std::string name;
    std::vector<TimelineSpan> spans;
};

struct Answers {
    bool any = false;
    RailTimes rails;
    LongestWay way;
    std::vector<TimelineRow> timeline;                         // of at most kTimelineRows GPUs
    double used = 0;                                           // of the time of GPUs that communicate between nodes
    double messages_up = 0, messages_down = 0, decisions = 0;  // of an iteration
    double messages_a_second = 0;                              // both ways
};
inline constexpr std::size_t kTimelineRows = 8;

// Nothing of a job that did not end.
Answers answers_of(const JobLaunches& launches, const replay::DryRunOptions& options, const sim::PlayedVariant& variant,
                   std::uint32_t learned);

}  // namespace opus::job
