#include "tools/sim/task_graph.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace opus::sim {

using replay::kNobody;
using replay::Step;
using replay::StepKind;

// Ranks one after the other, step by step. When a stream, an event or the host is through is written as terms: how long
// after which moments. So a computation costs nothing but a sum, and only launches are moments.
class TaskGraphBuilder {
public:
    TaskGraphBuilder(TaskGraph& graph, const JobMap& map, const replay::DryRunOptions& options, TaskGraph::Circuits circuits)
        : g_(graph),
          map_(map),
          w_(map.workload()),
          o_(options),
          times_(map.workload(), options),
          launch_pairs_(map, graph.ports_),
          circuits_(circuits) {
        iterations_ = o_.iterations != 0 ? o_.iterations : w_.iterations;
        g_.ends_.resize(iterations_);
        for (const replay::Role& role : w_.roles) g_.steps_.push_back(replay::unrolled(role.steps));
    }

    void build() {
        for (std::size_t r = 0; r < w_.roles.size(); ++r)
            for (const std::uint32_t rank : w_.roles[r].ranks) play(rank, g_.steps_[r]);
        for (auto& [key, meeting] : meetings_) make_use(meeting);
        number();
        condense();
    }

private:
    // A moment, and so long after it.
    struct Term {
        std::uint32_t moment = 0;
        std::int64_t ns = 0;
    };
    using Terms = std::vector<Term>;  // after all of them
    using Key = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t, std::uint64_t>;
    struct Launch {
        std::uint32_t arrival = 0, end = 0, iteration = 0;
        std::int64_t ns = 0;
        std::vector<const Step*> operations;
        std::vector<double> lengths;  // of each: the factor of its bytes
        std::vector<std::uint32_t> streams, comms;
        const LaunchPairs::Pairs* pairs = nullptr;
        replay::Gates::Name name;
    };
    struct Meeting {
        Key key;
        std::vector<std::size_t> launches;
    };
    struct Stream {
        Terms terms;
        std::uint64_t host = 0;  // the last change of the host that it comes after
    };
    struct RankState {
        std::uint32_t rank = 0, iteration = 0;
        Terms host;
        std::uint64_t host_changes = 1;
        bool in_group = false;
        std::size_t open = kNone;  // launch that is being collected
        std::uint64_t launches = 0;
        std::vector<Stream> streams;
        std::vector<Terms> comms, events;
    };
    struct Node {  // a moment while the graph is made
        Terms before;
        std::uint32_t use = TaskGraph::kNoUse;
        std::uint32_t arrival = kNobody;  // of the end of a launch: it comes as long after this one, at least
        std::int64_t ns = 0;
        bool stays = false;
    };
    static constexpr std::size_t kNone = ~std::size_t{0};
    static constexpr std::size_t kMostTerms = 8;

    std::uint32_t add(Terms before) {
        nodes_.push_back({std::move(before), TaskGraph::kNoUse, kNobody, 0, false});
        return static_cast<std::uint32_t>(nodes_.size() - 1);
    }

    // The one is later than the other, for certain, as far as is looked.
    bool is_after(const Term& later, const Term& term, int depth) const {
        if (later.moment == term.moment) return later.ns >= term.ns;
        if (depth == 0 || later.moment < term.moment) return false;
        const Node& n = nodes_[later.moment];
        const Terms& before = n.arrival != kNobody ? nodes_[n.arrival].before : n.before;
        return std::any_of(before.begin(), before.end(), [&](const Term& b) {
            return is_after({b.moment, b.ns + n.ns + later.ns}, term, depth - 1);
        });
    }

    void join(Terms& terms, const Terms& others) {
        constexpr int kLook = 2;
        for (const Term& other : others) {
            if (std::any_of(terms.begin(), terms.end(), [&](const Term& t) { return is_after(t, other, kLook); }))
                continue;
            std::erase_if(terms, [&](const Term& t) { return is_after(other, t, kLook); });
            terms.push_back(other);
        }
        if (terms.size() > kMostTerms) terms = {{add(terms), 0}};
    }

