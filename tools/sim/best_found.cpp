#include "tools/sim/best_found.h"

#include <algorithm>
#include <future>
#include <numeric>

namespace opus::sim {
namespace {

struct Score {
    std::int64_t time_ns = 0, held_ns = 0;
    bool operator<(const Score& o) const { return time_ns != o.time_ns ? time_ns < o.time_ns : held_ns < o.held_ns; }
};

class Search {
public:
    Search(const TaskGraph& graph, std::int64_t dark_ns, const SearchOptions& options)
        : graph_(graph), options_(options), schedule_(graph, dark_ns) {
        const auto iterations = static_cast<std::uint32_t>(graph.ends().size());
        typical_ = iterations - 1 - (iterations > options.learned + 1 ? 1 : 0);
        find_ancestors();
    }

    // Ranks of uses in the order in which a run began them.
    std::vector<double> ranks_of(const replay::DryRun& run) const {
        std::vector<double> rank(graph_.numbers(), 0);
        std::vector<std::vector<std::int64_t>> begun(run.ranks.size());
        for (std::size_t r = 0; r < run.ranks.size(); ++r)
            for (const replay::DryRunLaunch& l : run.ranks[r]) {
                if (begun[r].size() <= l.seq) begun[r].resize(l.seq + 1, 0);
                begun[r][l.seq] = l.begin_ns;
            }
        for (const TaskGraph::Use& use : graph_.uses()) {
            if (use.iteration > typical_) continue;
            const auto& of_rank = begun[use.member.rank];
            if (use.member.seq < of_rank.size()) rank[use.number] = static_cast<double>(of_rank[use.member.seq]);
        }
        return rank;
    }

    // Uses that have the longest way to go come first.
    std::vector<double> critical() const {
        std::vector<std::int64_t> tail(graph_.moments().size(), 0);
        const auto order = graph_.in_order();
        for (std::size_t i = order.size(); i-- > 0;)
            for (const TaskGraph::Edge& edge : graph_.edges(order[i]))
                tail[order[i]] = std::max(tail[order[i]], edge.ns + tail[edge.to]);
        std::vector<double> rank(graph_.numbers(), 0);
        for (const TaskGraph::Use& use : graph_.uses())
            if (use.iteration <= typical_) rank[use.number] = -static_cast<double>(tail[use.moment]);
        return rank;
    }

    void begin_with(std::vector<double> rank) {
        const Score score = play(rank);
        if (best_.empty() || score < score_) best_ = rank, score_ = score;
        climb(std::move(rank), score);
    }

    void shake() {
        for (std::uint32_t round = 0; trials_ < options_.trials; ++round) {
            std::vector<double> rank = best_;
            play(rank);
            rank = as_played();
            for (int i = 0; i < 3 && !rank.empty(); ++i) {
                const std::size_t u = draw() % rank.size();
                rank[u] += static_cast<double>(draw() % 41) - 20.5;
            }
            const Score score = play(rank);
            climb(std::move(rank), score);
        }
    }

    const std::vector<double>& best() const { return best_; }

private:
    Score play(const std::vector<double>& rank) {
        ++trials_;
        schedule_.play(rank);
        const auto iterations = static_cast<std::uint32_t>(graph_.ends().size());
        const std::uint32_t learned = std::min(options_.learned, iterations - 1);
        return {schedule_.end_of(iterations - 1) - (learned == 0 ? 0 : schedule_.end_of(learned - 1)),
                schedule_.held_ns(learned)};
    }

    // Whole numbers, as the typical iteration was played.
    std::vector<double> as_played() const {
        std::vector<double> rank(graph_.numbers(), 0);
        double n = 0;
        for (const std::uint32_t u : schedule_.order())
            if (graph_.uses()[u].iteration <= typical_) rank[graph_.uses()[u].number] = ++n;
        return rank;
    }

    // What waited for a use of its ports goes before it, and what it waits for itself.
    std::vector<double> moved_before(const std::vector<double>& rank, std::uint32_t use, std::uint32_t blocker) const {
        std::vector<double> moved = rank;
        const TaskGraph::Use &u = graph_.uses()[use], &w = graph_.uses()[blocker];
        const double at = rank[w.number], to = rank[u.number];
        if (at >= to) return {};
        for (const std::uint32_t x : in_iteration_) {
            const std::uint32_t n = graph_.uses()[x].number;
            if (rank[n] < at || rank[n] > to) continue;
            if (n == u.number || is_before(n, u.number)) {
                if (n == w.number || is_before(w.number, n)) return {};  // it cannot
                moved[n] = at - 1 + (rank[n] - at + 0.5) / (to - at + 1);
            }
        }
        return moved;
    }

    void climb(std::vector<double> rank, Score score) {
        while (trials_ < options_.trials) {
            play(rank);
            rank = as_played();
            struct Wait {
                std::uint32_t use, blocker;
                std::int64_t ns;
            };
            std::vector<Wait> waits;
            for (const std::uint32_t u : in_iteration_) {
                const SerialSchedule::Begun& b = schedule_.uses()[u];
                if (b.blocker == SerialSchedule::kNoUse || b.begin_ns == b.full_ns) continue;
                if (graph_.uses()[b.blocker].iteration == typical_)
                    waits.push_back({u, b.blocker, b.begin_ns - b.full_ns});
            }
            std::stable_sort(waits.begin(), waits.end(), [](const Wait& x, const Wait& y) { return x.ns > y.ns; });
            bool better = false;
            for (const Wait& wait : waits) {
                if (trials_ >= options_.trials) break;
                std::vector<double> moved = moved_before(rank, wait.use, wait.blocker);
                if (moved.empty()) continue;
                const Score s = play(moved);
                if (!(s < score)) continue;
                score = s;
                rank = std::move(moved);
                better = true;
                break;
            }
            if (score < score_) best_ = rank, score_ = score;
            if (!better) return;
        }
    }

