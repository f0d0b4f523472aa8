// A lower bound. Two uses of a GPU of which neither leaves light for the other are apart by the dark time, whichever is
// first; where the job itself says which, that is one more arc of the graph. Where it does not, a time is tried: an order that
// cannot be kept within it is none, so the other one is an arc; when neither can be kept, no schedule is that short.
#include <algorithm>
#include <map>

#include "tools/sim/best_found.h"

namespace opus::sim {
namespace {

constexpr std::int64_t kApart = -1;

class Between {
public:
    Between(const TaskGraph& graph, std::int64_t dark_ns) : graph_(graph), dark_ns_(dark_ns), order_(graph.in_order()) {
        if (!choose_ends()) return;
        collect();
        measure();
        reach();
        conflicts();
    }

    std::int64_t least(std::int64_t at_most) {
        if (uses_.size() < 2) return 0;
        std::int64_t low = longest(arcs_), high = std::max(low, at_most);
        if (!possible(high)) return high;
        while (high - low > std::max<std::int64_t>(100'000, dark_ns_ / 50)) {
            const std::int64_t middle = low + (high - low) / 2;
            (possible(middle) ? high : low) = middle;
        }
        return low;
    }

private:
    struct Arc {
        std::uint32_t from = 0, to = 0;
        std::int64_t ns = 0;  // from beginning to beginning
    };
    struct Choice {
        std::uint32_t a = 0, b = 0;
    };

    // The same use in the second and the third iteration: the last of those that need most circuits.
    bool choose_ends() {
        std::uint32_t best = TaskGraph::kNoUse;
        for (const std::uint32_t t : order_) {
            const std::uint32_t u = graph_.moments()[t].use;
            if (u == TaskGraph::kNoUse || graph_.uses()[u].iteration != 1) continue;
            if (best == TaskGraph::kNoUse || graph_.uses()[u].needs.size() >= graph_.uses()[best].needs.size())
                best = u;
        }
        if (best == TaskGraph::kNoUse) return false;
        first_ = graph_.uses()[best].moment;
        for (const TaskGraph::Use& use : graph_.uses())
            if (use.iteration == 2 && use.number == graph_.uses()[best].number) last_ = use.moment;
        return last_ != 0;
    }

    // What follows the one and goes before the other.
    void collect() {
        const std::size_t n = graph_.moments().size();
        std::vector<bool> after(n, false), before(n, false);
        after[first_] = before[last_] = true;
        for (const std::uint32_t t : order_)
            if (after[t])
                for (const TaskGraph::Edge& edge : graph_.edges(t)) after[edge.to] = true;
        for (std::size_t i = n; i-- > 0;)
            for (const TaskGraph::Edge& edge : graph_.edges(order_[i]))
                if (before[edge.to]) before[order_[i]] = true;
        place_.assign(n, kNone);
        for (const std::uint32_t t : order_) {
            if (!after[t] || !before[t]) continue;
            place_[t] = static_cast<std::uint32_t>(moments_.size());
            moments_.push_back(t);
            if (graph_.moments()[t].use == TaskGraph::kNoUse) continue;
            use_at_.push_back(place_[t]);
            uses_.push_back(graph_.moments()[t].use);
        }
    }

    // Longest ways from use to use that lead by no other.
    void measure() {
        std::vector<std::uint32_t> use_of(moments_.size(), kNone);
        for (std::uint32_t u = 0; u < uses_.size(); ++u) use_of[use_at_[u]] = u;
        std::vector<std::int64_t> way;
        for (std::uint32_t u = 0; u < uses_.size(); ++u) {
            way.assign(moments_.size(), kApart);
            way[use_at_[u]] = 0;
            for (std::size_t i = use_at_[u]; i < moments_.size(); ++i) {
                if (way[i] == kApart) continue;
                if (use_of[i] != kNone && use_of[i] != u) {
                    arcs_.push_back({u, use_of[i], way[i]});
                    continue;
                }
                for (const TaskGraph::Edge& edge : graph_.edges(moments_[i]))
                    if (const std::uint32_t p = place_[edge.to]; p != kNone)
                        way[p] = std::max(way[p], way[i] + edge.ns);
            }
        }
    }

    void reach() {
        reach_.assign(uses_.size(), std::vector<bool>(uses_.size(), false));
        std::vector<std::vector<std::uint32_t>> next(uses_.size());
        for (const Arc& a : arcs_) next[a.from].push_back(a.to);
        for (std::size_t u = uses_.size(); u-- > 0;)
            for (const std::uint32_t v : next[u]) {
                reach_[u][v] = true;
                for (std::size_t x = v + 1; x < uses_.size(); ++x)
                    if (reach_[v][x]) reach_[u][x] = true;
            }
    }

    // When the first of them is over all ports of a GPU lead to its pairs, or turn that way, and none where the
    // second must go.
    bool conflict(std::uint32_t a, std::uint32_t b) const {
        std::map<GpuId, std::uint32_t> taken;
        std::map<GpuPair, bool> had;
        for (const TaskGraph::Need& n : graph_.uses()[uses_[a]].needs) {
            taken[n.pair.first] += n.circuits, taken[n.pair.second] += n.circuits;
            had[n.pair] = true;
        }
        const auto& needs = graph_.uses()[uses_[b]].needs;
        return std::any_of(needs.begin(), needs.end(), [&](const TaskGraph::Need& n) {
            if (had.contains(n.pair)) return false;
            return taken[n.pair.first] == graph_.ports() || taken[n.pair.second] == graph_.ports();
        });
    }

    void conflicts() {
        std::map<std::pair<std::vector<std::uint32_t>, std::vector<std::uint32_t>>, bool> known;
        const auto shape = [this](std::uint32_t u) {
            std::vector<std::uint32_t> s;
            for (const TaskGraph::Need& n : graph_.uses()[uses_[u]].needs)
                s.insert(s.end(), {n.pair.first, n.pair.second, n.circuits});
            return s;
        };
        std::vector<std::vector<std::uint32_t>> shapes;
        for (std::uint32_t u = 0; u < uses_.size(); ++u) shapes.push_back(shape(u));
        const auto conflicts = [&](std::uint32_t a, std::uint32_t b) {
            const auto [at, fresh] = known.try_emplace({shapes[a], shapes[b]}, false);
            if (fresh) at->second = conflict(a, b);
            return at->second;
        };
        for (std::uint32_t a = 0; a < uses_.size(); ++a)
            for (std::uint32_t b = a + 1; b < uses_.size(); ++b) {
                const bool ab = conflicts(a, b);
                if (reach_[a][b]) {
                    if (ab) arcs_.push_back({a, b, apart(a)});
                } else if (ab && conflicts(b, a)) {
                    choices_.push_back({a, b});
                }
            }
    }

    std::int64_t apart(std::uint32_t u) const { return graph_.uses()[uses_[u]].ns + dark_ns_; }

    // Ways to each use and from each; false: an order that goes round.
    bool ways(const std::vector<Arc>& arcs, std::vector<std::int64_t>& head, std::vector<std::int64_t>& tail) const {
        std::vector<std::vector<std::uint32_t>> next(uses_.size());
        std::vector<std::uint32_t> waits(uses_.size(), 0), order;
        for (std::uint32_t i = 0; i < arcs.size(); ++i) {
            next[arcs[i].from].push_back(i);
            ++waits[arcs[i].to];
        }
        for (std::uint32_t u = 0; u < uses_.size(); ++u)
            if (waits[u] == 0) order.push_back(u);
        head.assign(uses_.size(), 0);
        tail.assign(uses_.size(), 0);
        for (std::size_t i = 0; i < order.size(); ++i)
            for (const std::uint32_t a : next[order[i]]) {
                head[arcs[a].to] = std::max(head[arcs[a].to], head[order[i]] + arcs[a].ns);
                if (--waits[arcs[a].to] == 0) order.push_back(arcs[a].to);
            }
        if (order.size() != uses_.size()) return false;
        for (std::size_t i = order.size(); i-- > 0;)
            for (const std::uint32_t a : next[order[i]])
                tail[order[i]] = std::max(tail[order[i]], arcs[a].ns + tail[arcs[a].to]);
        return true;
    }

    std::int64_t longest(const std::vector<Arc>& arcs) const {
        std::vector<std::int64_t> head, tail;
        ways(arcs, head, tail);
        return *std::max_element(head.begin(), head.end());
    }

    bool possible(std::int64_t at_most) const {
        std::vector<Arc> arcs = arcs_;
        std::vector<Choice> open = choices_;
        std::vector<std::int64_t> head, tail;
        while (true) {
            if (!ways(arcs, head, tail) || *std::max_element(head.begin(), head.end()) > at_most) return false;
            const std::size_t before = arcs.size();
            std::erase_if(open, [&](const Choice& c) {
                const bool ab = head[c.a] + apart(c.a) + tail[c.b] <= at_most;
                const bool ba = head[c.b] + apart(c.b) + tail[c.a] <= at_most;
                if (ab && ba) return false;
                if (!ba) arcs.push_back({c.a, c.b, apart(c.a)});
                if (!ab) arcs.push_back({c.b, c.a, apart(c.b)});
                return true;
            });
            if (arcs.size() == before) return true;
        }
    }

    static constexpr std::uint32_t kNone = 0xffffffffu;

    const TaskGraph& graph_;
    std::int64_t dark_ns_;
    std::uint32_t first_ = 0, last_ = 0;
    std::vector<std::uint32_t> order_;            // all moments, each after those before it
    std::vector<std::uint32_t> moments_, place_;  // between the two; where each moment of the graph is among them
    std::vector<std::uint32_t> uses_, use_at_;  // in that order
    std::vector<Arc> arcs_;
    std::vector<Choice> choices_;
    std::vector<std::vector<bool>> reach_;
};

}  // namespace

double least_iteration_ms(const JobMap& map, std::uint32_t ports, std::int64_t dark_ns,
                          const replay::DryRunOptions& dry_run_options, bool sparing, double at_most_ms) {
    replay::DryRunOptions some = dry_run_options;
    some.iterations = 4;
    const TaskGraph graph(map, ports, some, sparing ? TaskGraph::Circuits::least : TaskGraph::Circuits::all);
    Between between(graph, dark_ns);
    return static_cast<double>(between.least(static_cast<std::int64_t>(at_most_ms * 1e6))) / 1e6;
}

}  // namespace opus::sim
