// By how much a job may take longer than it does on demand as a rule without any plan being at fault: some of its
// periods are longer than others (as its batches are), and what it does as a rule may be known from few.
//
// Pure, not thread-safe.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>

namespace opus::controller::plan {

class Chance {
public:
    // One of so many ranks has done a period on demand. It took so long (ns), by such a part more than as a rule.
    void add_on_demand(double ns, double longer, std::size_t ranks) { add({ns, longer, 1}, ranks); }
    // All of so many ranks have done one by a plan: their mean.
    void add_planned(double ns, double longer, std::size_t ranks);
    // What was seen on demand before it counts half from now on.
    void end_plan() { planned_.reset(), seen_ns_ /= 2; }
    // For so long (ns), each rank, it was seen on demand what it does as a rule.
    void see(double ns) { seen_ns_ += ns; }
    void forget(double but_ns) { seen_ns_ = but_ns; }  // what was seen, but for the last of it

    // So much of so long under plans (ns) may be lost by chance.
    double of(double ns) const;

private:
    static constexpr std::size_t kLately = 8;  // periods of a rank
    static constexpr double kMost = 0.75;      // of the time of these
    static constexpr double kTimes = 1.5;      // by what most of that time deviates
    static constexpr double kMostOf = 0.5;     // of all time

    struct Period {
        double ns = 0, longer = 0;
        std::size_t ranks = 1;  // that did it
    };
    void add(const Period& period, std::size_t ranks);

    std::deque<Period> lately_;
    std::size_t counted_ = 0;        // periods of a rank in these
    std::optional<double> planned_;  // by such a part the last one by this plan was longer
    double differs_ = 0;  // most periods' deviations: by which part they were longer or shorter, times root of ns
    double seen_ns_ = 0;
};

}  // namespace opus::controller::plan
