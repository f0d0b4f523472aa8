// When the uses of a lap are ready, what they wait for, and how long they take: learned from the laps in the log.
#include <algorithm>
#include <limits>
#include <map>
#include <tuple>

#include "controller/plan/lap.h"

namespace opus::controller::plan {
namespace {

constexpr std::int64_t kTimed = 6;  // laps that are looked at
constexpr std::uint32_t kMostKnownCircuits = 64;  // of a pair

// What the laps in a log say of when the uses of a lap are ready.
class Timer {
public:
    Timer(Lap& lap, const Log& log) : lap_(lap), found_(lap), earliest_(std::min<std::int64_t>(0, lap.by_plan)) {
        for (const auto& [name, seen] : log.ranks()) ranks_.push_back({name, tracks_of(seen)});
    }

    bool time() {
        last_ = std::numeric_limits<std::int64_t>::max();
        first_ = earliest_;
        for (const auto& [rank, tracks] : ranks_)
            for (const Track& track : tracks) {
                if (track.per_lap == 0) continue;
                first_ = std::max(first_, track.first_lap + (track.first_in_lap != 0));
                last_ = std::min(last_, track.lap_at(track.launches.size()) - 1);
            }
        if (last_ == std::numeric_limits<std::int64_t>::max() || last_ < first_) return false;
        const bool several = last_ > first_;
        first_ = std::max(first_, last_ - kTimed + 1);
        for (Use& use : lap_.uses) use.before.clear(), use.until.clear(), use.ns = 0, use.at_ns = std::numeric_limits<TimeNs>::max();
        before_.assign(lap_.uses.size(), {});
        times_.assign(lap_.uses.size(), {});
        // From begin to begin; of a lap whose lap before was something else, until it is over.
        begin_ns_ = std::numeric_limits<TimeNs>::max();
        TimeNs before = begin_ns_, end = 0;
        for (const auto& [rank, tracks] : ranks_)
            for (const Track& track : tracks) {
                if (track.per_lap == 0) continue;
                begin_ns_ = std::min(begin_ns_, track.at(last_, 0)->go_ns);
                end = std::max(end, track.at(last_, static_cast<std::int64_t>(track.per_lap) - 1)->done_ns);
                if (several) before = std::min(before, track.at(last_ - 1, 0)->go_ns);
            }
        lap_.ns = several ? begin_ns_ - before : end - begin_ns_;
        for (const auto& [rank, tracks] : ranks_)
            for (const Track& track : tracks)
                for (std::size_t i = 0; i < track.per_lap; ++i) learn_length(track, i);
        note_lengths();
        for (const auto& [rank, tracks] : ranks_)
            for (const Track& track : tracks) {
                if (track.per_lap == 0) continue;
                auto& links = lap_.links[rank][track.sequence];
                links.resize(std::max(links.size(), track.per_lap));
                for (std::size_t i = 0; i < track.per_lap; ++i) learn_links(links[i], tracks, track, i);
            }
        for (std::uint32_t u = 0; u < lap_.uses.size(); ++u) {
            if (lap_.uses[u].at_ns == std::numeric_limits<TimeNs>::max()) lap_.uses[u].at_ns = 0;
            for (const auto& [from, ns] : before_[u]) lap_.uses[u].before.push_back({from.first, from.second, ns});
        }
        for (std::uint32_t u = 0; u < lap_.uses.size(); ++u) note_laps(u);
        return true;
    }

private:
    struct Times {  // of a use in a lap: the last of its members
        TimeNs go_ns = 0, done_ns = 0, ready_ns = 0, bytes_ns = 0;
        std::uint32_t circuits = std::numeric_limits<std::uint32_t>::max();  // 0: not known
        TimeNs first_ns = std::numeric_limits<TimeNs>::max();                // ready, of its members
        bool whole = true;
    };

    struct Launch {
        const Seen* seen = nullptr;
        std::uint32_t use = 0;  // with which it begins
        std::int64_t lap = 0;   // of that

        bool is_alone() const { return seen->keys.size() == 1; }
    };

    // Launches of a rank that begin with keys of one sequence: they end in their order.
    struct Track {
        Key sequence;
        std::vector<Launch> launches;
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
        const Launch& launch(std::int64_t lap, std::int64_t place) const {
            return launches[static_cast<std::size_t>(index(lap, place))];
        }
        const Seen* at(std::int64_t lap, std::int64_t place) const { return launch(lap, place).seen; }
    };

    std::vector<Track> tracks_of(const std::deque<Seen>& seen) const {
        std::map<Key, Track> tracks;
        for (const Seen& s : seen)
            if (const auto [key, use, lap] = first_use(s); key != nullptr && lap >= earliest_ - 1)
                tracks[sequence_of(*key)].launches.push_back({&s, use, lap});
        std::vector<Track> all;
        for (auto& [sequence, track] : tracks) {
            track.sequence = sequence;
            place(track);
            all.push_back(std::move(track));
        }
        return all;
    }

