#include "tools/replay/rehearsal.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <map>
#include <queue>
#include <tuple>

#include "tools/replay/pattern.h"

namespace opus::replay {
namespace {

struct Launch {
    std::uint32_t rank = 0;
    std::vector<std::uint32_t> streams, comms;
    RehearsedLaunch seen;
    bool held = false, arrived = false, open = false, begun = false;
    std::uint32_t waits_for = 0;  // meetings that are not complete
};

struct Item {
    StepKind kind = StepKind::compute;
    std::int64_t ns = 0;
    bool running = false;
    std::uint32_t event = 0;
    std::uint64_t version = 0;  // of the event
    Launch* launch = nullptr;
};

struct RankState {
    const std::vector<Step>* steps = nullptr;
    std::size_t at = 0;
    std::uint32_t iteration = 0;
    bool asleep = false, finished = false;  // the host thread
    std::uint32_t awaited = kNobody;        // stream it waits for
    bool awaits = false, in_group = false;
    Launch* open = nullptr;         // the group being collected
    std::vector<Launch*> launches;  // by seq
    std::vector<std::deque<Item>> streams;
    std::vector<std::deque<Launch*>> comms;        // launches of each communicator, in order
    std::vector<std::uint64_t> recorded, reached;  // versions of each event
};

struct Meeting {
    std::uint32_t there = 0, open = 0, wanted = 0;
    std::int64_t full_ns = 0;
    const Step* step = nullptr;
    std::vector<Launch*> launches;
};

class Stage {
public:
    Stage(const Workload& w, const RehearsalOptions& o) : w_(w), o_(o), times_(w, o) {
        iterations_ = o.iterations ? o.iterations : w.iterations;
        result_.steps.resize(w.roles.size());
        result_.ranks.resize(w.world());
        result_.iterations.resize(w.world());
        ranks_.resize(w.world());
        for (std::size_t r = 0; r < w.roles.size(); ++r) {
            result_.steps[r] = unrolled(w.roles[r].steps);
            for (std::uint32_t rank : w.roles[r].ranks) {
                RankState& s = ranks_[rank];
                s.steps = &result_.steps[r];
                s.streams.resize(w.streams.size());
                s.comms.resize(w.comms.size());
                s.recorded.resize(w.events.size());
                s.reached.resize(w.events.size());
            }
        }
    }

    Rehearsal run() {
        for (std::uint32_t r = 0; r < ranks_.size(); ++r) advance(r);
        while (!over() && (!queue_.empty() || gated_before(kNever))) {
            if (gated_before(queue_.empty() ? kNever : queue_.top().ns)) {
                open_gates();
                continue;
            }
            const Moment m = queue_.top();
            queue_.pop();
            now_ = m.ns;
            happen(m);
        }
        result_.ended = over();
        return std::move(result_);
    }

private:
    struct Moment {
        std::int64_t ns = 0;  // whole, so that equal iterations are equal to the last tie
        std::uint64_t order = 0;
        std::uint32_t rank = 0, stream = kNobody;  // kNobody: the host, or a launch
        Launch* launch = nullptr;
        bool operator<(const Moment& o) const { return std::tie(ns, order) > std::tie(o.ns, o.order); }
    };

    static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

    bool over() const { return finished_ == ranks_.size(); }
    bool gated_before(std::int64_t ns) const { return o_.gates != nullptr && o_.gates->next_ns() < ns; }

    void open_gates() {
        now_ = std::max(now_, o_.gates->next_ns());
        std::vector<Gates::Name> open;
        o_.gates->advance(now_, open);
        for (const Gates::Name& name : open) pass(*ranks_[name.rank].launches[name.seq]);
    }

    void at(std::int64_t ns, std::uint32_t rank, std::uint32_t stream, Launch* launch) {
        queue_.push({ns, order_++, rank, stream, launch});
    }

    void happen(const Moment& m) {
        RankState& s = ranks_[m.rank];
        if (m.launch != nullptr) {
            end(*m.launch);
        } else if (m.stream != kNobody) {
            s.streams[m.stream].pop_front();
        } else {
            s.asleep = false;
        }
        advance(m.rank);
    }

    void advance(std::uint32_t rank) {
        RankState& s = ranks_[rank];
        bool moved = true;
        while (moved) {
            moved = host(rank, s);
            for (std::uint32_t i = 0; i < s.streams.size(); ++i)
                while (!s.streams[i].empty() && reach(rank, s, i)) moved = true;
        }
    }

