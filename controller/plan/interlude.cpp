#include "controller/plan/interlude.h"

#include <algorithm>
#include <utility>

#include "opus/assert.h"

namespace opus::controller::plan {
namespace {

using Launches = std::vector<const Seen*>;

// Its rank's launches of these numbers, in order; none where the log begins later.
std::optional<Launches> launches_of(const Log& log, const RankName& rank, std::uint64_t begin, std::uint64_t end) {
    const auto seen = log.ranks().find(rank);
    if (seen == log.ranks().end() || begin > end) return std::nullopt;
    Launches launches;
    bool reaches = begin == end;
    for (const Seen& s : seen->second) {
        reaches |= s.seq <= begin;
        if (s.seq >= begin && s.seq < end) launches.push_back(&s);
    }
    if (!reaches) return std::nullopt;
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

// From its first launch of `from` on, before `until`.
std::vector<Place> places_of(const Log& log, const RankName& name, const RankLap& from, std::uint64_t until) {
    std::vector<Place> places;
    const auto launches = launches_of(log, name, from.seq, until + from.seqs);
    if (!launches || launches->size() < from.launches.size()) return places;
    const auto last = launches->end() - static_cast<std::ptrdiff_t>(from.launches.size());
    for (auto at = launches->begin(); at <= last; ++at)
        if (Place place; is_lap(from, at, place)) places.push_back(std::move(place));
    return places;
}

// Adds the ranks' places that belong to the lap of which these are the first keys. False: one of them does no such lap.
bool complete(std::map<Key, std::uint64_t>& first, std::vector<std::pair<RankLap*, std::vector<Place>>> ranks) {
    const auto belongs = [&](const Place& place) {
        bool meets = false;
        for (const auto& [sequence, n] : place.first) {
            const auto known = first.find(sequence);
            if (known != first.end() && known->second != n) return false;
            meets |= known != first.end();
        }
        return meets;
    };
    while (!ranks.empty()) {
        const std::size_t left = ranks.size();
        std::erase_if(ranks, [&](auto& rank) {
            const auto place = std::ranges::find_if(rank.second, belongs);
            if (place == rank.second.end()) return false;
            rank.first->seq = place->seq;
            first.insert(place->first.begin(), place->first.end());
            return true;
        });
        if (ranks.size() == left) return false;
    }
    return true;
}

// Some ranks do an operation that is in no lap before this one, others behind it.
bool parts_an_operation(const Lap& from, const Lap& next, const Log& log) {
    std::map<Key, bool> is_before;
    for (const auto& [name, rank] : next.ranks)
        for (const Seen& s : must_find(log.ranks(), name)) {
            if (s.seq < must_find(from.ranks, name).seq) continue;
            for (const SeenKey& k : s.keys) {
                if (next.sequences.contains(sequence_of(k.key))) continue;
                const bool before = s.seq < rank.seq;
                if (is_before.try_emplace(k.key, before).first->second != before) return true;
            }
        }
    return false;
}

// The first lap from this one on that all ranks do, as it is counted; at the latest this other one.
Lap next_lap(const Lap& from, const Lap& until, const Log& log) {
    Lap next = from;
    std::vector<std::pair<RankLap*, std::vector<Place>>> ranks;
    for (auto& [name, rank] : next.ranks)
        ranks.emplace_back(&rank, places_of(log, name, rank, must_find(until.ranks, name).seq));
    for (const Place& place : ranks.front().second) {
        auto first = place.first;
        if (!complete(first, ranks)) continue;
        for (auto& [sequence, s] : next.sequences)
            if (const auto at = first.find(sequence); at != first.end()) s.first = at->second;
        if (!parts_an_operation(from, next, log)) return next;
    }
    return until;
}

bool is_before(const Lap& x, const Lap& y) {
    return std::ranges::all_of(
               x.ranks, [&](const auto& rank) { return rank.second.seq <= must_find(y.ranks, rank.first).seq; }) &&
           std::ranges::all_of(x.sequences,
                               [&](const auto& s) { return s.second.first <= must_find(y.sequences, s.first).first; });
}

}  // namespace

std::vector<Interlude> Interlude::between(Lap from, Lap& found, const Log& log) {
    std::vector<Interlude> all;
    Lap last = found;
    while (is_before(from, found) && !is_before(found, from)) {
        Lap next = next_lap(from, found, log);
        if (is_before(next, from)) {  // it is one
            from.advance(1);
            continue;
        }
        auto between = Interlude::of(from, next, log);
        if (!between || !is_before(from, next)) break;
        all.push_back(std::move(*between));
        from = last = std::move(next);
    }
    if (!all.empty()) found.ranks = last.ranks, found.sequences = last.sequences;
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