    void play(std::uint32_t rank, const std::vector<Step>& steps) {
        RankState s;
        s.rank = rank;
        s.streams.resize(w_.streams.size());
        s.comms.resize(w_.comms.size());
        s.events.resize(w_.events.size());
        s.host = {{add({}), 0}};
        for (; s.iteration < iterations_; ++s.iteration) {
            for (std::size_t at = 0; at < steps.size(); ++at)
                if (is_played(steps[at], s.iteration)) take(s, steps[at], at + 1);
            meet_streams(s, kNobody);
            const std::uint32_t end = add(s.host);
            nodes_[end].stays = true;
            s.host = {{end, 0}};
            g_.ends_[s.iteration].push_back(end);
        }
    }

    void take(RankState& s, const Step& step, std::size_t at) {
        const auto ns = [&] { return replay::gap_ns(w_, o_, step, s.rank, s.iteration, at); };
        switch (step.kind) {
            case StepKind::compute: push(s, step.stream, ns()); return;
            case StepKind::host:
                for (Term& t : s.host) t.ns += ns();
                ++s.host_changes;
                return;
            case StepKind::record: s.events[step.event] = push(s, step.stream, 0); return;
            case StepKind::wait:
                push(s, step.stream, 0);
                join(s.streams[step.stream].terms, s.events[step.event]);
                return;
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

    const Terms& push(RankState& s, std::uint32_t stream, std::int64_t ns) {
        Stream& at = s.streams[stream];
        if (std::exchange(at.host, s.host_changes) != s.host_changes) join(at.terms, s.host);
        for (Term& t : at.terms) t.ns += ns;
        return at.terms;
    }

    void meet_streams(RankState& s, std::uint32_t stream) {
        for (std::uint32_t i = 0; i < s.streams.size(); ++i)
            if (stream == kNobody || stream == i) join(s.host, s.streams[i].terms);
        ++s.host_changes;
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
        l.operations.push_back(&step);
        l.lengths.push_back(length_of(w_, step, s.iteration));
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
        l.pairs = &launch_pairs_.of(l.operations, s.rank);
        double share = l.pairs->served() ? 1 : map_.packet_share();
        if (circuits_ == TaskGraph::Circuits::one)
            for (const std::uint32_t most : l.pairs->most) share = std::min(share, 1.0 / most);
        for (std::size_t i = 0; i < l.operations.size(); ++i)
            l.ns = std::max(l.ns, times_.ns(*l.operations[i], s.rank, l.lengths[i], share));
        Terms before = s.host;
        for (const std::uint32_t i : l.streams) join(before, s.streams[i].terms);
        for (const std::uint32_t c : l.comms) join(before, s.comms[c]);
        l.arrival = add(std::move(before));
        l.end = add({});
        nodes_[l.end].arrival = l.arrival, nodes_[l.end].ns = l.ns;
        for (const std::uint32_t i : l.streams) s.streams[i] = {{{l.end, 0}}, s.host_changes};
        for (const std::uint32_t c : l.comms) s.comms[c] = {{l.end, 0}};
    }

    void make_use(Meeting& meeting) {
        const std::uint32_t begin = add({});
        TaskGraph::Use use;
        LaunchPairs::Pairs pairs = *launches_[meeting.launches.front()].pairs;
        bool merged = false;
        for (const std::size_t i : meeting.launches) {
            const Launch& l = launches_[i];
            nodes_[begin].before.push_back({l.arrival, 0});
            nodes_[l.end].before.push_back({begin, l.ns});
            use.ns = std::max(use.ns, l.ns);
            use.iteration = l.iteration;
            if (l.pairs == launches_[meeting.launches.front()].pairs) continue;
            for (const GpuPair& p : l.pairs->all)
                if (std::find(pairs.all.begin(), pairs.all.end(), p) == pairs.all.end())
                    pairs.all.push_back(p), merged = true;
        }
        if (pairs.all.empty()) return;
        if (merged) pairs.most = most_circuits(pairs.all, g_.ports_);
        use.moment = begin;
        use.member = launches_[meeting.launches.front()].name;
        use.step = launches_[meeting.launches.front()].operations.front();
        use.needs = layout(pairs);
        nodes_[begin].use = static_cast<std::uint32_t>(g_.uses_.size());
        nodes_[begin].stays = true;
        g_.uses_.push_back(std::move(use));
        keys_.push_back(meeting.key);
    }

    // What waits for one thing only, or is waited for by one only, is no moment of its own.
    void condense() {
        for (Node& n : nodes_)
            for (Term& t : n.before)
                while (!nodes_[t.moment].stays && nodes_[t.moment].before.size() == 1) {
                    const Term& one = nodes_[t.moment].before.front();
                    t = {one.moment, t.ns + one.ns};
                }
        std::vector<std::uint32_t> waiters(nodes_.size(), 0), place(nodes_.size(), kNobody);
        for (const Node& n : nodes_)
            if (n.stays || n.before.size() != 1)
                for (const Term& t : n.before) ++waiters[t.moment];
        std::vector<std::pair<std::uint32_t, Terms>> kept;
        for (std::uint32_t i = 0; i < nodes_.size(); ++i) {
            Node& n = nodes_[i];
            const bool begins = n.before.empty() && waiters[i] > 0;
            if (!n.stays && !begins && (n.before.size() == 1 || waiters[i] < 2)) continue;
            place[i] = static_cast<std::uint32_t>(kept.size());
            kept.emplace_back(i, Terms());
        }
        for (auto& [i, terms] : kept) {
            Terms open = nodes_[i].before;
            while (!open.empty()) {
                const Term t = open.back();
                open.pop_back();
                if (place[t.moment] != kNobody)
                    terms.push_back({place[t.moment], t.ns});
                else
                    for (const Term& b : nodes_[t.moment].before) open.push_back({b.moment, b.ns + t.ns});
            }
            std::sort(terms.begin(), terms.end(), [](const Term& x, const Term& y) {
                return x.moment != y.moment ? x.moment < y.moment : x.ns > y.ns;
            });
            const auto same = [](const Term& x, const Term& y) { return x.moment == y.moment; };
            terms.erase(std::unique(terms.begin(), terms.end(), same), terms.end());
        }
        write(kept);
        for (TaskGraph::Use& use : g_.uses_) use.moment = place[use.moment];
        for (auto& of_iteration : g_.ends_)
            for (std::uint32_t& end : of_iteration) end = place[end];
    }

    void write(const std::vector<std::pair<std::uint32_t, Terms>>& kept) {
        g_.moments_.resize(kept.size());
        for (const auto& [i, terms] : kept)
            for (const Term& t : terms) ++g_.moments_[t.moment].edges;
        std::uint32_t edges = 0;
        for (TaskGraph::Moment& m : g_.moments_) m.first_edge = std::exchange(edges, edges + m.edges), m.edges = 0;
        g_.edges_.resize(edges);
        for (std::uint32_t to = 0; to < kept.size(); ++to) {
            g_.moments_[to].use = nodes_[kept[to].first].use;
            g_.moments_[to].waits = static_cast<std::uint32_t>(kept[to].second.size());
            for (const Term& t : kept[to].second) {
                TaskGraph::Moment& from = g_.moments_[t.moment];
                g_.edges_[from.first_edge + from.edges++] = {to, t.ns};
            }
        }
    }

    // None where no layout serves it.
    std::vector<TaskGraph::Need> layout(const LaunchPairs::Pairs& pairs) const {
        std::vector<TaskGraph::Need> needs;
        for (std::size_t i = 0; i < pairs.most.size(); ++i)
            needs.push_back({pairs.all[i], circuits_ == TaskGraph::Circuits::all ? pairs.most[i] : 1});
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
    const replay::DryRunOptions& o_;
    replay::OperationTimes times_;
    LaunchPairs launch_pairs_;
    TaskGraph::Circuits circuits_;
    std::uint32_t iterations_ = 0;
    std::vector<Node> nodes_;
    std::vector<Launch> launches_;
    std::map<Key, Meeting> meetings_;
    std::map<std::tuple<Key, std::uint32_t, bool>, std::uint64_t> counts_;
    std::vector<Key> keys_;  // of the uses
};

TaskGraph::TaskGraph(const JobMap& map, std::uint32_t ports, const replay::DryRunOptions& options, Circuits circuits)
    : gpus_(static_cast<std::uint32_t>(map.fabric().gpus.size())), ports_(ports) {
    TaskGraphBuilder(*this, map, options, circuits).build();
}

std::vector<std::uint32_t> TaskGraph::in_order() const {
    std::vector<std::uint32_t> order, waits(moments_.size());
    for (std::uint32_t m = 0; m < waits.size(); ++m)
        if ((waits[m] = moments_[m].waits) == 0) order.push_back(m);
    for (std::size_t i = 0; i < order.size(); ++i)
        for (const Edge& edge : edges(order[i]))
            if (--waits[edge.to] == 0) order.push_back(edge.to);
    return order;
}

}  // namespace opus::sim
