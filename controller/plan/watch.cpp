#include "controller/plan/watch.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace opus::controller::plan {

Watch::Watch(const Lap& lap) {
    for (const auto& [name, rank] : lap.ranks) {
        Rank& r = ranks_[name];
        r.lap = rank;
        r.before.assign(rank.launches.size(), 0);
        r.ended = r.before;
    }
}

void Watch::ended(const RankName& name, std::uint64_t number, TimeNs done_ns) {
    const auto at = ranks_.find(name);
    if (at == ranks_.end()) return;
    Rank& rank = at->second;
    const auto place = rank.lap.place_of(number);
    if (!place) return;
    const auto& [lap, i] = *place;
    if (lap > rank.at) {
        over(rank);
        rank.before.swap(rank.ended);
        if (lap != rank.at + 1) std::fill(rank.before.begin(), rank.before.end(), 0);
        std::fill(rank.ended.begin(), rank.ended.end(), 0);
        rank.at = lap;
        latest_ = std::max(latest_, lap);
    }
    if (lap == rank.at - 1) rank.before[i] = done_ns;
    if (lap != rank.at) return;
    rank.ended[i] = done_ns;
}

// By its last launch of which both are known.
void Watch::over(const Rank& rank) {
    if (rank.at <= told_) return;  // -1: it has begun none
    auto& took = open_[rank.at];
    for (std::size_t i = rank.ended.size(); i-- > 0;)
        if (rank.ended[i] != 0 && rank.before[i] != 0) {
            took.push_back(rank.ended[i] - rank.before[i]);
            return;
        }
}

// Who does nothing that is told of is not waited for beyond the next lap.
std::optional<Watch::Took> Watch::next() {
    while (!open_.empty()) {
        const auto first = open_.begin();
        if (first->second.size() < ranks_.size() && first->first + 1 >= latest_) return std::nullopt;
        const auto [lap, took] = *first;
        open_.erase(first);
        told_ = lap;
        if (took.empty()) continue;
        return Took{lap, std::accumulate(took.begin(), took.end(), TimeNs{0}) / static_cast<TimeNs>(took.size())};
    }
    return std::nullopt;
}

}  // namespace opus::controller::plan
