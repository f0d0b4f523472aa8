#include "controller/plan/lap.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>

#include "opus/assert.h"

namespace opus::controller::plan {
namespace {

constexpr std::uint64_t kMostLaps = 4096;  // of one rank, in a lap of the job
constexpr std::uint32_t kMostKnownCircuits = 64;  // of a pair
constexpr std::int64_t kTimed = 6;         // laps that are looked at

std::uint64_t mix(std::uint64_t h, std::uint64_t v) {
    h ^= v + 0x9e3779b97f4a7c15ull + (h << 6) + (h >> 2);
    return h * 0xff51afd7ed558ccdull;
}

// The least period of the end of a list that comes twice and has in it all that the later half of the list has; 0: none.
std::size_t period_of(const std::vector<std::uint64_t>& list) {
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
        if (z[p] >= p && std::includes(had.begin(), had.end(), recent.begin(), recent.end())) return p;
    }
    return 0;
}

using Launches = std::vector<const Seen*>;  // of a rank, as its program has made them

Launches in_order(const std::deque<Seen>& seen, std::size_t last = Log::kMostOfARank) {
    Launches launches;
    launches.reserve(std::min(seen.size(), last));
    for (auto s = seen.end() - static_cast<std::ptrdiff_t>(std::min(seen.size(), last)); s != seen.end(); ++s)
        launches.push_back(&*s);
    return launches;
}

// Without what was posted behind the first of its last launches that is not over. False: there is none such.
bool cut_at_open(Launches& launches) {
    const std::size_t from = launches.size() - std::min(launches.size(), kMostAhead);
    for (std::size_t i = from + 1; i < launches.size(); ++i)
        if (launches[i]->seq != launches[i - 1]->seq + 1) {
            launches.resize(i);
            return true;
        }
    return false;
}

class Finder {
public:
    explicit Finder(const Log& log) {
        for (const auto& [name, seen] : log.ranks()) ranks_.push_back({name, in_order(seen), 0, 0, {}});
    }

    std::optional<Lap> find(const PairsOf& pairs_of) {
        if (ranks_.empty() || !find_periods() || !join_periods() || !cut()) return std::nullopt;
        name_uses(pairs_of);
        for (const Rank& rank : ranks_) list_launches(rank);
        return std::move(lap_);
    }

private:
    struct Rank {
        RankName name;
        Launches launches;
        std::size_t period = 0, lap = 0;
        std::map<Key, std::uint64_t> counts;  // keys of each sequence in a period
    };

