#include "controller/plan/loss.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "opus/assert.h"

namespace opus::controller::plan {
namespace {

// The first as it was seen, the second and third for what holds in them delay of the last one, and of its beginning.
constexpr std::int64_t kAskedLaps = 4;
constexpr std::int64_t kKeptLaps = kAskedLaps + 2;  // some ranks are in later ones

}  // namespace

void Loss::ended(const Lap& lap, const RankName& rank, const Seen& launch) {
    for (const SeenKey& k : launch.keys) {
        const auto at = lap.find(k.key);
        if (!at || (!laps_.empty() && at->second <= laps_.rbegin()->first - kKeptLaps)) continue;
        SeenLap& seen = laps_[at->second];
        laps_.erase(laps_.begin(), laps_.upper_bound(laps_.rbegin()->first - kKeptLaps));
        seen.uses.resize(lap.uses.size());
        SeenUse& use = seen.uses[at->first];
        use.ready_ns = std::max(use.ready_ns, launch.ready_ns);
        use.begin_ns = std::max(use.begin_ns, launch.go_ns);
        use.end_ns = std::max(use.end_ns, launch.done_ns);
        End& end = seen.ends[rank];
        if (launch.done_ns > end.done_ns || (launch.done_ns == end.done_ns && lap.uses[at->first].until.empty()))
            end = {launch.done_ns, at->first};
    }
}

std::optional<TimeNs> Loss::lost_ns(const Lap& lap, std::int64_t number) {
    if (!laps_.contains(number)) return std::nullopt;
    std::vector<std::vector<SeenUse>> laps(kAskedLaps);  // each use by itself: how much sooner, is found here
    std::vector<std::pair<std::size_t, std::uint32_t>> order;
    least_.resize(lap.uses.size(), std::numeric_limits<TimeNs>::max());
    for (std::int64_t k = 0; k < kAskedLaps; ++k) {
        const auto seen = laps_.find(number - kAskedLaps + 1 + k);
        if (seen == laps_.end()) continue;
        laps[k] = seen->second.uses;
        for (std::uint32_t u = 0; u < laps[k].size(); ++u) {
            SeenUse& use = laps[k][u];
            if (use.begin_ns == 0) continue;
            // A launch of it goes on with others, and is over when these are.
            if (!lap.uses[u].until.empty()) use.end_ns = use.begin_ns + lap.uses[u].ns;
            if (k > 0) order.emplace_back(k, u);
            if (k < kAskedLaps - 1) least_[u] = std::min(least_[u], use.took_ns());
        }
    }
    std::sort(order.begin(), order.end(), [&](const auto& x, const auto& y) { return laps[x.first][x.second].begin_ns < laps[y.first][y.second].begin_ns; });
    // How much depends on what it waited for: on the last of these, and then on the last of them as they would have been.
    for (const auto& [k, u] : order) {
        TimeNs was = 0, would_be = 0;
        for (const Before& b : lap.uses[u].before) {
            if (b.laps > k || laps[k - b.laps].empty()) continue;
            const SeenUse& from = laps[k - b.laps][b.use];
            if (from.begin_ns == 0) continue;
            const TimeNs gap = b.ns - lap.uses[b.use].ns;
            was = std::max(was, from.end_ns + gap);
            would_be = std::max(would_be, from.end_ns - from.sooner_ns + gap);
        }
        SeenUse& use = laps[k][u];
        const TimeNs longer = std::max<TimeNs>(0, use.took_ns() - least_[u]);
        use.sooner_ns = was - would_be + std::max<TimeNs>(0, use.begin_ns - use.ready_ns) + longer;
    }
    const auto& ends = must_find(laps_, number).ends;
    const auto before = laps_.find(number - 1);
    TimeNs lost = 0;
    for (const auto& [rank, end] : ends) {
        lost += laps[kAskedLaps - 1][end.use].sooner_ns;
        if (before == laps_.end()) continue;
        if (const auto e = before->second.ends.find(rank); e != before->second.ends.end()) lost -= laps[kAskedLaps - 2][e->second.use].sooner_ns;
    }
    return lost / static_cast<TimeNs>(ends.size());
}

}  // namespace opus::controller::plan