    // Each launch of a lap names some keys of it; as many in each lap.
    static void place(Track& track) {
        std::map<std::int64_t, std::size_t> counts;
        for (const Launch& launch : track.launches) ++counts[launch.lap];
        std::size_t most = 0;
        for (const auto& [lap, count] : counts) most = std::max(most, count);
        track.first_lap = counts.begin()->first;
        track.first_in_lap = most - counts.begin()->second;
        track.per_lap = most;
        for (const auto& [lap, count] : counts)
            if (count != most && lap != counts.begin()->first && lap != counts.rbegin()->first) track.per_lap = 0;
    }

    // Of its keys the one with which it began, its use, and in which lap; nullptr: it has none of the lap's.
    std::tuple<const Key*, std::uint32_t, std::int64_t> first_use(const Seen& seen) const {
        const Key* first = nullptr;
        std::tuple least{std::numeric_limits<std::int64_t>::max(), ~std::uint64_t{0}, ~std::uint32_t{0}};
        for (const SeenKey& k : seen.keys)
            if (const auto x = found_.find(k.key))
                if (const std::tuple at{x->second, lap_.uses[x->first].grant, x->first}; at < least) first = &k.key, least = at;
        return {first, std::get<2>(least), std::get<0>(least)};
    }

    // With which it is over, and in which lap.
    std::pair<std::uint32_t, std::int64_t> last_use(const Seen& seen) const {
        std::tuple<std::int64_t, std::uint64_t, std::uint32_t> last{std::numeric_limits<std::int64_t>::min(), 0, 0};
        for (const SeenKey& k : seen.keys)
            if (const auto x = found_.find(k.key))
                last = std::max(last, {x->second, lap_.uses[x->first].grant, x->first});
        return {std::get<2>(last), std::get<0>(last)};
    }

    // Of a launch of several uses: none begins before the one with which it begins, and with the last it is to have the light of all.
    void tie_uses(const Launch& launch, const std::pair<std::uint32_t, std::int64_t>& last) {
        const std::pair first{launch.use, launch.lap};
        for (const SeenKey& k : launch.seen->keys) {
            const auto x = found_.find(k.key);
            if (!x) continue;
            if (*x != first) before_[x->first].try_emplace({first.first, static_cast<std::uint32_t>(x->second - first.second)}, 0);
            if (*x == last) continue;
            const Until until{last.first, static_cast<std::uint32_t>(last.second - x->second)};
            auto& all = lap_.uses[x->first].until;
            if (std::ranges::find(all, until) == all.end()) all.push_back(until);
        }
    }

