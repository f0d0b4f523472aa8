// From what a played job recorded: its operations between nodes, the windows between its phases, what its ports did, and how much of
// the dark time of moves anybody waited for. Pure.
//
// A phase of a GPU is a run of its launches between nodes on one communicator, transfers apart from collectives. The window before it
// is the time for which none of them was under way before its first one began; phases that overlap have none.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "tools/opus-sim/job_launches.h"
#include "tools/sim/variants.h"

namespace opus::job {

// An operation between nodes in the iterations that count.
struct CircuitUse {
    std::uint32_t label = 0, pairs = 0;
    std::int64_t full_ns = 0, begin_ns = 0, end_ns = 0;  // all members there; it begins; it ends
    bool held = false;                                   // it waits for circuits: they can serve it
};

// A variant with its launches by number. The variant must outlive it.
class VariantLaunches {
public:
    explicit VariantLaunches(const sim::PlayedVariant& variant);
    const sim::PlayedVariant& variant() const { return variant_; }
    const replay::DryRunLaunch& record(std::uint32_t rank, std::uint64_t seq) const {
        return variant_.run.ranks[rank][at_[rank][seq]];
    }

private:
    const sim::PlayedVariant& variant_;
    std::vector<std::vector<std::uint32_t>> at_;  // by rank and number
};

// When an operation begins, of which this is a member, and when all of its members were there. `last`: who came last.
struct Meeting {
    std::int64_t full_ns = 0, begin_ns = 0;
    JobLaunches::Member last;
};
Meeting meeting_of(const JobLaunches& launches, const VariantLaunches& played, const JobLaunches::Operation& operation,
                   std::uint32_t rank);

// In the order in which they begin.
std::vector<CircuitUse> circuit_uses(const JobLaunches& launches, const VariantLaunches& played, std::uint32_t learned);

// --- windows --------------------------------------------------------------------------------------

inline constexpr std::array<double, 4> kVolumes{1e6, 1e7, 1e8, 1e9};  // bytes: limits of the classes

struct WindowSums {
    std::uint64_t count = 0, overlapped = 0;  // with a window, and without one
    double least_ms = 0, median_ms = 0, mean_ms = 0, most_ms = 0;
    double bytes = 0;  // that a GPU sends in the phase that follows, or receives, whichever is more; on average
};
struct Windows {
    struct Transition {
        std::uint32_t from = 0, to = 0;  // labels
        WindowSums sums;
    };
    struct Rail {  // all GPUs of a rail together: none of them communicates, then another kind of operation begins
        std::uint32_t rail = 0;
        WindowSums sums;
    };
    double gpus = 0, iterations = 0;      // that counts are of
    WindowSums all;                       // of the GPUs that have any
    std::vector<double> cdf_ms;           // the least; so many are not longer: 1 %, 2 %, ..., all
    std::vector<Transition> transitions;  // those with most time first
    std::array<WindowSums, 5> by_volume;  // of what follows; kVolumes
    std::vector<Rail> rails;
};
Windows windows_of(const JobLaunches& launches, const sim::PlayedVariant& electrical, std::uint32_t learned);

// --- ports and dark time --------------------------------------------------------------------------

// Of the time that all ports of the job have together.
struct PortShares {
    double busy = 0, idle = 0, dark = 0, unlit = 0;  // an operation uses it; lit and unused; being turned; leads nowhere
};
struct DarkPhase {
    std::uint32_t label = 0;
    std::uint64_t operations = 0, moved = 0;  // of all that count; those whose circuits moved
    double dark_ms = 0, exposed_ms = 0;       // of moves for them; while all their members were there
    double held_ms = 0;                       // that all were there and it did not begin, for whatever reason
};
struct RailTimes {
    PortShares all;
    std::vector<PortShares> rails;
    std::vector<DarkPhase> phases;  // in the order of labels
    double unused_dark_ms = 0;      // of moves that no operation came to
    std::uint64_t unused = 0;
};
// From `from_ns` on.
RailTimes rail_times(const JobLaunches& launches, const std::vector<CircuitUse>& uses,
                     const std::vector<sim::Turn>& turns, std::int64_t from_ns, std::int64_t to_ns);

// Spans that are sorted by their beginnings, joined where they touch.
using Span = std::pair<std::int64_t, std::int64_t>;
std::vector<Span> joined(std::vector<Span> spans);
// How much of `span` they cover.
std::int64_t covered(const std::vector<Span>& joined, Span span);

}  // namespace opus::job
