// Runs: what managers start under them, and how they return them.
#include "test/controller/core/harness.h"

#include <algorithm>
#include <utility>

namespace opus::controller::test {

bool World::covered(NodeIndex n, const wire::KeyRange& range, std::uint64_t& grant) const {
    for (const auto& [id, ranges] : managers_[n].soft)
        for (const auto& r : ranges) {
            Key first = r.first;
            first.n = range.first.n;
            if (first != range.first || first.n < r.first.n || first.n >= r.first.n + r.count || (range.mesh && !r.mesh))
                continue;
            grant = id;
            return true;
        }
    return false;
}

bool World::start_under_run(std::size_t r, std::size_t l) {
    RunLaunch& x = ranks_[r].launches[l];
    const NodeIndex n = job_.ranks[r].node;
    if (x.go || x.dead || managers_[n].soft.empty()) return false;
    std::uint64_t grant = 0;
    for (const auto& range : x.keys)
        if (!intra(range.first.comm.hi - 0x1000) && !covered(n, range, grant)) return false;
    check_start(r, l);
    x.granted = x.under_run = true;
    x.grant = grant;
    ++run_starts;
    start(r, l, false);
    return true;
}

void World::tell_done(std::size_t r, std::size_t l) {
    RunLaunch& x = ranks_[r].launches[l];
    Manager& m = managers_[job_.ranks[r].node];
    const wire::LaunchDone done{{static_cast<RankId>(r), l}, 0, 0, 0, x.passed};
    if (x.under_run) {
        m.unreported.ran.push_back({demand_of(r, l), done});
        return;
    }
    if (!m.up) return;
    const auto run = m.soft.find(x.grant);
    const bool goes_on = run != m.soft.end() && std::all_of(x.keys.begin(), x.keys.end(), [&](const auto& key) {
                             return std::any_of(run->second.begin(), run->second.end(), [&](const auto& range) {
                                 Key first = range.first;
                                 first.n = key.first.n;
                                 return first == key.first && key.first.n < range.first.n + range.count;
                             });
                         });
    m.unreported.launches.push_back(done);
    if (!goes_on) to_core(job_.ranks[r].node, std::exchange(m.unreported, {}));
}

// What all members here have finished is used up.
void World::end_runs(NodeIndex n) {
    Manager& m = managers_[n];
    for (auto it = m.soft.begin(); it != m.soft.end();) {
        bool over = true;
        for (const auto& range : it->second)
            for (const std::size_t r : job_.comms[range.first.comm.hi - 0x1000]) {
                const std::uint32_t slot = rank_in(job_, range.first.comm.hi - 0x1000, r);
                if (job_.ranks[r].node != n || ranks_[r].dead) continue;
                if (range.first.kind == KeyKind::p2p && slot != range.first.src && slot != range.first.dst) continue;
                Key last = range.first;
                last.n += range.count - 1;
                over &= std::any_of(ranks_[r].launches.begin(), ranks_[r].launches.end(), [&](const RunLaunch& x) {
                    return x.done &&
                           std::any_of(x.keys.begin(), x.keys.end(), [&](const auto& k) { return k.first == last; });
                });
            }
        if (!over) {
            ++it;
            continue;
        }
        if (m.up) m.unreported.ended.push_back(it->first);
        it = m.soft.erase(it);
    }
    if (!m.unreported.ended.empty()) to_core(n, std::exchange(m.unreported, {}));
}

void World::return_runs(NodeIndex n, const wire::Revoke& revoke) {
    Manager& m = managers_[n];
    for (const std::uint64_t grant : revoke.grants) m.soft.erase(grant);
    if (!m.unreported.launches.empty() || !m.unreported.ran.empty()) to_core(n, std::exchange(m.unreported, {}));
    wire::Returned answer;
    answer.id = revoke.id;
    for (auto& [where, r] : rank_of_)
        for (std::size_t l = 0; where.first == n && l < ranks_[r].launches.size(); ++l) {
            RunLaunch& x = ranks_[r].launches[l];
            if (!x.under_run || x.done || x.dead) continue;
            x.under_run = false;
            answer.running.push_back(demand_of(r, l));
        }
    to_core(n, std::move(answer));
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
