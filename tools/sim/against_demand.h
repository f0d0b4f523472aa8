// One job twice, in virtual time and under the same noise: its circuits on demand, and ahead of demand. Is any of it
// slower for having been provisioned?
#pragma once

#include <string>
#include <vector>

#include "tools/sim/variants.h"

namespace opus::sim {

struct AgainstDemand {
    static constexpr std::size_t kLearns = 5;    // iterations after which a job must not be slower
    static constexpr double kMostPercent = 0.5;  // slower, on the mean of those that follow
    // While it learns, in one iteration; or so many dark times of each port of a GPU, if that is more.
    static constexpr double kMostLearning = 2, kMostDarkTimes = 2;

    std::string fault;                        // it came to a halt, or was not served as it must be; empty: neither
    std::vector<double> demand_ms, ahead_ms;  // each iteration
    double dark_ms = 0;
    std::uint32_t ports = 0;

    // In percent of on demand; negative: faster.
    double settled_percent() const;  // all iterations after kLearns together
    double worst_percent() const;    // the worst of them
    std::size_t slower() const;      // how many of them are, by more than kMostPercent
    // Longer than on demand, in dark times.
    double lost_dark_times(std::size_t iteration) const;
    double most_lost_learning() const;   // while it learns
    std::size_t loses_learning() const;  // iterations then that are longer by more than they may be

    // What does not hold; empty: all does.
    std::string broken() const;
};

AgainstDemand against_demand(const replay::Workload& workload, const VariantOptions& options);
// On demand both times, the second time under other noise: what chance alone does.
AgainstDemand against_itself(const replay::Workload& workload, const VariantOptions& options);

}  // namespace opus::sim