    bool find_periods() {
        for (Rank& rank : ranks_) {
            std::vector<std::uint64_t> list;
            list.reserve(rank.launches.size());
            for (const Seen* s : rank.launches) list.push_back(s->signature);
            rank.period = period_of(list);
            if (rank.period == 0 && cut_at_open(rank.launches)) {
                list.resize(rank.launches.size());
                rank.period = period_of(list);
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

    // How many periods of each rank go into a lap of the job: whoever meets others meets them as often as they do.
    bool join_periods() {
        std::map<Key, std::vector<std::size_t>> members;
        for (std::size_t r = 0; r < ranks_.size(); ++r)
            for (const auto& entry : ranks_[r].counts) members[entry.first].push_back(r);
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
                    for (const std::size_t other : members[sequence]) {
                        Ratio ratio{laps[r].first * count, laps[r].second * must_find(ranks_[other].counts, sequence)};
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

    // Where little happens, two laps before the end: the first key of each sequence that begins later.
    bool cut() {
        std::map<Key, std::map<std::uint64_t, TimeNs>> begun;  // by number: the last member
        TimeNs end = std::numeric_limits<TimeNs>::max();
        for (const Rank& rank : ranks_) {
            TimeNs last = 0;
            for (const Seen* s : rank.launches) {
                last = std::max(last, s->go_ns);
                for (const SeenKey& k : s->keys) {
                    TimeNs& ns = begun[sequence_of(k.key)][k.key.n];
                    ns = std::max(ns, s->go_ns);
                }
            }
            end = std::min(end, last);
        }
        std::vector<TimeNs> moments;
        for (const auto& [sequence, keys] : begun)
            for (const auto& [n, ns] : keys)
                if (ns <= end) moments.push_back(ns);
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
            if (!keys.contains(s.first + s.uses.size() - 1)) return false;
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
            for (const SeenKey& k : s.keys)
                launch.keys.push_back(
                    static_cast<std::int64_t>(k.key.n - must_find(lap_.sequences, sequence_of(k.key)).first));
        }
    }

    // By the grant with which the last of its members began.
    void name_uses(const PairsOf& pairs_of) {
        std::uint32_t keys = 0;
        for (auto& [key, sequence] : lap_.sequences)
            for (std::uint32_t& use : sequence.uses) use = keys++;
        std::vector<std::set<Pair>> pairs(keys);
        std::vector<std::uint64_t> grants(keys, 0);
        for (const Rank& rank : ranks_)
            for (const Seen* s : rank.launches)
                for (const SeenKey& k : s->keys) {
                    const auto x = lap_.find(k.key);
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
    Lap lap_;
};

// What the laps in a log say of when the uses of a lap are ready.
class Timer {
public:
    Timer(Lap& lap, const Log& log) : lap_(lap) {
        for (const auto& [name, seen] : log.ranks()) ranks_.push_back({name, lanes_of(in_order(seen))});
    }

    bool time() {
        last_ = std::numeric_limits<std::int64_t>::max();
        first_ = 0;  // what was before may have been something else
        for (const auto& [rank, lanes] : ranks_)
            for (const Lane& lane : lanes) {
                if (lane.per_lap == 0) continue;
                first_ = std::max(first_, lane.first_lap + (lane.first_in_lap != 0));
                last_ = std::min(last_, lane.lap_at(lane.launches.size()) - 1);
            }
        if (last_ == std::numeric_limits<std::int64_t>::max() || last_ < first_) return false;
        const bool several = last_ > first_;
        first_ = std::max(first_, last_ - kTimed + 1);
        for (Use& use : lap_.uses) use.before.clear(), use.until.clear(), use.ns = 0, use.at_ns = std::numeric_limits<TimeNs>::max();
        before_.assign(lap_.uses.size(), {});
        ready_.assign(lap_.uses.size(), 0);
        go_.assign(lap_.uses.size(), 0);
        times_.assign(lap_.uses.size(), {});
        // From begin to begin; of a lap whose lap before was something else, until it is over.
        begin_ns_ = std::numeric_limits<TimeNs>::max();
        TimeNs before = begin_ns_, end = 0;
        for (const auto& [rank, lanes] : ranks_)
            for (const Lane& lane : lanes) {
                if (lane.per_lap == 0) continue;
                begin_ns_ = std::min(begin_ns_, lane.at(last_, 0)->go_ns);
                end = std::max(end, lane.at(last_, static_cast<std::int64_t>(lane.per_lap) - 1)->done_ns);
                if (several) before = std::min(before, lane.at(last_ - 1, 0)->go_ns);
            }
        lap_.ns = several ? begin_ns_ - before : end - begin_ns_;
        for (const auto& [rank, lanes] : ranks_)
            for (const Lane& lane : lanes)
                for (std::size_t i = 0; i < lane.per_lap; ++i) learn_length(lane, i);
        note_lengths();
        for (const auto& [rank, lanes] : ranks_)
            for (const Lane& lane : lanes)
                for (std::size_t i = 0; i < lane.per_lap; ++i) learn_links(rank, lanes, lane, i);
        lap_.held_ns = held_ns();
        for (std::uint32_t u = 0; u < lap_.uses.size(); ++u) {
            if (lap_.uses[u].at_ns == std::numeric_limits<TimeNs>::max()) lap_.uses[u].at_ns = 0;
            for (const auto& [from, ns] : before_[u]) lap_.uses[u].before.push_back({from.first, from.second, ns});
        }
        return true;
    }

private:
    // Launches of a rank that begin with keys of one sequence: they end in their order.
    struct Lane {
        Key sequence;
        Launches launches;
        std::size_t per_lap = 0;  // 0: they are in no lap
        std::int64_t first_lap = 0;      // of the first of them
        std::size_t first_in_lap = 0;

        std::int64_t lap_at(std::size_t i) const {
            return first_lap + static_cast<std::int64_t>((first_in_lap + i) / per_lap);
        }
        std::int64_t index(std::int64_t lap, std::int64_t place) const {
            return (lap - first_lap) * static_cast<std::int64_t>(per_lap) + place - static_cast<std::int64_t>(first_in_lap);
        }
        bool has(std::int64_t lap, std::int64_t place) const {
            const std::int64_t i = index(lap, place);
            return i >= 0 && i < static_cast<std::int64_t>(launches.size());
        }
        const Seen* at(std::int64_t lap, std::int64_t place) const { return launches[static_cast<std::size_t>(index(lap, place))]; }
    };

    std::vector<Lane> lanes_of(const Launches& launches) const {
        std::map<Key, Lane> lanes;
        for (const Seen* s : launches)
            if (!s->keys.empty())
                if (const auto x = lap_.find(first_key(*s)); x && x->second >= -1)
                    lanes[sequence_of(first_key(*s))].launches.push_back(s);
        std::vector<Lane> all;
        for (auto& [sequence, lane] : lanes) {
            lane.sequence = sequence;
            place(lane);
            all.push_back(std::move(lane));
        }
        return all;
    }

    // Each launch of a lap names some keys of it; as many in each lap.
    void place(Lane& lane) const {
        std::map<std::int64_t, std::size_t> counts;
        for (const Seen* s : lane.launches) {
            const auto x = lap_.find(first_key(*s));
            if (!x) return;
            ++counts[x->second];
        }
        std::size_t most = 0;
        for (const auto& [lap, count] : counts) most = std::max(most, count);
        lane.first_lap = counts.begin()->first;
        lane.first_in_lap = most - counts.begin()->second;
        lane.per_lap = most;
        for (const auto& [lap, count] : counts)
            if (count != most && lap != counts.begin()->first && lap != counts.rbegin()->first) lane.per_lap = 0;
    }

    // Of its keys the one with which it began.
    const Key& first_key(const Seen& seen) const {
        const Key* first = &seen.keys.front().key;
        std::tuple least{std::numeric_limits<std::int64_t>::max(), ~std::uint64_t{0}, ~std::uint32_t{0}};
        for (const SeenKey& k : seen.keys)
            if (const auto x = lap_.find(k.key))
                if (const std::tuple at{x->second, lap_.uses[x->first].grant, x->first}; at < least) first = &k.key, least = at;
        return *first;
    }

    // With which it is over, and in which lap.
    std::pair<std::uint32_t, std::int64_t> last_use(const Seen& seen) const {
        std::tuple<std::int64_t, std::uint64_t, std::uint32_t> last{std::numeric_limits<std::int64_t>::min(), 0, 0};
        for (const SeenKey& k : seen.keys)
            if (const auto x = lap_.find(k.key)) last = std::max(last, {x->second, lap_.uses[x->first].grant, x->first});
        return {std::get<2>(last), std::get<0>(last)};
    }

    // Of a launch of several uses: none begins before the one with which it begins, and all hold their light until the last is over.
    void tie_uses(const Seen& launch) {
        const auto first = *lap_.find(first_key(launch)), last = last_use(launch);
        for (const SeenKey& k : launch.keys) {
            const auto x = lap_.find(k.key);
            if (!x) continue;
            if (*x != first) before_[x->first].try_emplace({first.first, static_cast<std::uint32_t>(x->second - first.second)}, 0);
            if (*x == last) continue;
            const Until until{last.first, static_cast<std::uint32_t>(last.second - x->second)};
            auto& all = lap_.uses[x->first].until;
            if (std::ranges::find(all, until) == all.end()) all.push_back(until);
        }
    }

    // How long the use takes with which the launch begins, and when it begins.
    void learn_length(const Lane& lane, std::size_t place) {
        const auto at = static_cast<std::int64_t>(place);
        const Seen& latest = *lane.at(last_, at);
        const auto first = *lap_.find(first_key(latest));
        const std::uint32_t use = first.first;
        const bool goes_on = last_use(latest) != first;
        if (goes_on) tie_uses(latest);
        Use& u = lap_.uses[use];
        auto& laps = times_[use];
        laps.resize(static_cast<std::size_t>(last_ - first_ + 1));
        for (std::int64_t lap = first_; lap <= last_; ++lap) {
            Times& of_lap = laps[static_cast<std::size_t>(lap - first_)];
            of_lap.whole &= lane.has(lap, at);
            if (!of_lap.whole) continue;
            of_lap.go_ns = std::max(of_lap.go_ns, lane.at(lap, at)->go_ns);
            of_lap.first_ns = std::min(of_lap.first_ns, lane.at(lap, at)->ready_ns);
            of_lap.ready_ns = std::max(of_lap.ready_ns, lane.at(lap, at)->ready_ns);
            if (goes_on) continue;
            of_lap.done_ns = std::max(of_lap.done_ns, lane.at(lap, at)->done_ns);
            of_lap.bytes_ns = std::max(of_lap.bytes_ns, lane.at(lap, at)->bytes_ns);
            of_lap.circuits = std::min(of_lap.circuits, lane.at(lap, at)->circuits);
        }
        u.at_ns = std::min(u.at_ns, latest.go_ns - begin_ns_);
        ready_[use] = std::max(ready_[use], latest.ready_ns);
        go_[use] = std::max(go_[use], latest.go_ns);
    }

    // From the last of its members on: in a run others have gone before, and wait.
    void note_lengths() {
        for (std::size_t u = 0; u < times_.size(); ++u) {
            TimeNs least = std::numeric_limits<TimeNs>::max();
            TimeNs apart = 0;
            for (const Times& lap : times_[u]) {
                if (lap.whole && lap.done_ns > 0) least = std::min(least, std::max<TimeNs>(0, lap.done_ns - lap.go_ns));
                if (lap.whole) apart = std::max(apart, lap.ready_ns - lap.first_ns);
            }
            lap_.uses[u].apart_ns = apart;
            if (least != std::numeric_limits<TimeNs>::max()) lap_.uses[u].ns = least;
            note_circuits(u);
        }
    }

    // What was seen of fewer or more circuits earlier, stays.
    void note_circuits(std::size_t u) {
        Use& use = lap_.uses[u];
        std::vector<TimeNs> took;
        for (const Times& lap : times_[u]) {
            if (!lap.whole || lap.done_ns == 0 || lap.circuits == 0 || lap.circuits > kMostKnownCircuits) continue;
            took.resize(std::max<std::size_t>(took.size(), lap.circuits), std::numeric_limits<TimeNs>::max());
            took[lap.circuits - 1] = std::min(took[lap.circuits - 1], std::max<TimeNs>(1, lap.done_ns - lap.go_ns));
            use.bytes_ns = std::max(use.bytes_ns, lap.bytes_ns);
        }
        use.took_ns.resize(std::max(use.took_ns.size(), took.size()), 0);
        for (std::size_t n = 0; n < took.size(); ++n)
            if (took[n] != std::numeric_limits<TimeNs>::max()) use.took_ns[n] = took[n];
    }

    TimeNs held_ns() const {
        std::vector<std::pair<TimeNs, TimeNs>> held;
        for (std::size_t u = 0; u < ready_.size(); ++u) held.emplace_back(ready_[u], go_[u]);
        std::sort(held.begin(), held.end());
        TimeNs sum = 0, upto = 0;
        for (const auto& [ready, go] : held) {
            sum += std::max<TimeNs>(0, go - std::max(ready, upto));
            upto = std::max(upto, go);
        }
        return sum;
    }

    // What the launch waits for: of each lane the last launch that had always ended before. In each lap the gap from the last of
    // these ends until it was ready is its own; from earlier ends on it may have waited for others. So the longest such gap bounds all
    // its delays.
    void learn_links(const RankName& rank, const std::vector<Lane>& lanes, const Lane& lane, std::size_t place) {
        const auto at = static_cast<std::int64_t>(place);
        const std::uint32_t use = lap_.find(first_key(*lane.at(last_, at)))->first;
        constexpr TimeNs kNever = std::numeric_limits<TimeNs>::max();
        std::vector<TimeNs> gaps(static_cast<std::size_t>(last_ - first_ + 1), kNever);  // of each lap, the shortest; 0: not all are known
        std::vector<std::pair<const Seen*, TimeNs>> ended;                               // in the last lap; the shortest gap of all laps
        for (const Lane& other : lanes) {
            if (other.per_lap == 0) continue;
            const std::int64_t back = last_ended(other, lane, {rank, lane.sequence, place, other.sequence});
            TimeNs least = kNever;
            for (std::int64_t lap = first_; lap <= last_; ++lap) {
                TimeNs& of_lap = gaps[static_cast<std::size_t>(lap - first_)];
                if (!other.has(lap, back)) {
                    of_lap = 0;
                    continue;
                }
                const TimeNs gap = lane.at(lap, at)->ready_ns - other.at(lap, back)->done_ns;
                least = std::min(least, gap);
                of_lap = std::min(of_lap, gap);
            }
            if (other.has(last_, back)) ended.emplace_back(other.at(last_, back), least);
        }
        const TimeNs longest_gap = *std::max_element(gaps.begin(), gaps.end());
        for (const auto& [seen, least] : ended)
            for (const SeenKey& k : seen->keys) {
                const auto x = lap_.find(k.key);
                if (!x) continue;
                const std::int64_t laps = last_ - x->second;
                if (laps < 0 || (laps == 0 && x->first == use)) continue;
                const TimeNs ns = std::min(least, longest_gap) + lap_.uses[x->first].ns;
                TimeNs& most = before_[use].try_emplace({x->first, static_cast<std::uint32_t>(laps)}, ns).first->second;
                most = std::max(most, ns);
            }
    }

    // Of the other lane, in every lap seen.
    std::int64_t last_ended(const Lane& other, const Lane& lane, const LinkName& name) {
        std::int64_t& back = lap_.links.try_emplace(name, std::numeric_limits<std::int64_t>::max()).first->second;
        for (std::int64_t lap = first_; lap <= last_; ++lap) {
            const Seen& s = *lane.at(lap, static_cast<std::int64_t>(std::get<2>(name)));
            const auto after = std::partition_point(other.launches.begin(), other.launches.end(),
                                                    [&](const Seen* b) { return b->done_ns <= s.ready_ns; });
            back = std::min(back, static_cast<std::int64_t>(after - other.launches.begin()) - 1 - other.index(lap, 0));
        }
        return back;
    }

    Lap& lap_;
    std::vector<std::pair<RankName, std::vector<Lane>>> ranks_;
    std::int64_t first_ = 0, last_ = 0;  // laps
    std::vector<std::map<std::pair<std::uint32_t, std::uint32_t>, TimeNs>> before_;
    struct Times {  // of a use in a lap: the last of its members
        TimeNs go_ns = 0, done_ns = 0, ready_ns = 0, bytes_ns = 0;
        std::uint32_t circuits = std::numeric_limits<std::uint32_t>::max();  // 0: not known
        TimeNs first_ns = std::numeric_limits<TimeNs>::max();  // ready, of its members
        bool whole = true;
    };
    std::vector<std::vector<Times>> times_;  // by use
    std::vector<TimeNs> ready_, go_;  // of each use in the last lap: its last member
    TimeNs begin_ns_ = 0;
};

}  // namespace

void Log::add(const RankName& rank, Seen seen) {
    auto& list = ranks_[rank];
    seen.signature = signature_of(seen.op, seen.keys);
    auto at = list.end();
    while (at != list.begin() && std::prev(at)->seq > seen.seq) --at;
    list.insert(at, std::move(seen));
    if (list.size() > kMostOfARank) list.pop_front();
    ++added_;
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

void Lap::advance(std::int64_t laps) {
    const auto n = static_cast<std::uint64_t>(laps);
    for (auto& [key, sequence] : sequences) sequence.first += n * sequence.uses.size();
    for (auto& [name, rank] : ranks) rank.seq += n * rank.seqs;
}

std::optional<std::pair<std::uint32_t, std::int64_t>> Lap::find(const Key& key) const {
    const auto at = sequences.find(sequence_of(key));
    if (at == sequences.end() || at->second.uses.empty()) return std::nullopt;
    const auto count = static_cast<std::int64_t>(at->second.uses.size());
    const std::int64_t n = static_cast<std::int64_t>(key.n) - static_cast<std::int64_t>(at->second.first);
    const std::int64_t lap = n >= 0 ? n / count : -((count - 1 - n) / count);
    return std::make_pair(at->second.uses[static_cast<std::size_t>(n - lap * count)], lap);
}

std::optional<Lap> find_lap(const Log& log, const PairsOf& pairs_of) { return Finder(log).find(pairs_of); }

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
    std::uint64_t h = mix(keys.size(), static_cast<std::uint64_t>(op));
    for (const SeenKey& k : keys) {
        h = mix(mix(h, k.key.comm.hi), k.key.comm.lo);
        h = mix(mix(mix(h, static_cast<std::uint64_t>(k.key.kind)), k.key.src), k.key.dst);
        h = mix(h, sequence_of(k.key).n);  // of what is captured
    }
    return h;
}

namespace {

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

bool time_lap(Lap& lap, const Log& log) { return Timer(lap, log).time(); }

}  // namespace opus::controller::plan
