#include "test/sim/withheld.h"

#include <algorithm>

#include "test/sim/world.h"

namespace opus::sim {
const char* name_of(Meanwhile what) {
    static constexpr const char* kNames[] = {"manager death", "controller death", "rank death", "network",
                                             "switch",        "revocation",       "suspension", "a job's begin or end",
                                             "observe"};
    return kNames[static_cast<std::size_t>(what)];
}

WithheldReceives::WithheldReceives(World& world, const Scenario& scenario)
    : world_(world), s_(scenario), held_(scenario.fabric.nodes.size()), ever_(scenario.fabric.nodes.size()) {}

bool WithheldReceives::was(NodeIndex node, RankId rank, std::uint64_t seq) const {
    return std::find(ever_[node].begin(), ever_[node].end(), Receive{rank, seq}) != ever_[node].end();
}

void WithheldReceives::happens(Meanwhile what, NodeIndex node) {
    for (NodeIndex n = 0; n < held_.size(); ++n)
        if ((node == kNone || node == n) && !held_[n].empty()) meanwhile_ |= 1u << static_cast<unsigned>(what);
}

// What holds for each: receives of one rank that have reached their gate, not asked for, for a dark time at most.
void WithheldReceives::look(NodeIndex node) {
    const manager::Core* core = world_.managers[node]->core();
    if (core == nullptr) return;
    std::vector<Receive> now;
    for (const manager::WithheldLaunch& h : core->withheld()) {
        const std::uint32_t rank = world_.managers[node]->rank_of(h.rank);
        if (rank == kNone) continue;
        const LaunchIndex index = world_.ranks[rank]->launch_of(h.seq);
        if (index == kNone) continue;
        const LaunchRun& run = world_.launches[index];
        const Receive receive{h.rank, h.seq};
        now.push_back(receive);
        const auto sequence = [this](const Part& p) { return sequence_of(s_.flows[p.flow].key); };
        const bool receives = std::all_of(run.parts->begin(), run.parts->end(), [&](const Part& p) {
            return !p.sends && s_.flows[p.flow].key.kind == KeyKind::p2p && sequence(p) == sequence(run.parts->front());
        });
        if (!receives || run.unheld != 0)
            return world_.fail(world_.inspector.name(index) + " is withheld, and does more than receive from one rank");
        if (run.state != LaunchRun::State::reached || run.go)
            return world_.fail(world_.inspector.name(index) + " is withheld, and does not wait");
        if (world_.now - h.since_ns > TimeNs{s_.fabric.least_dark_us(node)} * 1000 + kMs)
            return world_.fail("I6: " + world_.inspector.name(index) + " is withheld for longer than it may be");
        if (was(node, h.rank, h.seq)) continue;
        ever_[node].push_back(receive);
        world_.withheld_receive(++receives_);
        if (world_.journal.on) world_.journal.add(world_.now, world_.inspector.name(index) + " is withheld");
        if (std::any_of(s_.ranks.begin(), s_.ranks.end(), [&](const RankPlan& r) {
                return r.mode == Mode::observe && r.node == node && r.gpu == s_.ranks[rank].gpu;
            }))
            meanwhile_ |= 1u << static_cast<unsigned>(Meanwhile::observed);
    }
    held_[node] = std::move(now);
}

}  // namespace opus::sim
