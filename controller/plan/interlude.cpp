#include "controller/plan/interlude.h"

#include <algorithm>
#include <utility>

#include "opus/assert.h"

namespace opus::controller::plan {
namespace {

constexpr std::uint64_t kMostBetween = 16;  // as long as so many may be what is looked at between two

using Launches = std::vector<const Seen*>;

// Its rank's launches of these numbers, in order; none where the log begins later.
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

// Where a rank does a lap: its first launch, and of each of its sequences the first key.
struct Place {
    std::uint64_t seq = 0;
    std::map<Key, std::uint64_t> first;
};

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

using Places = std::vector<std::pair<RankName, std::vector<Place>>>;  // of each rank, in its order

// From one lap on to another one, that one included. None: a rank's log does not go back that far.
std::optional<Places> places_between(const Lap& from, const Lap& until, const Log& log) {
    Places places;
    for (const auto& [name, rank] : from.ranks) {
        const auto launches = launches_of(log, name, rank.seq, must_find(until.ranks, name).seq + rank.seqs);
        if (!launches) return std::nullopt;
        auto& own = places.emplace_back(name, std::vector<Place>{}).second;
        if (rank.launches.empty() || launches->size() < rank.launches.size()) continue;
        const auto last = launches->end() - static_cast<std::ptrdiff_t>(rank.launches.size());
        for (auto at = launches->begin(); at <= last; ++at)
            if (Place place; is_lap(rank, at, place)) own.push_back(std::move(place));
    }
    return places;
}

// The lap to which this place of a rank belongs, with those of all the others. None: one of them does no such lap.
std::optional<Lap> lap_at(const Place& place, const Places& places, const Lap& like) {
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
    std::vector<const Places::value_type*> open;
    for (const auto& rank : places) open.push_back(&rank);
    while (!open.empty()) {
        const std::size_t left = open.size();
        std::erase_if(open, [&](const Places::value_type* rank) {
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

bool is_not_later(const Lap& x, const Lap& y) {
    return std::ranges::all_of(
               x.ranks, [&](const auto& rank) { return rank.second.seq <= must_find(y.ranks, rank.first).seq; }) &&
           std::ranges::all_of(x.sequences,
                               [&](const auto& s) { return s.second.first <= must_find(y.sequences, s.first).first; });
}

// The first lap from this one on that all ranks do, as it is counted; at the latest this other one.
Lap next_lap(const Lap& from, const Lap& until, const Places& places) {
    for (const Place& place : places.front().second) {
        if (place.seq < must_find(from.ranks, places.front().first).seq) continue;
        auto lap = lap_at(place, places, from);
        if (lap && is_not_later(from, *lap)) return std::move(*lap);
    }
    return until;
}

}  // namespace

std::vector<Interlude> Interlude::between(Lap from, Lap& found, const Log& log) {
    if (!is_not_later(from, found)) return {};
    for (const auto& [name, rank] : from.ranks)
        if (must_find(found.ranks, name).seq - rank.seq > kMostBetween * rank.seqs) return {};
    const auto places = places_between(from, found, log);
    if (!places) return {};
    std::vector<Interlude> all;
    Lap behind = found;
    while (!is_not_later(found, from)) {
        Lap next = next_lap(from, found, *places);
        if (is_not_later(next, from)) {  // it is one
            from.advance(1);
            continue;
        }
        auto between = Interlude::of(from, next, log);
        if (!between) return {};
        if (!between->ranks().empty()) all.push_back(std::move(*between));
        from = behind = std::move(next);
    }
    if (!is_not_later(from, found)) return {};  // something in it is in no order
    found.ranks = behind.ranks, found.sequences = behind.sequences;
    return all;
}

std::optional<Interlude> Interlude::of(const Lap& from, const Lap& next, const Log& log) {
    Interlude between;
    for (const auto& [sequence, s] : next.sequences)
        between.keys_[sequence] = s.first - must_find(from.sequences, sequence).first;
    for (const auto& [name, rank] : next.ranks) {
        const std::uint64_t begin = must_find(from.ranks, name).seq;
        const auto launches = launches_of(log, name, begin, rank.seq);
        if (!launches) return std::nullopt;
        RankLap& once = between.ranks_[name];
        once.seq = begin;
        once.seqs = rank.seq - begin;
        for (const Seen* s : *launches) once.launches.push_back({s->seq - begin, s->signature, {}});
    }
    return between;
}

bool Interlude::does_as(const Interlude& other) const {
    const auto same = [](const RankLap::Launch& x, const RankLap::Launch& y) { return x.offset == y.offset && x.signature == y.signature; };
    return keys_ == other.keys_ && std::ranges::equal(ranks_, other.ranks_, [&](const auto& x, const auto& y) {
        return x.first == y.first && x.second.seqs == y.second.seqs && std::ranges::equal(x.second.launches, y.second.launches, same);
    });
}

void Interlude::begin_at(const Lap& lap) {
    for (auto& [name, rank] : ranks_) rank.seq = must_find(lap.ranks, name).seq;
}

bool Interlude::fits(const RankName& name, std::uint64_t number, std::uint64_t signature) const {
    const auto at = ranks_.find(name);
    if (at == ranks_.end()) return false;
    const RankLap& rank = at->second;
    return number < rank.seq || (number - rank.seq < rank.seqs && rank.fits(number, signature));
}

bool Interlude::fits(const Log& log) const {
    return std::ranges::all_of(ranks_, [&](const auto& entry) {
        const auto seen = log.ranks().find(entry.first);
        if (seen == log.ranks().end()) return true;
        for (auto s = seen->second.rbegin(); s != seen->second.rend() && s->seq + kMostAhead >= entry.second.seq; ++s)
            if (!fits(entry.first, s->seq, s->signature)) return false;
        return true;
    });
}

bool Interlude::ends_with(const RankName& name, std::uint64_t number) const {
    const auto at = ranks_.find(name);
    if (at == ranks_.end() || at->second.launches.empty()) return true;
    return number >= at->second.seq + at->second.launches.back().offset;
}

std::vector<RankName> Interlude::ranks() const {
    std::vector<RankName> names;
    for (const auto& [name, rank] : ranks_)
        if (!rank.launches.empty()) names.push_back(name);
    return names;
}

void Interlude::skip(Lap& lap) const {
    for (const auto& [name, rank] : ranks_) must_find(lap.ranks, name).seq = rank.seq + rank.seqs;
    for (const auto& [sequence, keys] : keys_) must_find(lap.sequences, sequence).first += keys;
}

}  // namespace opus::controller::plan
