#include "tools/opus-sim/static_split.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>

#include "tools/sim/job_map.h"

namespace opus::job {
namespace {

using sim::GpuPair;

// A communicator's neighbours; those with the same ones are one.
struct Neighbours {
    std::string names;
    std::vector<GpuPair> pairs;
    std::uint32_t circuits = 1;  // of each pair
};

using Lit = std::map<GpuPair, std::uint32_t>;

// Launches begin as soon as they are reached, with the bandwidth of the circuits that there are.
class FixedCircuits : public replay::Gates {
public:
    FixedCircuits(const sim::JobMap& map, std::uint32_t ports, const Lit& lit)
        : map_(map), launch_pairs_(map, ports), lit_(lit) {}

    bool recorded(Name name, const replay::DryRunLaunch& launch, std::int64_t) override {
        const sim::LaunchPairs::Pairs& pairs = launch_pairs_.of(launch.operations, name.rank);
        if (pairs.all.empty()) return false;
        shares_[{name.rank, name.seq}] = share_of(pairs);
        return true;
    }
    void reached(Name name, std::int64_t now) override {
        open_.push_back(name);
        next_ns_ = now;
    }
    void ended(Name name, std::int64_t) override { shares_.erase({name.rank, name.seq}); }
    double share(Name name) override { return shares_.at({name.rank, name.seq}); }
    std::int64_t next_ns() const override {
        return open_.empty() ? std::numeric_limits<std::int64_t>::max() : next_ns_;
    }
    void advance(std::int64_t, std::vector<Name>& open) override {
        open.swap(open_);
        open_.clear();
    }

private:
    // Where a pair has no circuit, all goes over the packet network.
    double share_of(const sim::LaunchPairs::Pairs& pairs) const {
        if (!pairs.served()) return map_.packet_share();
        double share = 1;
        for (std::size_t i = 0; i < pairs.most.size(); ++i) {
            const auto lit = lit_.find(pairs.all[i]);
            if (lit == lit_.end()) return map_.packet_share();
            share = std::min(share, static_cast<double>(lit->second) / pairs.most[i]);
        }
        return share;
    }

    const sim::JobMap& map_;
    sim::LaunchPairs launch_pairs_;
    const Lit& lit_;
    std::map<std::pair<std::uint32_t, std::uint64_t>, double> shares_;
    std::vector<Name> open_;
    std::int64_t next_ns_ = 0;
};

class SplitSearch {
public:
    SplitSearch(const replay::Workload& w, std::uint32_t ports, const replay::DryRunOptions& options,
                std::optional<double> packet_share)
        : w_(w),
          map_(w, ports, 0, options.bytes_per_us, packet_share.value_or(1)),
          ports_(ports),
          options_(options),
          packets_(packet_share.has_value()) {
        options_.iterations = 2;
        std::vector<std::set<GpuPair>> of_comm(w.comms.size());
        for (const replay::Role& role : w.roles)
            for (const replay::Step& step : role.steps) {
                if (!is_operation(step.kind)) continue;
                for (const std::uint32_t rank : role.ranks) {
                    std::vector<GpuPair> pairs;
                    if (seen_
                            .insert({step.comm, rank,
                                     step.kind == replay::StepKind::send || step.kind == replay::StepKind::recv ? step.peer + 1 : 0,
                                     step.kind})
                            .second)
                        map_.add_pairs(step, rank, pairs);
                    of_comm[step.comm].insert(pairs.begin(), pairs.end());
                }
            }
        for (std::size_t c = 0; c < of_comm.size(); ++c) {
            if (of_comm[c].empty()) continue;
            const std::vector<GpuPair> pairs(of_comm[c].begin(), of_comm[c].end());
            const auto same =
                std::find_if(all_.begin(), all_.end(), [&](const Neighbours& n) { return n.pairs == pairs; });
            if (same != all_.end())
                same->names += ", " + w.comms[c].name;
            else
                all_.push_back({w.comms[c].name, pairs});
        }
    }

    StaticSplit run() {
        StaticSplit best;
        best.needed_ports = most_used();
        if (best.needed_ports <= ports_) climb(best);
        if (!packets_) return best;
        for (Neighbours& n : all_) n.circuits = 0;
        StaticSplit other;
        climb(other);
        if (best.iteration_ms == 0 || other.iteration_ms < best.iteration_ms)
            best.iteration_ms = other.iteration_ms, best.circuits = other.circuits;
        best.tried += other.tried;
        return best;
    }

private:
    // Adds the circuits that gain most to those that there are, until none gains.
    void climb(StaticSplit& best) {
        best.iteration_ms = play();
        best.tried = 1;
        for (bool better = true; better;) {
            better = false;
            std::size_t which = 0;
            double least = best.iteration_ms * (1 - 1e-6);
            for (std::size_t i = 0; i < all_.size(); ++i) {
                ++all_[i].circuits;
                if (most_used() <= ports_) {
                    ++best.tried;
                    if (const double ms = play(); ms != 0 && ms < least) least = ms, which = i, better = true;
                }
                --all_[i].circuits;
            }
            if (better) ++all_[which].circuits, best.iteration_ms = least;
        }
        for (const Neighbours& n : all_)
            best.circuits.push_back(n.names + ": " + (n.circuits == 0 ? "packets" : std::to_string(n.circuits)));
    }

    // What several communicators join is joined once, by the most that any of them has.
    Lit lit() const {
        Lit lit;
        for (const Neighbours& n : all_)
            for (const GpuPair& p : n.pairs)
                if (n.circuits != 0) lit[p] = std::max(lit[p], n.circuits);
        return lit;
    }
    std::uint32_t most_used() const {
        std::map<GpuId, std::uint32_t> used;
        std::uint32_t most = 0;
        for (const auto& [pair, circuits] : lit())
            for (const GpuId gpu : {pair.first, pair.second}) most = std::max(most, used[gpu] += circuits);
        return most;
    }
    double play() const {
        const Lit now = lit();
        FixedCircuits gates(map_, ports_, now);
        replay::DryRunOptions o = options_;
        o.gates = &gates;
        const replay::DryRun run = dry_run(w_, o);
        if (!run.ended) return 0;
        const std::vector<std::int64_t> ends = run.ends();
        return static_cast<double>(ends[1] - ends[0]) / 1e6;
    }

    const replay::Workload& w_;
    sim::JobMap map_;
    std::uint32_t ports_;
    replay::DryRunOptions options_;
    bool packets_;  // there is a packet network
    std::set<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, replay::StepKind>> seen_;
    std::vector<Neighbours> all_;
};

}  // namespace

StaticSplit best_static_split(const replay::Workload& workload, std::uint32_t ports,
                              const replay::DryRunOptions& options, std::optional<double> packet_share) {
    return SplitSearch(workload, ports, options, packet_share).run();
}

}  // namespace opus::job