    // How long the use takes with which the launch begins, and when it begins.
    void learn_length(const Track& track, std::size_t place) {
        const auto at = static_cast<std::int64_t>(place);
        const Launch& latest = track.launch(last_, at);
        const std::uint32_t use = latest.use;
        const auto last = latest.is_alone() ? std::pair(use, latest.lap) : last_use(*latest.seen);
        const bool goes_on = last != std::pair(use, latest.lap);
        if (goes_on) tie_uses(latest, last);
        Use& u = lap_.uses[use];
        auto& laps = times_[use];
        laps.resize(static_cast<std::size_t>(last_ - first_ + 1));
        for (std::int64_t lap = first_; lap <= last_; ++lap) {
            Times& of_lap = laps[static_cast<std::size_t>(lap - first_)];
            of_lap.whole &= track.has(lap, at);
            if (!of_lap.whole) continue;
            of_lap.go_ns = std::max(of_lap.go_ns, track.at(lap, at)->go_ns);
            of_lap.first_ns = std::min(of_lap.first_ns, track.at(lap, at)->ready_ns);
            of_lap.ready_ns = std::max(of_lap.ready_ns, track.at(lap, at)->ready_ns);
            if (goes_on) continue;
            of_lap.done_ns = std::max(of_lap.done_ns, track.at(lap, at)->done_ns);
            of_lap.bytes_ns = std::max(of_lap.bytes_ns, track.at(lap, at)->bytes_ns);
            of_lap.circuits = std::min(of_lap.circuits, track.at(lap, at)->circuits);
        }
        u.at_ns = std::min(u.at_ns, latest.seen->go_ns - begin_ns_);
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

    // Its delays and its length are the least that were seen: what each lap had beyond them. Of the first lap it is not
    // known what it waited for in the one before.
    void note_laps(std::uint32_t u) {
        Use& use = lap_.uses[u];
        use.in_laps.clear();
        for (std::int64_t lap = last_; lap > first_ || lap == last_; --lap) {
            Use::InLap& in_lap = use.in_laps.emplace_back();
            const Times* times = times_of(u, lap);
            if (times == nullptr) continue;
            in_lap.longer_ns = std::max<TimeNs>(0, longer_in(*times, use) - longer_by_circuits(*times, use));
            TimeNs ready_ns = 0;  // by those that it waits for
            const bool known = std::ranges::all_of(use.before, [&](const Before& b) {
                const Times* before = times_of(b.use, lap - b.laps);
                if (before == nullptr) return false;
                ready_ns = std::max(ready_ns, before->go_ns + b.ns + longer_in(*before, lap_.uses[b.use]));
                return true;
            });
            if (known && !use.before.empty()) in_lap.late_ns = std::max<TimeNs>(0, times->ready_ns - ready_ns);
        }
    }

    // Than `ns`, by its circuits or otherwise.
    static TimeNs longer_in(const Times& times, const Use& use) {
        return times.done_ns == 0 ? 0 : std::max<TimeNs>(0, times.done_ns - times.go_ns - use.ns);
    }
    static TimeNs longer_by_circuits(const Times& times, const Use& use) {
        return times.circuits > 0 && times.circuits <= kMostKnownCircuits ? use.longer_ns(times.circuits) : 0;
    }

    const Times* times_of(std::uint32_t use, std::int64_t lap) const {
        if (lap < first_ || times_[use].empty()) return nullptr;
        const Times& times = times_[use][static_cast<std::size_t>(lap - first_)];
        return times.whole ? &times : nullptr;
    }

    // What the launch waits for: of each track the last launch that had always ended before. In each lap the gap from
    // the last of these ends until it was ready is its own; from earlier ends on it may have waited for others. So the
    // longest such gap bounds all its delays: of laps in which all of these ends are known, where there are any. Of
    // another lap it is known only that its gap is no longer than that from the last known end; the shortest of these
    // bounds them until there is a lap that is wholly known.
    void learn_links(std::map<Key, std::int64_t>& links, const std::vector<Track>& tracks, const Track& track,
                     std::size_t place) {
        const auto at = static_cast<std::int64_t>(place);
        const std::uint32_t use = track.launch(last_, at).use;
        constexpr TimeNs kNever = std::numeric_limits<TimeNs>::max();
        struct Gap {  // of a lap, the shortest
            TimeNs ns = kNever;
            bool is_sure = true;
        };
        std::vector<Gap> gaps(static_cast<std::size_t>(last_ - first_ + 1));
        std::vector<std::pair<const Launch*, TimeNs>> ended;  // in the last lap; the shortest gap of all laps
        for (const Track& other : tracks) {
            if (other.per_lap == 0) continue;
            std::int64_t& back = links.try_emplace(other.sequence, std::numeric_limits<std::int64_t>::max()).first->second;
            back = std::min(back, last_ended(other, track, at));
            TimeNs least = kNever;
            for (std::int64_t lap = first_; lap <= last_; ++lap) {
                Gap& of_lap = gaps[static_cast<std::size_t>(lap - first_)];
                if (!other.has(lap, back)) {
                    of_lap.is_sure = false;
                    continue;
                }
                const TimeNs gap = track.at(lap, at)->ready_ns - other.at(lap, back)->done_ns;
                least = std::min(least, gap);
                of_lap.ns = std::min(of_lap.ns, gap);
            }
            if (other.has(last_, back)) ended.emplace_back(&other.launch(last_, back), least);
        }
        TimeNs longest_gap = -1, no_longer = kNever;
        for (const Gap& gap : gaps) {
            if (gap.is_sure) longest_gap = std::max(longest_gap, gap.ns);
            no_longer = std::min(no_longer, gap.ns);
        }
        if (longest_gap < 0) longest_gap = no_longer;
        for (const auto& [launch, least] : ended)
            for (const SeenKey& k : launch->seen->keys) {
                const auto x =
                    launch->is_alone() ? std::make_optional(std::pair(launch->use, launch->lap)) : found_.find(k.key);
                if (!x) continue;
                const std::int64_t laps = last_ - x->second;
                if (laps < 0 || (laps == 0 && x->first == use)) continue;
                const TimeNs ns = std::min(least, longest_gap) + lap_.uses[x->first].ns;
                TimeNs& most = before_[use].try_emplace({x->first, static_cast<std::uint32_t>(laps)}, ns).first->second;
                most = std::max(most, ns);
            }
    }

    // For what its program makes later a launch does not wait, nor for itself, be it as short as it may.
    static bool may_wait(const Seen& s, const Seen& other) {
        if (other.done_ns > s.ready_ns) return false;
        return other.seq < s.seq || (!s.in_order && other.done_ns < s.ready_ns);
    }

    // Of the other track, in every lap seen.
    std::int64_t last_ended(const Track& other, const Track& track, std::int64_t place) const {
        std::int64_t back = std::numeric_limits<std::int64_t>::max();
        for (std::int64_t lap = first_; lap <= last_; ++lap) {
            const Seen& s = *track.at(lap, place);
            const auto after =
                std::ranges::partition_point(other.launches, [&](const Launch& b) { return may_wait(s, *b.seen); });
            back = std::min(back, static_cast<std::int64_t>(after - other.launches.begin()) - 1 - other.index(lap, 0));
        }
        return back;
    }

    Lap& lap_;
    Found found_;
    std::int64_t earliest_;  // lap; what was before may have been something else, or on demand
    std::vector<std::pair<RankName, std::vector<Track>>> ranks_;
    std::int64_t first_ = 0, last_ = 0;  // laps
    std::vector<std::map<std::pair<std::uint32_t, std::uint32_t>, TimeNs>> before_;
    std::vector<std::vector<Times>> times_;  // by use
    TimeNs begin_ns_ = 0;
};

}  // namespace

bool time_lap(Lap& lap, const Log& log) { return Timer(lap, log).time(); }

}  // namespace opus::controller::plan
