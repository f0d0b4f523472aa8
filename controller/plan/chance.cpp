#include "controller/plan/chance.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>
#include <vector>

namespace opus::controller::plan {

// By how much two periods in a row differ: by how much all of a plan are longer is no chance.
void Chance::add_planned(double ns, double longer, std::size_t ranks) {
    if (const auto before = std::exchange(planned_, longer))
        add({ns, (longer - *before) / std::numbers::sqrt2, ranks}, ranks);
}

void Chance::add(const Period& period, std::size_t ranks) {
    if (!(period.ns > 0) || !std::isfinite(period.longer)) return;
    lately_.push_back(period);
    counted_ += period.ranks;
    for (; counted_ > kLately * ranks && lately_.size() > 1; lately_.pop_front()) counted_ -= lately_.front().ranks;
    std::vector<std::pair<double, double>> differed;  // by how much, for how long
    double rest = 0;
    for (const Period& p : lately_) {
        differed.emplace_back(std::abs(p.longer) * std::sqrt(p.ns), static_cast<double>(p.ranks) * p.ns);
        rest += kMost * differed.back().second;
    }
    std::ranges::sort(differed);
    for (auto at = differed.begin(); at != differed.end() && rest > 0; rest -= at++->second) differs_ = at->first;
}

// It grows with the root of time; more so where what was seen on demand was less.
double Chance::of(double ns) const {
    const double times = 1 + std::min(1.0, ns / std::max(1.0, seen_ns_));
    return std::min(kTimes * differs_ * std::sqrt(ns * times), kMostOf * ns);
}

}  // namespace opus::controller::plan
