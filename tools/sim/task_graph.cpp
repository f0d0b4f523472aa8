#include "tools/sim/task_graph.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace opus::sim {

using replay::kNobody;
using replay::Step;
using replay::StepKind;

class TaskGraphBuilder {
public:
    TaskGraphBuilder(TaskGraph& graph, const JobMap& map, const replay::RehearsalOptions& options,
                     TaskGraph::Circuits circuits)
        : g_(graph), map_(map), w_(map.workload()), o_(options), times_(map.workload(), options), circuits_(circuits) {
        iterations_ = o_.iterations != 0 ? o_.iterations : w_.iterations;
        g_.ends_.resize(iterations_);
        for (const replay::Role& role : w_.roles) steps_.push_back(replay::unrolled(role.steps));
    }

    void build() {
        for (std::size_t r = 0; r < w_.roles.size(); ++r)
            for (const std::uint32_t rank : w_.roles[r].ranks) play(rank, steps_[r]);
        for (auto& [key, meeting] : meetings_) make_use(meeting);
        number();
    }

private:
    using Key = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t, std::uint64_t>;
    struct Launch {
        std::uint32_t arrival = 0, end = 0, iteration = 0;
        std::int64_t ns = 0;
        std::vector<std::pair<const Step*, double>> operations;  // and the factor of its bytes
        std::vector<std::uint32_t> streams, comms;
        std::vector<GpuPair> pairs;
        replay::Gates::Name name;
    };
    struct Meeting {
        std::uint32_t task = 0;
        Key key;
        std::vector<std::size_t> launches;
    };
    struct RankState {
        std::uint32_t rank = 0, iteration = 0, host = 0;
        bool in_group = false;
        std::size_t open = kNone;  // launch that is being collected
        std::uint64_t launches = 0;
        std::vector<std::uint32_t> streams, comms, events;  // last task of each; kNobody: none
    };
    static constexpr std::size_t kNone = ~std::size_t{0};

    std::uint32_t add(std::int64_t ns) {
        g_.tasks_.push_back({ns, TaskGraph::kNoUse, 0, {}});
        return static_cast<std::uint32_t>(g_.tasks_.size() - 1);
    }
    void follow(std::uint32_t task, std::uint32_t before) {
        if (before == kNobody) return;
        g_.tasks_[before].next.push_back(task);
        ++g_.tasks_[task].waits;
    }

    void play(std::uint32_t rank, const std::vector<Step>& steps) {
        RankState s;
        s.rank = rank;
        s.streams.assign(w_.streams.size(), kNobody);
        s.comms.assign(w_.comms.size(), kNobody);
        s.events.assign(w_.events.size(), kNobody);
        s.host = add(0);
        for (; s.iteration < iterations_; ++s.iteration) {
            for (std::size_t at = 0; at < steps.size(); ++at)
                if (is_played(steps[at], s.iteration)) take(s, steps[at], at + 1);
            meet_streams(s, kNobody);
            g_.ends_[s.iteration].push_back(s.host);
        }
    }

    void take(RankState& s, const Step& step, std::size_t at) {
        const std::int64_t ns = replay::gap_ns(w_, o_, step, s.rank, s.iteration, at);
        switch (step.kind) {
            case StepKind::compute: push(s, step.stream, ns); return;
            case StepKind::host: {
                const std::uint32_t task = add(ns);
                follow(task, s.host);
                s.host = task;
                return;
            }
            case StepKind::record: s.events[step.event] = push(s, step.stream, 0); return;
            case StepKind::wait: follow(push(s, step.stream, 0), s.events[step.event]); return;
            case StepKind::sync: meet_streams(s, step.stream); return;
            case StepKind::create:
            case StepKind::destroy: return;  // takes no time here
            case StepKind::group_begin: s.in_group = true; return;
            case StepKind::group_end:
                s.in_group = false;
                close(s);
                return;
            default:
                launch(s, step);
                if (!s.in_group) close(s);
        }
    }

    std::uint32_t push(RankState& s, std::uint32_t stream, std::int64_t ns) {
        const std::uint32_t task = add(ns);
        follow(task, s.host);
        follow(task, s.streams[stream]);
        return s.streams[stream] = task;
    }

    void meet_streams(RankState& s, std::uint32_t stream) {
        const std::uint32_t task = add(0);
        follow(task, s.host);
        for (std::uint32_t i = 0; i < s.streams.size(); ++i)
            if (stream == kNobody || stream == i) follow(task, s.streams[i]);
        s.host = task;
    }

