#include "tools/opus-sim/noise.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <stdexcept>

namespace opus::job {

SlowRank slow_rank(const std::string& text) {
    SlowRank slow;
    const std::size_t equals = text.find('=');
    const char* const end = text.data() + text.size();
    bool good = equals != text.npos && equals != 0;
    if (good) {
        const auto [at, error] = std::from_chars(text.data(), text.data() + equals, slow.rank);
        good = error == std::errc() && at == text.data() + equals;
    }
    if (good) {
        const auto [at, error] = std::from_chars(text.data() + equals + 1, end, slow.factor);
        good = error == std::errc() && at == end && slow.factor >= 0.01 && slow.factor <= 100;
    }
    if (!good)
        throw std::invalid_argument(
            "--slow-rank '" + text +
            "': say RANK=FACTOR, such as 3=1.1: rank 3 computes for 1.1 times as long; factors are 0.01 to 100");
    return slow;
}

replay::Workload with_slow_ranks(const replay::Workload& workload, const std::vector<SlowRank>& slow) {
    replay::Workload w = workload;
    for (const SlowRank& s : slow) {
        if (s.rank >= w.world())
            throw std::invalid_argument("--slow-rank " + std::to_string(s.rank) + ": the job has ranks 0 to " +
                                        std::to_string(w.world() - 1));
        replay::Role own;
        for (replay::Role& role : w.roles)
            if (const auto at = std::find(role.ranks.begin(), role.ranks.end(), s.rank); at != role.ranks.end()) {
                role.ranks.erase(at);
                own = {role.name + ", slow rank " + std::to_string(s.rank), {s.rank}, role.steps};
            }
        std::erase_if(w.roles, [](const replay::Role& role) { return role.ranks.empty(); });
        for (replay::Step& step : own.steps)
            if (step.kind == replay::StepKind::compute)
                step.us = static_cast<std::uint64_t>(std::llround(static_cast<double>(step.us) * s.factor));
        w.roles.push_back(std::move(own));
    }
    return w;
}

Spread spread_of(const std::vector<SeedTimes>& seeds, std::size_t point, double SeedTimes::At::*variant) {
    Spread s;
    double sum = 0;
    std::size_t count = 0;
    for (const SeedTimes& one : seeds) {
        const double ms = one.points[point].*variant;
        if (ms <= 0 || one.electrical_ms <= 0) continue;
        const double over = ms / one.electrical_ms - 1;
        s.least = count == 0 ? over : std::min(s.least, over);
        s.most = count == 0 ? over : std::max(s.most, over);
        sum += over, ++count;
    }
    if (count != 0) s.mean = sum / static_cast<double>(count);
    return s;
}

}  // namespace opus::job
