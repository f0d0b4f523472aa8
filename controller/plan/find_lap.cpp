// Which laps a job does: found in the log of its launches, and found again.
#include <algorithm>
#include <functional>
#include <numeric>
#include <set>
#include <span>
#include <unordered_map>

#include "controller/plan/lap.h"
#include "controller/plan/program_order.h"
#include "opus/assert.h"

namespace opus::controller::plan {
namespace {

constexpr std::uint64_t kMostLaps = 4096;  // of one rank, in a lap of the job
constexpr std::size_t kRecent = 4;         // laps

// The least period of the end of a list that comes twice and has in it all that the later half of the list has; or,
// where that is not enough, of which all the later half is. 0: none.
std::size_t period_of(const std::vector<std::uint64_t>& list, bool all) {
    const std::size_t n = list.size();
    const auto at = [&](std::size_t i) { return list[n - 1 - i]; };
    std::vector<std::size_t> z(n, 0);  // how far the list read backwards from here agrees with its end
    for (std::size_t i = 1, l = 0, r = 0; i < n; ++i) {
        if (i < r) z[i] = std::min(r - i, z[i - l]);
        while (i + z[i] < n && at(z[i]) == at(i + z[i])) ++z[i];
        if (i + z[i] > r) l = i, r = i + z[i];
    }
    std::set<std::uint64_t> recent, had;
    for (std::size_t i = 0; i < (n + 1) / 2; ++i) recent.insert(at(i));
    for (std::size_t p = 1; 2 * p <= n; ++p) {
        had.insert(at(p - 1));
        if (z[p] < p || (all && 2 * (z[p] + p) < n)) continue;
        if (std::includes(had.begin(), had.end(), recent.begin(), recent.end())) return p;
    }
    return 0;
}

class Finder {
public:
    explicit Finder(const Log& log) {
        for (const auto& [name, seen] : log.ranks()) ranks_.push_back({name, in_order(seen), 0, 0, {}});
    }

    std::optional<Lap> find(const PairsOf& pairs_of) {
        if (ranks_.empty() || !find_periods(false)) return std::nullopt;
        // Some ranks may just have done what is a lap of theirs for a moment, and others not.
        if (!join() && !(find_periods(true) && join())) return std::nullopt;
        name_uses(pairs_of);
        for (const Rank& rank : ranks_) list_launches(rank);
        for (Together& launch : together_) tie(std::move(launch));
        return std::move(lap_);
    }

private:
    struct Rank {
        RankName name;
        Launches launches;
        std::size_t period = 0, lap = 0;
        std::map<Key, std::uint64_t> counts;  // keys of each sequence in a period
    };

    bool find_periods(bool all) {
        for (Rank& rank : ranks_) {
            rank.counts.clear();
            std::vector<std::uint64_t> list;
            list.reserve(rank.launches.size());
            for (const Seen* s : rank.launches) list.push_back(s->signature);
            rank.period = period_of(list, all);
            if (rank.period == 0 && cut_at_open(rank.launches)) {
                list.resize(rank.launches.size());
                rank.period = period_of(list, all);
            }
            if (rank.period == 0) return false;
            for (std::size_t i = list.size() - rank.period; i < list.size(); ++i)
                for (const SeenKey& k : rank.launches[i]->keys) ++rank.counts[sequence_of(k.key)];
        }
        return true;
    }

    // The last so many launches are of its period.
    static bool comes_again(const Rank& rank, std::size_t launches) {
        const std::size_t n = rank.launches.size();
        if (launches > n) return false;
        for (std::size_t i = n - launches; i + rank.period < n; ++i)
            if (rank.launches[i]->signature != rank.launches[i + rank.period]->signature) return false;
        return true;
    }

    bool join() {
        lap_ = {};
        return join_periods() && cut();
    }

