#include "tools/replay/dry_run.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <unordered_map>

#include "tools/replay/pattern.h"
#include "tools/virtual_time/calendar.h"

namespace opus::replay {
namespace {

struct Launch {
    std::uint32_t rank = 0;
    std::vector<std::uint32_t> streams, comms;
    std::vector<std::uint32_t> meetings;  // until it is let pass
    DryRunLaunch seen;                    // until it begins; then it is in the result
    std::size_t begun = kNotBegun;        // there, of those of its rank
    bool held = false, arrived = false, open = false;
    std::uint32_t waits_for = 0;  // meetings that are not complete

    static constexpr std::size_t kNotBegun = ~std::size_t{0};
};

struct Item {
    StepKind kind = StepKind::compute;
    bool running = false;
    std::uint32_t event = 0;
    union {
        std::int64_t ns;        // of what computes
        std::uint64_t version;  // of the event
        Launch* launch;
    };

    static Item compute(std::int64_t ns) { return {StepKind::compute, false, 0, {.ns = ns}}; }
    static Item of_event(StepKind kind, std::uint32_t event, std::uint64_t version) {
        return {kind, false, event, {.version = version}};
    }
    static Item of(Launch* launch) {
        return {StepKind::send, false, 0, {.launch = launch}};
    }  // whatever its operations are
    bool is(const Launch& l) const { return kind == StepKind::send && launch == &l; }
};

// First in, first out. Its memory is kept: each iteration of a rank comes to an end of it.
class Stream {
public:
    bool empty() const { return head_ == items_.size(); }
    Item& front() { return items_[head_]; }
    void push(const Item& item) { items_.push_back(item); }
    void pop() {
        if (++head_ == items_.size()) items_.clear(), head_ = 0;
    }

private:
    std::vector<Item> items_;
    std::size_t head_ = 0;
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
    std::vector<Stream> streams;
    std::vector<std::deque<Launch*>> comms;        // launches of each communicator, in order
    std::vector<std::uint64_t> recorded, reached;  // versions of each event
};

struct Key {  // of a meeting
    std::uint32_t comm = 0, group = 0, from = 0, to = 0;
    std::uint64_t n = 0;
    bool operator==(const Key&) const = default;
};

struct Side {  // who comes to meetings
    Key key;   // the first one's
    std::uint32_t rank = 0;
    bool sends = false;
    bool operator==(const Side&) const = default;
};

struct Hash {
    std::size_t operator()(const Key& k) const {
        return mix(mix(std::uint64_t{k.comm} << 32 | k.group, std::uint64_t{k.from} << 32 | k.to), k.n);
    }
    std::size_t operator()(const Side& s) const { return mix((*this)(s.key), std::uint64_t{s.rank} << 1 | s.sends); }
};

struct Meeting {
    Key key;
    std::uint32_t there = 0, open = 0, wanted = 0;
    std::int64_t full_ns = 0;
    const Step* step = nullptr;
    std::vector<Launch*> launches;
};

class Stage {
public:
    Stage(const Workload& w, const DryRunOptions& o) : w_(w), o_(o), times_(w, o), members_(w) {
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

    DryRun run() {
        for (std::uint32_t r = 0; r < ranks_.size(); ++r) advance(r);
        while (!over() && (!calendar_.empty() || gated_before(kNever))) {
            if (gated_before(calendar_.empty() ? kNever : calendar_.next_ns())) {
                open_gates();
                continue;
            }
            const auto next = calendar_.take();
            now_ = next.at_ns;
            happen(next.what);
        }
        result_.ended = over();
        return std::move(result_);
    }

private:
    struct Moment {
        std::uint32_t rank = 0, stream = kNobody;  // kNobody: the host, or a launch
        Launch* launch = nullptr;
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
        calendar_.add(ns, {rank, stream, launch});
    }

    void happen(const Moment& m) {
        RankState& s = ranks_[m.rank];
        if (m.launch != nullptr) {
            end(*m.launch);
        } else if (m.stream != kNobody) {
            s.streams[m.stream].pop();
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
                s.streams[stream].pop();
                return true;
            case StepKind::wait:
                if (s.reached[item.event] < item.version) return false;
                s.streams[stream].pop();
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
        const auto ns = [&] { return gap_ns(w_, o_, step, rank, s.iteration, s.at); };
        switch (step.kind) {
            case StepKind::compute: return s.streams[step.stream].push(Item::compute(ns()));
            case StepKind::host: s.asleep = true; return at(now_ + ns(), rank, kNobody, nullptr);
            case StepKind::record:
                return s.streams[step.stream].push(Item::of_event(step.kind, step.event, ++s.recorded[step.event]));
            case StepKind::wait:
                return s.streams[step.stream].push(Item::of_event(step.kind, step.event, s.recorded[step.event]));
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
        const Membership m = members_.of(step.comm, rank);
        const auto& group = comm.groups[m.group];
        const bool p2p = step.kind == StepKind::send || step.kind == StepKind::recv;
        Key key{step.comm, m.group, kNobody, kNobody, 0};
        if (p2p) {
            const std::uint32_t peer = group[step.peer];
            key.from = step.kind == StepKind::send ? rank : peer;
            key.to = step.kind == StepKind::send ? peer : rank;
        }
        // Both sides of a transfer count for themselves, as members do.
        key.n = counts_[{key, rank, step.kind == StepKind::send}]++;
        const auto [at, fresh] = open_meetings_.try_emplace(key, 0);
        if (fresh) at->second = new_meeting(key);
        Meeting& meeting = meetings_[at->second];
        meeting.wanted = p2p ? 2 : static_cast<std::uint32_t>(group.size());
        meeting.step = &step;
        meeting.launches.push_back(&l);
        ++l.waits_for;
        l.meetings.push_back(at->second);
    }

    std::uint32_t new_meeting(const Key& key) {
        std::uint32_t m = static_cast<std::uint32_t>(meetings_.size());
        if (free_meetings_.empty())
            meetings_.emplace_back();
        else
            m = free_meetings_.back(), free_meetings_.pop_back();
        meetings_[m].key = key;
        return m;
    }

    // All have met.
    void end_meeting(std::uint32_t m) {
        Meeting& meeting = meetings_[m];
        open_meetings_.erase(meeting.key);
        meeting.there = meeting.open = 0;
        meeting.launches.clear();
        free_meetings_.push_back(m);
    }

    void close(RankState& s) {
        if (s.open == nullptr) return;
        for (std::uint32_t i : s.open->streams) s.streams[i].push(Item::of(s.open));
        for (std::uint32_t c : s.open->comms) s.comms[c].push_back(s.open);
        s.open->held = o_.gates != nullptr && o_.gates->recorded({s.open->rank, s.open->seen.seq}, s.open->seen, now_);
        s.open = nullptr;
    }

    void arrive(RankState& s, Launch& l) {
        if (l.arrived) return;
        for (std::uint32_t i : l.streams)
            if (!s.streams[i].front().is(l)) return;
        for (std::uint32_t c : l.comms)
            if (s.comms[c].front() != &l) return;
        l.arrived = true;
        l.seen.ready_ns = now_;
        for (const std::uint32_t m : l.meetings) {
            Meeting& meeting = meetings_[m];
            if (++meeting.there == meeting.wanted) meeting.full_ns = now_;
        }
        l.held ? o_.gates->reached({l.rank, l.seen.seq}, now_) : pass(l);
    }

    void pass(Launch& l) {
        if (!l.arrived || l.open) return;
        l.open = true;
        for (const std::uint32_t m : l.meetings) {
            Meeting& meeting = meetings_[m];
            if (++meeting.open < meeting.wanted) continue;
            if (meeting.full_ns < now_) {
                Launch& first = *meeting.launches.front();
                result_.held.push_back({first.rank, seen(first).iteration, meeting.step, meeting.full_ns, now_});
            }
            for (Launch* other : meeting.launches) join(*other);
            end_meeting(m);
        }
        l.meetings = {};
    }

    DryRunLaunch& seen(Launch& l) { return l.begun == Launch::kNotBegun ? l.seen : result_.ranks[l.rank][l.begun]; }

    void join(Launch& l) {
        if (l.begun == Launch::kNotBegun) {
            l.seen.begin_ns = now_;
            l.begun = result_.ranks[l.rank].size();
            result_.ranks[l.rank].push_back(std::move(l.seen));
        }
        if (--l.waits_for == 0) at(now_ + length_ns(l), l.rank, kNobody, &l);
    }

    std::int64_t length_ns(Launch& l) {
        const DryRunLaunch& is = seen(l);
        const double share = l.held ? o_.gates->share({l.rank, is.seq}) : 1;
        std::int64_t ns = 0;
        for (std::size_t i = 0; i < is.operations.size(); ++i)
            ns = std::max(ns, times_.ns(*is.operations[i], l.rank, is.lengths[i], share));
        return ns;
    }

    void end(Launch& l) {
        RankState& s = ranks_[l.rank];
        seen(l).end_ns = now_;
        for (std::uint32_t i : l.streams) s.streams[i].pop();
        for (std::uint32_t c : l.comms) s.comms[c].pop_front();
        if (l.held) o_.gates->ended({l.rank, seen(l).seq}, now_);
    }

    const Workload& w_;
    const DryRunOptions& o_;
    OperationTimes times_;
    const Memberships members_;
    std::uint32_t iterations_ = 0;
    std::size_t finished_ = 0;  // ranks
    std::int64_t now_ = 0;      // whole, so that equal iterations are equal to the last tie
    virtual_time::Calendar<Moment> calendar_;
    std::vector<RankState> ranks_;
    std::deque<Launch> launches_;
    std::unordered_map<Side, std::uint64_t, Hash> counts_;  // of the operations of a communicator, or of a pair in it
    std::vector<Meeting> meetings_;
    std::vector<std::uint32_t> free_meetings_;
    std::unordered_map<Key, std::uint32_t, Hash> open_meetings_;
    DryRun result_;
};

}  // namespace

std::vector<std::int64_t> DryRun::ends() const {
    std::vector<std::int64_t> ends(iterations.empty() ? 0 : iterations.front().size());
    for (const auto& of_rank : iterations)
        for (std::size_t i = 0; i < ends.size(); ++i) ends[i] = std::max(ends[i], of_rank[i]);
    return ends;
}

DryRun dry_run(const Workload& workload, const DryRunOptions& options) { return Stage(workload, options).run(); }

std::int64_t gap_ns(const Workload& workload, const DryRunOptions& options, const Step& step, std::uint32_t rank,
                    std::uint32_t iteration, std::size_t at) {
    const double us = static_cast<double>(step.us) * length_of(workload, step, iteration);
    const std::uint64_t draw = mix(mix(options.seed, rank), (std::uint64_t{iteration} << 32) | at);
    const double more = options.uneven * static_cast<double>(mix(options.seed, iteration) % 1000) / 1000 +
                        (iteration >= options.slower_from ? options.slower : 0);
    return static_cast<std::int64_t>(us * 1e3 * (1 + options.jitter * static_cast<double>(draw % 1000) / 1000) * (1 + more));
}

}  // namespace opus::replay
