#include "tools/sim/against_demand.h"

#include <algorithm>
#include <cstdio>
#include <numeric>

namespace opus::sim {
namespace {

std::vector<double> lengths_ms(const PlayedVariant& variant) {
    std::vector<double> lengths;
    std::int64_t begin = 0;
    for (const std::int64_t end : variant.run.ends()) {
        lengths.push_back(static_cast<double>(end - begin) / 1e6);
        begin = end;
    }
    return lengths;
}

std::string fault_of(const char* name, const PlayedVariant& variant) {
    if (!variant.fault.empty()) return std::string(name) + ": " + variant.fault;
    if (!variant.ended) return std::string(name) + ": came to a halt";
    if (variant.counters.unroutable + variant.counters.passes + variant.counters.aborts != 0)
        return std::string(name) + ": not all of it was held for its circuits";
    return {};
}

std::string text(const char* format, double value, double most) {
    char line[128];
    std::snprintf(line, sizeof line, format, value, most);
    return line;
}

AgainstDemand compare(const PlayedVariant& demand, const char* name, const PlayedVariant& other,
                      const VariantOptions& options) {
    AgainstDemand both;
    both.dark_ms = static_cast<double>(options.dark_ns) / 1e6;
    both.ports = options.ports;
    both.fault = fault_of("on demand", demand);
    if (both.fault.empty()) both.fault = fault_of(name, other);
    if (!both.fault.empty()) return both;
    both.demand_ms = lengths_ms(demand);
    both.ahead_ms = lengths_ms(other);
    return both;
}

}  // namespace

double AgainstDemand::settled_percent() const {
    const auto sum = [](const std::vector<double>& ms) { return std::accumulate(ms.begin() + kLearns, ms.end(), 0.0); };
    return demand_ms.size() <= kLearns ? 0 : 100 * (sum(ahead_ms) / sum(demand_ms) - 1);
}

double AgainstDemand::worst_percent() const {
    double worst = -100;
    for (std::size_t i = kLearns; i < demand_ms.size(); ++i)
        worst = std::max(worst, 100 * (ahead_ms[i] / demand_ms[i] - 1));
    return worst;
}

std::size_t AgainstDemand::slower() const {
    std::size_t count = 0;
    for (std::size_t i = kLearns; i < demand_ms.size(); ++i)
        count += 100 * (ahead_ms[i] / demand_ms[i] - 1) > kMostPercent;
    return count;
}

double AgainstDemand::lost_dark_times(std::size_t iteration) const {
    if (iteration >= demand_ms.size() || dark_ms == 0) return 0;
    return (ahead_ms[iteration] - demand_ms[iteration]) / dark_ms;
}

double AgainstDemand::most_lost_learning() const {
    double most = 0;
    for (std::size_t i = 0; i < kLearns; ++i) most = std::max(most, lost_dark_times(i));
    return most;
}

std::size_t AgainstDemand::loses_learning() const {
    std::size_t count = 0;
    for (std::size_t i = 0; i < std::min(kLearns, demand_ms.size()); ++i)
        count += lost_dark_times(i) > kMostDarkTimes * ports && 100 * (ahead_ms[i] / demand_ms[i] - 1) > kMostLearning;
    return count;
}

std::string AgainstDemand::broken() const {
    if (!fault.empty()) return fault;
    if (const double p = settled_percent(); p > kMostPercent)
        return text("ends up %.2f %% slower than on demand (at most %.2f)", p, kMostPercent);
    if (loses_learning() > 0)
        return text("an iteration in which it learns is longer by %.1f dark times (at most %.0f)", most_lost_learning(),
                    kMostDarkTimes * ports);
    return {};
}

AgainstDemand against_demand(const replay::Workload& workload, const VariantOptions& options) {
    return compare(play(workload, Rails::on_demand, options), "provisioned",
                   play(workload, Rails::provisioned, options), options);
}

AgainstDemand against_itself(const replay::Workload& workload, const VariantOptions& options) {
    VariantOptions other = options;
    ++other.dry_run.seed;
    ++other.rails.seed;
    return compare(play(workload, Rails::on_demand, options), "again", play(workload, Rails::on_demand, other), options);
}

}  // namespace opus::sim