    // How many periods of each rank go into a lap of the job: whoever meets others meets them as often as they do.
    bool join_periods() {
        std::map<Key, std::vector<std::pair<std::size_t, std::uint64_t>>> members;  // ranks, and how many of its keys each has
        for (std::size_t r = 0; r < ranks_.size(); ++r)
            for (const auto& [sequence, count] : ranks_[r].counts) members[sequence].emplace_back(r, count);
        using Ratio = std::pair<std::uint64_t, std::uint64_t>;
        std::vector<Ratio> laps(ranks_.size(), {0, 1});
        std::uint64_t whole = 1;
        for (std::size_t first = 0; first < ranks_.size(); ++first) {
            if (laps[first].first != 0) continue;
            laps[first] = {1, 1};
            std::vector<std::size_t> open{first};
            while (!open.empty()) {
                const std::size_t r = open.back();
                open.pop_back();
                for (const auto& [sequence, count] : ranks_[r].counts)
                    // Once is enough: who agrees with one of its members agrees with all.
                    for (const auto& [other, others] : std::exchange(must_find(members, sequence), {})) {
                        Ratio ratio{laps[r].first * count, laps[r].second * others};
                        const std::uint64_t d = std::gcd(ratio.first, ratio.second);
                        ratio = {ratio.first / d, ratio.second / d};
                        if (laps[other].first != 0) {
                            if (laps[other] != ratio) return false;
                            continue;
                        }
                        laps[other] = ratio;
                        whole = std::lcm(whole, ratio.second);
                        if (ratio.first > kMostLaps || whole > kMostLaps) return false;
                        open.push_back(other);
                    }
            }
        }
        for (std::size_t r = 0; r < ranks_.size(); ++r) {
            const std::uint64_t periods = laps[r].first * whole / laps[r].second;
            const std::size_t launches = ranks_[r].period * periods;
            if (!comes_again(ranks_[r], 2 * launches)) return false;
            ranks_[r].lap = launches;
            lap_.launches += launches;
            for (const auto& [sequence, count] : ranks_[r].counts) lap_.sequences[sequence].uses.assign(count * periods, 0);
        }
        return true;
    }

    // Of it what a lap is cut from: others may be some laps ahead or behind.
    static std::span<const Seen* const> recent(const Rank& rank) {
        return std::span(rank.launches).last(std::min(rank.launches.size(), kRecent * rank.lap));
    }

    // Where little happens, two laps before the end: the first key of each sequence that begins later.
    bool cut() {
        std::unordered_map<Key, std::vector<std::pair<std::uint64_t, TimeNs>>> begun;  // by number: the last member
        TimeNs end = std::numeric_limits<TimeNs>::max();
        for (const Rank& rank : ranks_) {
            TimeNs last = 0;
            for (const Seen* s : recent(rank)) {
                last = std::max(last, s->go_ns);
                for (const SeenKey& k : s->keys) begun[sequence_of(k.key)].emplace_back(k.key.n, s->go_ns);
            }
            end = std::min(end, last);
        }
        std::vector<TimeNs> moments;
        for (auto& [sequence, keys] : begun) {
            std::ranges::sort(keys, std::greater{});
            keys.erase(std::ranges::unique(keys, {}, [](const auto& k) { return k.first; }).begin(), keys.end());
            std::ranges::reverse(keys);
            for (const auto& [n, ns] : keys)
                if (ns <= end) moments.push_back(ns);
        }
        std::sort(moments.begin(), moments.end());
        // Of the places in the last lap but one, the quietest.
        std::size_t keys_of_lap = 0;
        for (const auto& [sequence, s] : lap_.sequences) keys_of_lap += s.uses.size();
        if (moments.size() < 2 * keys_of_lap) return false;
        const std::size_t last = moments.size() - keys_of_lap;
        TimeNs quiet = -1, at = 0;
        for (std::size_t i = last - keys_of_lap + 1; i <= last; ++i)
            if (moments[i] - moments[i - 1] > quiet) quiet = moments[i] - moments[i - 1], at = moments[i];
        for (auto& [sequence, s] : lap_.sequences) {
            const auto& keys = begun[sequence];
            const auto first = std::find_if(keys.begin(), keys.end(), [at](const auto& k) { return k.second >= at; });
            if (first == keys.end()) return false;
            s.first = first->first;
            const auto last_of_lap =
                std::ranges::lower_bound(keys, s.first + s.uses.size() - 1, {}, [](const auto& k) { return k.first; });
            if (last_of_lap == keys.end() || last_of_lap->first != s.first + s.uses.size() - 1) return false;
        }
        return true;
    }

