// Runs: what managers hold, and what must not happen to them.
#include "test/controller/core/harness.h"

#include <algorithm>
#include <utility>

namespace opus::controller::test {

// All of its keys that are held.
bool World::is_covered(NodeIndex n, std::size_t r, std::size_t l) const {
    const auto covers = [](const wire::KeyRange& run, const wire::KeyRange& key) {
        return sequence_of(run.first) == sequence_of(key.first) && key.first.n >= run.first.n &&
               key.first.n < run.first.n + run.count && (run.mesh || !key.mesh);
    };
    const auto& keys = ranks_[r].launches[l].keys;
    return std::all_of(keys.begin(), keys.end(), [&](const wire::KeyRange& key) {
        if (ranks_[r].verdicts.at(key.first.comm.hi - 0x1000) != Verdict::enforced) return true;
        return std::any_of(managers_[n].soft.begin(), managers_[n].soft.end(), [&](const auto& grant) {
            return std::any_of(grant.second.begin(), grant.second.end(),
                               [&](const wire::KeyRange& run) { return covers(run, key); });
        });
    });
}

// No circuit moves on which a manager may let a launch start.
void World::check_runs(const std::pair<GpuId, GpuId>& pair) {
    for (NodeIndex n = 0; n < managers_.size(); ++n) {
        const Manager& m = managers_[n];
        if (!m.up && now - m.down_ns >= options_.node_grace_ns) continue;  // given up
        if (core_life_ > 0 && fabric.gpus[pair.first].node != n && fabric.gpus[pair.second].node != n) continue;
        for (const auto& [grant, ranges] : m.soft)
            for (const auto& range : ranges) {
                const auto pairs = pairs_of(range.first, range.mesh);
                if (std::find(pairs.begin(), pairs.end(), pair) != pairs.end())
                    violate(fabric.gpus[pair.first].name + " - " + fabric.gpus[pair.second].name + " moves under run " +
                            std::to_string(grant) + ", which n" + std::to_string(n) + " has not returned");
            }
    }
}

// A run is granted to all members of its sequences or to none.
void World::check_whole_runs(const Actions& actions) {
    std::map<std::pair<std::uint64_t, Key>, std::set<NodeIndex>> given;
    std::map<std::pair<std::uint64_t, Key>, std::uint32_t> counts;
    for (const Action& action : actions)
        if (const auto* s = std::get_if<SendTo>(&action))
            if (const auto* g = std::get_if<wire::Grant>(&s->message))
                for (const auto& range : g->soft) {
                    given[{g->id, range.first}].insert(s->node);
                    auto& count = counts[{g->id, range.first}];
                    if (count != 0 && count != range.count) violate("members are granted runs of different lengths");
                    count = range.count;
                }
    for (const auto& [which, nodes_given] : given) {
        const Key& key = which.second;
        const auto& members = job_.comms[key.comm.hi - 0x1000];
        for (std::uint32_t slot = 0; slot < members.size(); ++slot)
            if ((key.kind == KeyKind::coll || slot == key.src || slot == key.dst) &&
                nodes_given.count(job_.ranks[members[slot]].node) == 0)
                violate("a run is granted to some of its members only");
    }
}

}  // namespace opus::controller::test
