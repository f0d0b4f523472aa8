#include "controller/plan/lap.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

namespace opus::controller::plan {

std::uint64_t Log::add(const RankName& rank, Seen seen) {
    auto& list = ranks_[rank];
    const std::uint64_t signature = seen.signature = signature_of(seen.op, seen.keys);
    auto at = list.end();
    while (at != list.begin() && std::prev(at)->seq > seen.seq) --at;
    list.insert(at, std::move(seen));
    for (const std::size_t most = std::min(kMostOfARank, kMostInAll / ranks_.size());
         list.size() > std::max<std::size_t>(1, most);)
        list.pop_front();
    ++added_;
    return signature;
}

void Log::mark() {
    for (const auto& [rank, seen] : ranks_)
        for (const Seen& s : seen) marks_[rank] = std::max(marks_[rank], s.seq + 1);
}

void Log::drop(const RankName& rank) {
    ranks_.erase(rank);
    marks_.erase(rank);
}

// As it was seen with as many, or else with about as many: the bytes take the less the more circuits there are.
TimeNs Use::longer_ns(std::uint32_t circuits) const {
    if (!until.empty()) return 0;
    const std::size_t at = circuits - 1;
    for (std::size_t off = 0; off < std::max(took_ns.size(), at + 1); ++off)
        for (const std::size_t n : {at - off, at + off}) {
            if (n >= took_ns.size() || took_ns[n] == 0) continue;
            const double part = 1.0 / static_cast<double>(circuits) - 1.0 / static_cast<double>(n + 1);
            const auto bytes = static_cast<TimeNs>(part * static_cast<double>(bytes_ns));
            return std::max<TimeNs>(took_ns[n] + bytes, std::min(took_ns[n], ns) / 8) - ns;
        }
    return 0;
}

bool Lap::does_as(const Lap& other) const {
    const auto same = [](const auto& x, const auto& y) { return x.first == y.first && x.second.uses.size() == y.second.uses.size(); };
    const auto alike = [](const auto& x, const auto& y) { return x.first == y.first && x.second.launches.size() == y.second.launches.size(); };
    return std::ranges::equal(sequences, other.sequences, same) && std::ranges::equal(ranks, other.ranks, alike);
}

bool Lap::is_part_of(const Lap& longer) const {
    return launches < longer.launches && std::ranges::all_of(ranks, [&](const auto& entry) {
        const auto other = longer.ranks.find(entry.first);
        if (other == longer.ranks.end()) return false;
        std::set<std::uint64_t> does;
        for (const RankLap::Launch& l : other->second.launches) does.insert(l.signature);
        return std::ranges::all_of(entry.second.launches, [&](const RankLap::Launch& l) { return does.contains(l.signature); });
    });
}

bool Lap::reaches(const RankName& rank, std::uint64_t number) const {
    const auto at = ranks.find(rank);
    return at == ranks.end() || number >= at->second.seq;
}

void Lap::advance(std::int64_t laps) {
    by_plan -= laps;
    const auto n = static_cast<std::uint64_t>(laps);
    for (auto& [key, sequence] : sequences) sequence.first += n * sequence.uses.size();
    for (auto& [name, rank] : ranks) rank.seq += n * rank.seqs;
}

std::size_t Lap::pairs() const {
    std::size_t all = 0;
    for (const Use& use : uses) all += use.pairs.size();
    return all;
}

std::optional<std::pair<std::uint32_t, std::int64_t>> Lap::find(const Key& key) const {
    const auto at = sequences.find(sequence_of(key));
    if (at == sequences.end() || at->second.uses.empty()) return std::nullopt;
    return at->second.place_of(key.n);
}

std::pair<std::uint32_t, std::int64_t> Sequence::place_of(std::uint64_t number) const {
    const auto count = static_cast<std::int64_t>(uses.size());
    const std::int64_t n = static_cast<std::int64_t>(number) - static_cast<std::int64_t>(first);
    const std::int64_t lap = n >= 0 ? n / count : -((count - 1 - n) / count);
    return {uses[static_cast<std::size_t>(n - lap * count)], lap};
}

std::optional<std::pair<std::int64_t, std::size_t>> RankLap::place_of(std::uint64_t number) const {
    if (seqs == 0) return std::nullopt;
    const std::uint64_t offset = number >= seq ? (number - seq) % seqs : seqs - 1 - (seq - number - 1) % seqs;
    const auto at = std::lower_bound(launches.begin(), launches.end(), offset,
                                     [](const Launch& l, std::uint64_t o) { return l.offset < o; });
    if (at == launches.end() || at->offset != offset) return std::nullopt;
    return std::make_pair(lap_of(number), static_cast<std::size_t>(at - launches.begin()));
}

std::int64_t RankLap::lap_of(std::uint64_t number) const {
    if (seqs == 0) return 0;
    return number >= seq ? static_cast<std::int64_t>((number - seq) / seqs) : -static_cast<std::int64_t>((seq - number - 1) / seqs) - 1;
}

bool RankLap::fits(std::uint64_t number, std::uint64_t signature) const {
    const auto at = place_of(number);
    return at && launches[at->second].signature == signature;
}

std::uint64_t signature_of(OpKind op, const std::vector<SeenKey>& keys) {
    std::uint64_t h = hash_mix(keys.size(), static_cast<std::uint64_t>(op));
    for (const SeenKey& k : keys) {
        h = hash_mix(hash_mix(h, k.key.comm.hi), k.key.comm.lo);
        h = hash_mix(hash_mix(hash_mix(h, static_cast<std::uint64_t>(k.key.kind)), k.key.src), k.key.dst);
        h = hash_mix(h, sequence_of(k.key).n);  // of what is captured
    }
    return h;
}

}  // namespace opus::controller::plan