    // The item at the head of a stream; true when it is over.
    bool reach(std::uint32_t rank, RankState& s, std::uint32_t stream) {
        Item& item = s.streams[stream].front();
        switch (item.kind) {
            case StepKind::record:
                s.reached[item.event] = item.version;
                s.streams[stream].pop_front();
                return true;
            case StepKind::wait:
                if (s.reached[item.event] < item.version) return false;
                s.streams[stream].pop_front();
                return true;
            case StepKind::compute:
                if (!item.running) at(now_ + item.ns, rank, stream, nullptr);
                item.running = true;
                return false;
            default: arrive(s, *item.launch); return false;
        }
    }

    bool host(std::uint32_t rank, RankState& s) {
        bool moved = false;
        while (!s.asleep && !s.finished) {
            if (s.awaits) {
                for (std::uint32_t i = 0; i < s.streams.size(); ++i)
                    if ((s.awaited == kNobody || s.awaited == i) && !s.streams[i].empty()) return moved;
                s.awaits = false;
            }
            moved = true;
            if (s.at == s.steps->size()) {
                result_.iterations[rank].push_back(now_);
                s.finished = ++s.iteration == iterations_;
                finished_ += s.finished;
                s.at = 0;
                continue;
            }
            const Step& step = (*s.steps)[s.at++];
            if (is_played(step, s.iteration)) enqueue(rank, s, step);
            if (s.at == s.steps->size()) s.awaits = true, s.awaited = kNobody;
        }
        return moved;
    }

    void enqueue(std::uint32_t rank, RankState& s, const Step& step) {
        const std::int64_t ns = gap_ns(w_, o_, step, rank, s.iteration, s.at);
        switch (step.kind) {
            case StepKind::compute: return s.streams[step.stream].push_back({step.kind, ns, false, 0, 0, nullptr});
            case StepKind::host: s.asleep = true; return at(now_ + ns, rank, kNobody, nullptr);
            case StepKind::record:
                return s.streams[step.stream].push_back({step.kind, 0, false, step.event, ++s.recorded[step.event], nullptr});
            case StepKind::wait:
                return s.streams[step.stream].push_back({step.kind, 0, false, step.event, s.recorded[step.event], nullptr});
            case StepKind::sync: s.awaits = true, s.awaited = step.stream; return;
            case StepKind::create:
            case StepKind::destroy: return;  // takes no time here
            case StepKind::group_begin: s.in_group = true; return;
            case StepKind::group_end: s.in_group = false; return close(s);
            default:
                add(rank, s, step);
                if (!s.in_group) close(s);
        }
    }

    void add(std::uint32_t rank, RankState& s, const Step& step) {
        if (s.open == nullptr) {
            s.open = &launches_.emplace_back();
            s.open->rank = rank;
            s.open->seen.iteration = s.iteration;
            s.open->seen.seq = s.launches.size();
            s.launches.push_back(s.open);
        }
        Launch& l = *s.open;
        l.seen.operations.push_back(&step);
        l.seen.lengths.push_back(length_of(w_, step, s.iteration));
        const auto once = [](std::vector<std::uint32_t>& list, std::uint32_t v) {
            if (std::find(list.begin(), list.end(), v) == list.end()) list.push_back(v);
        };
        once(l.streams, step.stream);
        once(l.comms, step.comm);
        meet(rank, step, l);
    }

    void meet(std::uint32_t rank, const Step& step, Launch& l) {
        const Comm& comm = w_.comms[step.comm];
        const Membership m = membership(comm, rank);
        const auto& group = comm.groups[m.group];
        const bool p2p = step.kind == StepKind::send || step.kind == StepKind::recv;
        Key key{step.comm, m.group, kNobody, kNobody, 0};
        if (p2p) {
            const std::uint32_t peer = group[step.peer];
            std::get<2>(key) = step.kind == StepKind::send ? rank : peer;
            std::get<3>(key) = step.kind == StepKind::send ? peer : rank;
        }
        // Both sides of a transfer count for themselves, as members do.
        auto counter = std::make_tuple(key, rank, step.kind == StepKind::send);
        std::get<4>(key) = counts_[counter]++;
        Meeting& meeting = meetings_[key];
        meeting.wanted = p2p ? 2 : static_cast<std::uint32_t>(group.size());
        meeting.step = &step;
        meeting.launches.push_back(&l);
        ++l.waits_for;
        keys_[&l].push_back(key);
    }

    void close(RankState& s) {
        if (s.open == nullptr) return;
        for (std::uint32_t i : s.open->streams) s.streams[i].push_back({StepKind::send, 0, false, 0, 0, s.open});
        for (std::uint32_t c : s.open->comms) s.comms[c].push_back(s.open);
        s.open->held = o_.gates != nullptr && o_.gates->recorded({s.open->rank, s.open->seen.seq}, s.open->seen, now_);
        s.open = nullptr;
    }

