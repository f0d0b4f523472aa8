#include "controller/plan/interlude.h"

#include <algorithm>

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

bool is_lap(const RankLap& lap, const Launches& launches, std::uint64_t begin) {
    return std::ranges::equal(lap.launches, launches, [begin](const RankLap::Launch& l, const Seen* s) {
        return l.offset == s->seq - begin && l.signature == s->signature;
    });
}

// The lap before it was one, too, and not before the one that was left.
bool has_one_before(const Lap& left, const Lap& found, const Log& log) {
    for (const auto& [sequence, s] : found.sequences)
        if (s.first < must_find(left.sequences, sequence).first + s.uses.size()) return false;
    return std::ranges::all_of(found.ranks, [&](const auto& entry) {
        const auto& [name, rank] = entry;
        if (rank.seq < must_find(left.ranks, name).seq + rank.seqs) return false;
        const auto launches = launches_of(log, name, rank.seq - rank.seqs, rank.seq);
        return launches && is_lap(rank, *launches, rank.seq - rank.seqs);
    });
}

}  // namespace

std::optional<Interlude> Interlude::find(const Lap& left, Lap& found, const Log& log) {
    while (has_one_before(left, found, log)) found.advance(-1);
    Interlude between;
    for (const auto& [sequence, s] : found.sequences) {
        const std::uint64_t first = must_find(left.sequences, sequence).first;
        if (s.first < first) return std::nullopt;
        between.keys_[sequence] = s.first - first;
    }
    for (const auto& [name, rank] : found.ranks) {
        const std::uint64_t begin = must_find(left.ranks, name).seq;
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