    // From the first on that is of the lap.
    void list_launches(const Rank& rank) {
        const auto is_of_lap = [this](const Seen* s) {
            const auto x = s->keys.empty() ? std::nullopt : lap_.find(s->keys.front().key);
            return x && x->second >= 0;
        };
        const auto from = rank.launches.end() - static_cast<std::ptrdiff_t>(2 * rank.lap), upto = from + static_cast<std::ptrdiff_t>(rank.lap);
        const auto first = std::find_if(from, upto, is_of_lap);
        const auto begin = static_cast<std::size_t>((first == upto ? from : first) - rank.launches.begin());
        RankLap& lap = lap_.ranks[rank.name];
        lap.seq = rank.launches[begin]->seq;
        lap.seqs = rank.launches[from - rank.launches.begin() + rank.lap]->seq - (*from)->seq;
        for (std::size_t i = begin; i < begin + rank.lap; ++i) {
            const Seen& s = *rank.launches[i];
            RankLap::Launch& launch = lap.launches.emplace_back();
            launch.offset = s.seq - lap.seq;
            launch.signature = s.signature;
            Together together;
            for (const SeenKey& k : s.keys) {
                const Key sequence = sequence_of(k.key);
                launch.keys.push_back(static_cast<std::int64_t>(k.key.n - must_find(lap_.sequences, sequence).first));
                together.emplace_back(sequence, launch.keys.back());
            }
            if (together.size() > 1) together_.push_back(std::move(together));
        }
    }

    void tie(Together launch) {
        std::size_t with = lap_.tied.size();  // the first that has a sequence of it; others join that
        for (const auto& [sequence, n] : launch)
            if (const auto& tied = must_find(lap_.sequences, sequence).tied) with = std::min(with, *tied);
        if (with == lap_.tied.size()) lap_.tied.emplace_back();
        for (const auto& [sequence, n] : launch)
            if (auto& tied = must_find(lap_.sequences, sequence).tied; !tied)
                tied = with;
            else if (const std::size_t from = *tied; from != with)
                for (Together& other : std::exchange(lap_.tied[from], {})) {
                    for (const auto& part : other) must_find(lap_.sequences, part.first).tied = with;
                    lap_.tied[with].push_back(std::move(other));
                }
        lap_.tied[with].push_back(std::move(launch));
    }

    // By the grant with which the last of its members began.
    void name_uses(const PairsOf& pairs_of) {
        std::uint32_t keys = 0;
        for (auto& [key, sequence] : lap_.sequences)
            for (std::uint32_t& use : sequence.uses) use = keys++;
        const Found found(lap_);
        std::vector<std::set<Pair>> pairs(keys);
        std::vector<std::uint64_t> grants(keys, 0);
        for (const Rank& rank : ranks_)
            for (const Seen* s : recent(rank))
                for (const SeenKey& k : s->keys) {
                    const auto x = found.find(k.key);
                    if (!x || x->second != 0) continue;
                    grants[x->first] = std::max(grants[x->first], s->grant);
                    must_find(lap_.sequences, sequence_of(k.key)).mesh |= k.mesh;
                    if (pairs[x->first].empty())
                        for (const Pair& pair : pairs_of(k)) pairs[x->first].insert(pair);
                }
        std::map<std::pair<std::uint64_t, std::uint32_t>, std::uint32_t> names;
        std::vector<std::uint32_t> name(keys);
        for (std::uint32_t k = 0; k < keys; ++k)
            name[k] = names.try_emplace({grants[k], grants[k] == 0 ? k : 0}, static_cast<std::uint32_t>(names.size())).first->second;
        lap_.uses.resize(names.size());
        for (std::uint32_t k = 0; k < keys; ++k) {
            auto& of_use = lap_.uses[name[k]].pairs;
            of_use.insert(of_use.end(), pairs[k].begin(), pairs[k].end());
            lap_.uses[name[k]].grant = grants[k];
        }
        for (Use& use : lap_.uses) {
            std::sort(use.pairs.begin(), use.pairs.end());
            use.pairs.erase(std::unique(use.pairs.begin(), use.pairs.end()), use.pairs.end());
        }
        for (auto& [key, sequence] : lap_.sequences)
            for (std::uint32_t& use : sequence.uses) use = name[use];
    }