    void arrive(RankState& s, Launch& l) {
        if (l.arrived) return;
        for (std::uint32_t i : l.streams)
            if (s.streams[i].front().launch != &l) return;
        for (std::uint32_t c : l.comms)
            if (s.comms[c].front() != &l) return;
        l.arrived = true;
        l.seen.ready_ns = now_;
        for (const Key& key : keys_[&l]) {
            Meeting& meeting = meetings_.at(key);
            if (++meeting.there == meeting.wanted) meeting.full_ns = now_;
        }
        l.held ? o_.gates->reached({l.rank, l.seen.seq}, now_) : pass(l);
    }

    void pass(Launch& l) {
        if (!l.arrived || l.open) return;
        l.open = true;
        for (const Key& key : keys_[&l]) {
            const auto found = meetings_.find(key);
            Meeting& meeting = found->second;
            if (++meeting.open < meeting.wanted) continue;
            if (meeting.full_ns < now_) {
                const Launch& first = *meeting.launches.front();
                result_.held.push_back({first.rank, first.seen.iteration, meeting.step, meeting.full_ns, now_});
            }
            for (Launch* other : meeting.launches) join(*other);
            meetings_.erase(found);
        }
        keys_.erase(&l);
    }

    void join(Launch& l) {
        if (!l.begun) {
            l.begun = true;
            l.seen.begin_ns = now_;
            begun_[&l] = result_.ranks[l.rank].size();
            result_.ranks[l.rank].push_back(l.seen);
        }
        if (--l.waits_for == 0) at(now_ + length_ns(l), l.rank, kNobody, &l);
    }

    std::int64_t length_ns(const Launch& l) const {
        const double share = l.held ? o_.gates->share({l.rank, l.seen.seq}) : 1;
        std::int64_t ns = 0;
        for (std::size_t i = 0; i < l.seen.operations.size(); ++i)
            ns = std::max(ns, times_.ns(*l.seen.operations[i], l.rank, l.seen.lengths[i], share));
        return ns;
    }

    void end(Launch& l) {
        RankState& s = ranks_[l.rank];
        const auto index = begun_.find(&l);
        result_.ranks[l.rank][index->second].end_ns = now_;
        begun_.erase(index);
        for (std::uint32_t i : l.streams) s.streams[i].pop_front();
        for (std::uint32_t c : l.comms) s.comms[c].pop_front();
        if (l.held) o_.gates->ended({l.rank, l.seen.seq}, now_);
    }

    using Key = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t, std::uint64_t>;

    const Workload& w_;
    const RehearsalOptions& o_;
    OperationTimes times_;
    std::uint32_t iterations_ = 0;
    std::size_t finished_ = 0;  // ranks
    std::int64_t now_ = 0;
    std::uint64_t order_ = 0;
    std::priority_queue<Moment> queue_;
    std::vector<RankState> ranks_;
    std::deque<Launch> launches_;
    std::map<std::tuple<Key, std::uint32_t, bool>, std::uint64_t> counts_;
    std::map<Key, Meeting> meetings_;
    std::map<const Launch*, std::vector<Key>> keys_;  // of launches that have not arrived
    std::map<const Launch*, std::size_t> begun_;      // index in the result, of launches under way
    Rehearsal result_;
};

}  // namespace

std::vector<std::int64_t> Rehearsal::ends() const {
    std::vector<std::int64_t> ends(iterations.empty() ? 0 : iterations.front().size());
    for (const auto& of_rank : iterations)
        for (std::size_t i = 0; i < ends.size(); ++i) ends[i] = std::max(ends[i], of_rank[i]);
    return ends;
}

Rehearsal rehearse(const Workload& workload, const RehearsalOptions& options) { return Stage(workload, options).run(); }

std::int64_t gap_ns(const Workload& workload, const RehearsalOptions& options, const Step& step, std::uint32_t rank,
                    std::uint32_t iteration, std::size_t at) {
    const double us = static_cast<double>(step.us) * length_of(workload, step, iteration);
    const std::uint64_t draw = mix(mix(options.seed, rank), (std::uint64_t{iteration} << 32) | at);
    const double more = options.uneven * static_cast<double>(mix(options.seed, iteration) % 1000) / 1000;
    return static_cast<std::int64_t>(us * 1e3 * (1 + options.jitter * static_cast<double>(draw % 1000) / 1000) * (1 + more));
}

}  // namespace opus::replay
