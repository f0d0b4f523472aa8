#include "controller/plan/watch.h"

#include <algorithm>
#include <numeric>

namespace opus::controller::plan {

Watch::Watch(const Lap& lap) {
    for (const auto& [name, of_lap] : lap.ranks) {
        Rank& rank = ranks_[name];
        rank.lap.seq = of_lap.seq, rank.lap.seqs = of_lap.seqs;
        rank.launches = of_lap.launches.size();
    }
}

void Watch::ended(const RankName& name, std::uint64_t number, TimeNs done_ns) {
    const auto known = ranks_.find(name);
    if (known == ranks_.end()) return;
    Rank& rank = known->second;
    const std::int64_t lap = rank.lap.lap_of(number);
    if (lap < rank.at) {
        if (lap < 0) rank.end_ns = std::max(rank.end_ns, done_ns);
        return;
    }
    latest_ = std::max(latest_, lap);
    Part& part = rank.begun.try_emplace(lap, Part{rank.launches}).first->second;
    part.left -= std::min<std::size_t>(1, part.left);
    part.end_ns = std::max(part.end_ns, done_ns);
    // Some of a lap may end in the next one. What has not then is not waited for, and it is not known how long these took.
    for (; rank.at + 1 < lap; ++rank.at) rank.begun.erase(rank.at), rank.end_ns = 0;
    for (auto first = rank.begun.begin(); first != rank.begun.end() && first->first == rank.at && first->second.left == 0;
         first = rank.begun.erase(first), ++rank.at) {
        const TimeNs end_ns = std::max(rank.end_ns, first->second.end_ns);
        if (rank.end_ns != 0 && rank.at > told_) open_[rank.at].push_back(end_ns - rank.end_ns);
        rank.end_ns = end_ns;
    }
}

// Who does nothing that is told of is not waited for beyond the next lap.
std::optional<Watch::Took> Watch::next() {
    if (open_.empty()) return std::nullopt;
    const auto first = open_.begin();
    if (first->second.size() < ranks_.size() && first->first + 1 >= latest_) return std::nullopt;
    const auto [lap, took] = *first;
    open_.erase(first);
    told_ = lap;
    return Took{lap, std::accumulate(took.begin(), took.end(), TimeNs{0}) / static_cast<TimeNs>(took.size())};
}

}  // namespace opus::controller::plan