    // In the typical iteration, by number of use.
    void find_ancestors() {
        const auto& uses = graph_.uses();
        for (std::uint32_t u = 0; u < uses.size(); ++u)
            if (uses[u].iteration == typical_) in_iteration_.push_back(u);
        const std::size_t words = (graph_.numbers() + 63) / 64;
        before_.assign(graph_.numbers(), {});
        std::vector<std::vector<std::uint64_t>> of_moment(graph_.moments().size());
        for (const std::uint32_t m : graph_.in_order()) {
            auto mine = std::move(of_moment[m]);
            const std::uint32_t u = graph_.moments()[m].use;
            if (u != TaskGraph::kNoUse && uses[u].iteration == typical_) {
                mine.resize(words, 0);
                before_[uses[u].number] = mine;
                mine[uses[u].number / 64] |= std::uint64_t{1} << uses[u].number % 64;
            }
            if (mine.empty()) continue;
            for (const TaskGraph::Edge& edge : graph_.edges(m)) {
                auto& theirs = of_moment[edge.to];
                theirs.resize(words, 0);
                for (std::size_t i = 0; i < words; ++i) theirs[i] |= mine[i];
            }
        }
    }

    bool is_before(std::uint32_t number, std::uint32_t other) const {
        const auto& all = before_[other];
        return !all.empty() && (all[number / 64] >> number % 64 & 1) != 0;
    }

    std::uint64_t draw() {
        state_ ^= state_ << 13, state_ ^= state_ >> 7, state_ ^= state_ << 17;
        return state_;
    }

    const TaskGraph& graph_;
    SearchOptions options_;
    SerialSchedule schedule_;
    std::uint32_t typical_ = 0, trials_ = 0;
    std::vector<std::uint32_t> in_iteration_;
    std::vector<std::vector<std::uint64_t>> before_;  // by number: what a use waits for, a bit each
    std::vector<double> best_;
    Score score_;
    std::uint64_t state_ = 88172645463325252ull;
};

// What the schedule holds back, by name.
void name_held(const TaskGraph& graph, std::uint32_t learned, FoundSchedule& found) {
    for (std::size_t u = 0; u < found.uses.size(); ++u) {
        const TaskGraph::Use& use = graph.uses()[u];
        const SerialSchedule::Begun& b = found.uses[u];
        if (use.iteration < learned || b.begin_ns == b.full_ns) continue;
        found.held.push_back({use.member.rank, use.iteration, nullptr, b.full_ns, b.begin_ns});
        found.names.push_back(use.step->name);
    }
}

FoundSchedule best_found_with(TaskGraph::Circuits circuits, const JobMap& map, std::uint32_t ports, std::int64_t dark_ns,
                              const replay::DryRunOptions& dry_run_options, const std::vector<const replay::DryRun*>& orders,
                              const LaterOrder& last, const SearchOptions& options) {
    const std::uint32_t iterations = dry_run_options.iterations != 0 ? dry_run_options.iterations : map.workload().iterations;
    replay::DryRunOptions some = dry_run_options;
    some.iterations = std::min(iterations, std::max(options.horizon, options.learned + 1));
    replay::DryRunOptions all = dry_run_options;
    all.iterations = iterations;
    const TaskGraph whole(map, ports, all, circuits), little(map, ports, some, circuits);
    Search search(little, dark_ns, options);
    search.begin_with(search.critical());
    for (const replay::DryRun* run : orders) search.begin_with(search.ranks_of(*run));
    if (last) search.begin_with(search.ranks_of(*last()));
    search.shake();

    SerialSchedule schedule(whole, dark_ns);
    schedule.play(search.best());
    FoundSchedule found;
    const std::uint32_t learned = std::min(options.learned, iterations - 1);
    const double counted = iterations - learned;
    const std::int64_t begin = learned == 0 ? 0 : schedule.end_of(learned - 1);
    found.iteration_ms = static_cast<double>(schedule.end_of(iterations - 1) - begin) / 1e6 / counted;
    found.held_ms = static_cast<double>(schedule.held_ns(learned)) / 1e6 / counted;
    found.uses = schedule.uses();
    name_held(whole, learned, found);
    return found;
}

}  // namespace

FoundSchedule best_found(const JobMap& map, std::uint32_t ports, std::int64_t dark_ns,
                         const replay::DryRunOptions& dry_run_options, const std::vector<const replay::DryRun*>& orders,
                         const LaterOrder& last, const SearchOptions& options) {
    const auto with = [&](TaskGraph::Circuits circuits) {
        return best_found_with(circuits, map, ports, dark_ns, dry_run_options, orders, last, options);
    };
    if (!options.sparing) return with(TaskGraph::Circuits::all);
    const auto how = options.both_cores ? std::launch::async : std::launch::deferred;
    std::future<FoundSchedule> beside = std::async(how, with, TaskGraph::Circuits::one);
    FoundSchedule all = with(TaskGraph::Circuits::all), one = beside.get();
    return one.iteration_ms < all.iteration_ms ? one : all;
}

}  // namespace opus::sim