    std::vector<Rank> ranks_;
    std::vector<Together> together_;
    Lap lap_;
};

// How the last launches of a rank may be its lap again.
struct Again {
    std::uint64_t seq = 0;              // of the first launch of the lap that it is in
    std::map<Key, std::int64_t> first;  // key of each sequence, of that lap
};

std::vector<Again> find_again(const Lap& lap, const RankLap& rank, const Launches& launches) {
    std::vector<Again> all;
    const std::size_t n = rank.launches.size(), from = launches.size() - n;
    for (std::size_t place = 0; place < n; ++place) {
        bool same = true;
        for (std::size_t i = 0; i < n && same; ++i)
            same = launches[from + i]->signature == rank.launches[(place + i) % n].signature;
        Again again;
        for (std::size_t i = 0; i < n && same; ++i) {
            const std::size_t at = (place + i) % n;
            const bool before = place + i < n && place != 0;  // of the lap before
            const Seen& s = *launches[from + i];
            if (at == 0) again.seq = s.seq;
            for (std::size_t k = 0; k < s.keys.size() && same; ++k) {
                const Key sequence = sequence_of(s.keys[k].key);
                const Sequence& known = must_find(lap.sequences, sequence);
                const auto first = static_cast<std::int64_t>(s.keys[k].key.n) - rank.launches[at].keys[k] +
                                   (before ? static_cast<std::int64_t>(known.uses.size()) : 0);
                same = again.first.try_emplace(sequence, first).first->second == first;
            }
        }
        if (same) all.push_back(std::move(again));
    }
    return all;
}

}  // namespace

std::optional<Lap> find_lap(const Log& log, const PairsOf& pairs_of) { return Finder(log).find(pairs_of); }

bool find_again(Lap& lap, const Log& log) {
    struct Open {
        RankLap* lap = nullptr;
        std::vector<Again> ways;
    };
    std::vector<Open> open;
    for (auto& [name, rank] : lap.ranks) {
        const auto seen = log.ranks().find(name);
        if (seen == log.ranks().end()) return false;
        Launches launches = in_order(seen->second, rank.launches.size() + kMostAhead);
        std::erase_if(launches, [&, upto = log.marked(name)](const Seen* s) { return s->seq < upto; });
        if (launches.size() < rank.launches.size()) return false;
        open.push_back({&rank, find_again(lap, rank, launches)});
        if (open.back().ways.empty() && cut_at_open(launches) && launches.size() >= rank.launches.size())
            open.back().ways = find_again(lap, rank, launches);
        if (open.back().ways.empty()) return false;
    }
    std::sort(open.begin(), open.end(), [](const Open& x, const Open& y) { return x.ways.size() < y.ways.size(); });
    // One after the other, each so that it agrees with those before; some have begun the next lap, others have not.
    std::map<Key, std::int64_t> first;
    std::optional<std::int64_t> laps;  // from the lap of a way that fits to the one that all are counted from
    const auto fits = [&](const Again& way) {
        laps.reset();
        bool meets = first.empty();
        for (const auto& [sequence, n] : way.first) {
            const auto known = first.find(sequence);
            if (known == first.end()) continue;
            meets = true;
            const auto count = static_cast<std::int64_t>(must_find(lap.sequences, sequence).uses.size());
            if ((known->second - n) % count != 0 || (laps && *laps != (known->second - n) / count)) return false;
            laps = (known->second - n) / count;
        }
        if (!meets) return false;
        for (const auto& [sequence, n] : way.first)
            first.try_emplace(
                sequence, n + laps.value_or(0) * static_cast<std::int64_t>(must_find(lap.sequences, sequence).uses.size()));
        return true;
    };
    while (!open.empty()) {
        const std::size_t left = open.size();
        std::erase_if(open, [&](Open& rank) {
            const auto way = std::find_if(rank.ways.begin(), rank.ways.end(), fits);
            if (way == rank.ways.end()) return false;
            rank.lap->seq = way->seq + static_cast<std::uint64_t>(laps.value_or(0)) * rank.lap->seqs;
            return true;
        });
        if (open.size() == left) return false;
    }
    for (const auto& [sequence, s] : lap.sequences)
        if (const auto at = first.find(sequence); at == first.end() || at->second < 0) return false;
    for (auto& [sequence, s] : lap.sequences) s.first = static_cast<std::uint64_t>(must_find(first, sequence));
    return true;
}

}  // namespace opus::controller::plan