    void launch(RankState& s, const Step& step) {
        if (s.open == kNone) {
            s.open = launches_.size();
            launches_.emplace_back();
            launches_.back().iteration = s.iteration;
            launches_.back().name = {s.rank, s.launches++};
        }
        Launch& l = launches_[s.open];
        const auto once = [](std::vector<std::uint32_t>& list, std::uint32_t v) {
            if (std::find(list.begin(), list.end(), v) == list.end()) list.push_back(v);
        };
        once(l.streams, step.stream);
        once(l.comms, step.comm);
        l.operations.emplace_back(&step, length_of(w_, step, s.iteration));
        map_.add_pairs(step, s.rank, l.pairs);
        const replay::Membership m = membership(w_.comms[step.comm], s.rank);
        Key key{step.comm, m.group, kNobody, kNobody, 0};
        if (step.kind == StepKind::send || step.kind == StepKind::recv) {
            const std::uint32_t peer = w_.comms[step.comm].groups[m.group][step.peer];
            std::get<2>(key) = step.kind == StepKind::send ? s.rank : peer;
            std::get<3>(key) = step.kind == StepKind::send ? peer : s.rank;
        }
        // Both sides of a transfer count for themselves, as members do.
        const auto counter = std::make_tuple(key, s.rank, step.kind == StepKind::send);
        std::get<4>(key) = counts_[counter]++;
        Meeting& meeting = meetings_[key];
        meeting.key = key;
        meeting.launches.push_back(s.open);
    }

    void close(RankState& s) {
        if (s.open == kNone) return;
        Launch& l = launches_[s.open];
        s.open = kNone;
        double share = 1;
        if (circuits_ == TaskGraph::Circuits::one)
            for (const std::uint32_t most : most_circuits(l.pairs, g_.ports_)) share = std::min(share, 1.0 / most);
        for (const auto& [step, length] : l.operations)
            l.ns = std::max(l.ns, times_.ns(*step, s.rank, length, share));
        l.arrival = add(0);
        l.end = add(l.ns);
        follow(l.arrival, s.host);
        for (const std::uint32_t i : l.streams) {
            follow(l.arrival, s.streams[i]);
            s.streams[i] = l.end;
        }
        for (const std::uint32_t c : l.comms) {
            follow(l.arrival, s.comms[c]);
            s.comms[c] = l.end;
        }
    }

    void make_use(Meeting& meeting) {
        meeting.task = add(0);
        TaskGraph::Use use;
        std::vector<GpuPair> pairs;
        for (const std::size_t i : meeting.launches) {
            const Launch& l = launches_[i];
            follow(meeting.task, l.arrival);
            follow(l.end, meeting.task);
            use.ns = std::max(use.ns, l.ns);
            use.iteration = l.iteration;
            for (const GpuPair& p : l.pairs)
                if (std::find(pairs.begin(), pairs.end(), p) == pairs.end()) pairs.push_back(p);
        }
        if (pairs.empty()) return;
        use.task = meeting.task;
        use.member = launches_[meeting.launches.front()].name;
        use.needs = layout(pairs);
        g_.tasks_[meeting.task].use = static_cast<std::uint32_t>(g_.uses_.size());
        g_.uses_.push_back(std::move(use));
        keys_.push_back(meeting.key);
    }

    // None where no layout serves it.
    std::vector<TaskGraph::Need> layout(const std::vector<GpuPair>& pairs) const {
        std::vector<TaskGraph::Need> needs;
        const std::vector<std::uint32_t> most = most_circuits(pairs, g_.ports_);
        for (std::size_t i = 0; i < most.size(); ++i)
            needs.push_back({pairs[i], circuits_ == TaskGraph::Circuits::all ? most[i] : 1});
        return needs;
    }

    // Counted from the end of an iteration: the first has set-up before the rest.
    void number() {
        using Sequence = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t>;
        std::map<std::pair<Sequence, std::uint32_t>, std::uint64_t> last;
        const auto sequence = [](const Key& k) {
            return Sequence{std::get<0>(k), std::get<1>(k), std::get<2>(k), std::get<3>(k)};
        };
        for (std::size_t u = 0; u < g_.uses_.size(); ++u) {
            std::uint64_t& n = last[{sequence(keys_[u]), g_.uses_[u].iteration}];
            n = std::max(n, std::get<4>(keys_[u]));
        }
        std::map<std::pair<Sequence, std::uint64_t>, std::uint32_t> numbers;
        for (std::size_t u = 0; u < g_.uses_.size(); ++u) {
            const std::uint64_t back = last[{sequence(keys_[u]), g_.uses_[u].iteration}] - std::get<4>(keys_[u]);
            const auto [at, fresh] =
                numbers.try_emplace({sequence(keys_[u]), back}, static_cast<std::uint32_t>(numbers.size()));
            g_.uses_[u].number = at->second;
        }
        g_.numbers_ = static_cast<std::uint32_t>(numbers.size());
    }

    TaskGraph& g_;
    const JobMap& map_;
    const replay::Workload& w_;
    const replay::RehearsalOptions& o_;
    replay::OperationTimes times_;
    TaskGraph::Circuits circuits_;
    std::uint32_t iterations_ = 0;
    std::vector<std::vector<Step>> steps_;
    std::vector<Launch> launches_;
    std::map<Key, Meeting> meetings_;
    std::map<std::tuple<Key, std::uint32_t, bool>, std::uint64_t> counts_;
    std::vector<Key> keys_;  // of the uses
};

TaskGraph::TaskGraph(const JobMap& map, std::uint32_t ports, const replay::RehearsalOptions& options, Circuits circuits)
    : gpus_(static_cast<std::uint32_t>(map.fabric().gpus.size())), ports_(ports) {
    TaskGraphBuilder(*this, map, options, circuits).build();
}

}  // namespace opus::sim
