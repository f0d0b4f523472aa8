#include "controller/plan/places.h"

#include <algorithm>
#include <ranges>

#include "opus/assert.h"

namespace opus::controller::plan {
namespace {

bool is_lap(const RankLap& lap, Launches::const_iterator at, Place& place) {
    place = {(*at)->seq, {}};
    for (const RankLap::Launch& l : lap.launches) {
        const Seen& s = **at++;
        if (l.offset != s.seq - place.seq || l.signature != s.signature) return false;
        for (std::size_t k = 0; k < s.keys.size(); ++k) {
            const std::uint64_t first = s.keys[k].key.n - static_cast<std::uint64_t>(l.keys[k]);
            if (place.first.try_emplace(sequence_of(s.keys[k].key), first).first->second != first) return false;
        }
    }
    return true;
}

// What its ranks have done behind it is of the laps after it.
bool goes_on(const Lap& lap, const Log& log) {
    return std::ranges::all_of(lap.ranks, [&](const auto& rank) {
        const auto& all = must_find(log.ranks(), rank.first);
        return std::all_of(std::ranges::lower_bound(all, rank.second.seq, {}, &Seen::seq), all.end(),
                           [&](const Seen& s) { return rank.second.fits(s.seq, s.signature); });
    });
}

}  // namespace

std::optional<Launches> launches_of(const Log& log, const RankName& rank, std::uint64_t begin, std::uint64_t end) {
    const auto seen = log.ranks().find(rank);
    if (seen == log.ranks().end() || begin > end) return std::nullopt;
    const auto& all = seen->second;
    if (begin < end && (all.empty() || all.front().seq > begin)) return std::nullopt;
    Launches launches;
    for (auto s = std::ranges::lower_bound(all, begin, {}, &Seen::seq); s != all.end() && s->seq < end; ++s)
        launches.push_back(&*s);
    return launches;
}

std::optional<Places> Places::in(const Log& log, const Lap& lap, const Range& range) {
    Places places;
    for (const auto& [name, rank] : lap.ranks) {
        const auto [begin, end] = range(name);
        const auto launches = launches_of(log, name, begin, end);
        if (!launches) return std::nullopt;
        auto& own = places.of.emplace_back(name, std::vector<Place>{}).second;
        if (rank.launches.empty() || launches->size() < rank.launches.size()) continue;
        const auto last = launches->end() - static_cast<std::ptrdiff_t>(rank.launches.size());
        for (auto at = launches->begin(); at <= last; ++at)
            if (Place place; is_lap(rank, at, place)) own.push_back(std::move(place));
    }
    return places;
}

std::optional<Lap> Places::lap_at(const Place& place, const Lap& like) const {
    Lap lap = like;
    auto first = place.first;
    const auto belongs = [&](const Place& p) {
        bool meets = false;
        for (const auto& [sequence, n] : p.first) {
            const auto known = first.find(sequence);
            if (known != first.end() && known->second != n) return false;
            meets |= known != first.end();
        }
        return meets;
    };
    std::vector<const std::pair<RankName, std::vector<Place>>*> open;
    for (const auto& rank : of) open.push_back(&rank);
    while (!open.empty()) {
        const std::size_t left = open.size();
        std::erase_if(open, [&](const auto* rank) {
            const auto p = std::ranges::find_if(rank->second, belongs);
            if (p == rank->second.end()) return false;
            must_find(lap.ranks, rank->first).seq = p->seq;
            first.insert(p->first.begin(), p->first.end());
            return true;
        });
        if (open.size() == left) return std::nullopt;
    }
    for (auto& [sequence, s] : lap.sequences)
        if (const auto at = first.find(sequence); at != first.end()) s.first = at->second;
    return lap;
}

bool find_again(Lap& lap, const Log& log) {
    const auto places = Places::in(log, lap, [&](const RankName& name) {
        const auto seen = log.ranks().find(name);
        if (seen == log.ranks().end() || seen->second.empty()) return std::pair<std::uint64_t, std::uint64_t>{};
        const std::uint64_t end = seen->second.back().seq + 1, last = 2 * must_find(lap.ranks, name).seqs + kMostAhead;
        return std::pair{std::max({log.marked(name), seen->second.front().seq, end - std::min(end, last)}), end};
    });
    if (!places || places->of.empty()) return false;
    for (const Place& place : std::views::reverse(places->of.front().second))
        if (auto found = places->lap_at(place, lap); found && goes_on(*found, log)) {
            lap = std::move(*found);
            return true;
        }
    return false;
}

}  // namespace opus::controller::plan
