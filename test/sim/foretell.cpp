#include "test/sim/foretell.h"

#include <algorithm>
#include <map>

#include "test/sim/world.h"

namespace opus::sim {
namespace {

wire::KeyRange keys_of(const Scenario& s, std::uint32_t rank, const OpPlan& op) {
    const CommPlan& comm = s.comms[op.comm];
    Key key{comm.id, KeyKind::coll, 0, 0, op.n};
    if (op.kind == OpKind::send || op.kind == OpKind::recv) {
        const auto self =
            static_cast<std::uint32_t>(std::find(comm.ranks.begin(), comm.ranks.end(), rank) - comm.ranks.begin());
        key.kind = KeyKind::p2p;
        key.src = op.kind == OpKind::send ? self : op.peer;
        key.dst = op.kind == OpKind::send ? op.peer : self;
    }
    return {key, op.count, op.kind == OpKind::all_to_all || op.kind == OpKind::gather || op.kind == OpKind::scatter};
}

// Of each sequence of a rank's, the first number that has not started.
std::map<Key, std::uint64_t> begun_by(const World& world, std::uint32_t rank, const LaunchRun* besides) {
    std::map<Key, std::uint64_t> begun;
    for (const LaunchRun& other : world.launches) {
        if (other.rank != rank || other.plan == nullptr ||
            (&other != besides && !other.go && other.state < LaunchRun::State::running))
            continue;
        for (const OpPlan& op : other.plan->ops) {
            const wire::KeyRange keys = keys_of(world.scenario, rank, op);
            std::uint64_t& end = begun[sequence_of(keys.first)];
            end = std::max(end, keys.first.n + keys.count);
        }
    }
    return begun;
}

}  // namespace

std::vector<wire::KeyRange> foretell(const World& world, LaunchIndex first, Random& random) {
    const LaunchRun& run = world.launches[first];
    const Scenario& s = world.scenario;
    const std::uint32_t ahead = random.below(9), beyond = random.chance(250) ? 1 + random.below(3) : 0;
    std::map<Key, std::uint64_t> begun = begun_by(world, run.rank, &run);
    std::map<Key, wire::KeyRange> ranges;
    std::uint32_t taken = 0;
    bool after = false;
    for (const Call& call : s.ranks[run.rank].calls)
        for (const LaunchPlan& plan : call.launches) {
            after |= &plan == run.plan;
            if (!after || &plan == run.plan || taken == ahead) continue;
            ++taken;
            for (const OpPlan& op : plan.ops) {
                const wire::KeyRange keys = keys_of(s, run.rank, op);
                const Key sequence = sequence_of(keys.first);
                const std::uint64_t end = keys.first.n + keys.count, begin = std::max(keys.first.n, begun[sequence]);
                if (begin >= end) continue;
                const auto [at, fresh] = ranges.try_emplace(sequence, wire::KeyRange{keys.first, 0, keys.mesh});
                if (fresh) at->second.first.n = begin;
                at->second.count = static_cast<std::uint32_t>(end - at->second.first.n);
                at->second.mesh |= keys.mesh;
            }
        }
    std::vector<wire::KeyRange> out;
    for (auto& [sequence, range] : ranges) {
        range.count += beyond;
        out.push_back(range);
    }
    return out;
}

}  // namespace opus::sim
