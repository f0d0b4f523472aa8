// Ranks that follow program order, and what light carries for them.
#include "test/controller/core/harness.h"

#include <algorithm>
#include <utility>

namespace opus::controller::test {

void World::advance() {
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
        if (ranks_[r].dead) continue;
        const auto& program = job_.ranks[r].program;
        for (std::size_t l = 0; l < program.size(); ++l) {
            RunLaunch& x = ranks_[r].launches[l];
            if (x.reached) continue;
            bool ready = true;
            for (std::size_t e = 0; e < l && ready; ++e) {
                if (ranks_[r].launches[e].done) continue;
                bool before = program[e].stream == program[l].stream;
                for (const OpSpec& a : program[e].ops)
                    for (const OpSpec& b : program[l].ops) before |= ready_in_order && a.comm == b.comm;
                if (before) ready = false;
            }
            for (const std::size_t e : program[l].after) ready &= ranks_[r].launches[e].done;
            if (!ready) continue;
            x.reached = true;
            const NodeIndex n = job_.ranks[r].node;
            at(now + program[l].delay_ns + jitter(0, 100'000), [this, n, r, l] {
                if (!core) return start(r, l, false);
                RunLaunch& mine = ranks_[r].launches[l];
                if (mine.dead || mine.go) return;
                if (demand_of(r, l).keys.empty()) return start(r, l, false);
                mine.waits = true;
                if (start_under_run(r, l)) return;
                if (mine.asked) return;  // by a snapshot
                if (!managers_[n].up) return;
                mine.asked = true;
                Manager& m = managers_[n];
                if (!m.unreported.ran.empty() || !m.unreported.launches.empty())
                    to_core(n, std::exchange(m.unreported, {}));
                to_core(n, wire::Demand{{demand_of(r, l)}});
            });
        }
    }
}

void World::start(std::size_t r, std::size_t l, bool passed) {
    RunLaunch& x = ranks_[r].launches[l];
    if (x.dead || x.go) return;
    x.go = true;
    x.waits = false;
    x.go_ns = now;
    x.passed = passed;
    if (x.keys.empty()) finish_launch(r, l);
    update_transfers();
}

bool World::runs(const std::pair<std::size_t, std::size_t>& launch) const {
    const auto [r, l] = launch;
    if (!ranks_[r].launches[l].go || ranks_[r].launches[l].dead) return false;
    const auto& behind = job_.ranks[r].program[l].behind;
    return std::all_of(behind.begin(), behind.end(),
                       [&](const auto& b) { return ranks_[b.first].launches[b.second].done; });
}

bool World::pair_lit(const std::pair<GpuId, GpuId>& pair) const {
    for (const PortId p : fabric.gpus[pair.first].ports)
        if (peer_[p] != kNone && fabric.ports[peer_[p]].gpu == pair.second) return true;
    return false;
}

void World::update_transfers() {
    for (std::size_t i = 0; i < transfers_.size(); ++i) {
        Transfer& t = transfers_[i];
        if (t.done) continue;
        const auto size = static_cast<std::uint32_t>(job_.comms[t.key.comm.hi - 0x1000].size());
        const std::size_t want = places_of(t.key.kind, size);
        bool moving = t.members.size() >= want;
        for (const auto& member : t.members) moving &= runs(member);
        if (core)
            for (const auto& pair : t.pairs) moving &= pair_lit(pair);
        if (moving == (t.since_ns >= 0)) continue;
        ++t.version;
        if (!moving) {
            t.left_ns -= now - t.since_ns;
            t.since_ns = -1;
            continue;
        }
        t.since_ns = now;
        at(now + std::max<TimeNs>(t.left_ns, 0), [this, i, v = t.version] {
            if (transfers_[i].version == v && !transfers_[i].done) finish_transfer(i);
        });
    }
}

// Senders may end before receivers.
void World::finish_transfer(std::size_t i) {
    Transfer& t = transfers_[i];
    t.done = true;
    for (const auto& member : t.members) {
        const TimeNs late = jitter(0, 3 * kMs);
        at(now + late, [this, i, member] {
            RunLaunch& x = ranks_[member.first].launches[member.second];
            x.left.erase(i);
            if (x.left.empty() && !x.done) finish_launch(member.first, member.second);
        });
    }
}

void World::finish_launch(std::size_t r, std::size_t l) {
    RunLaunch& x = ranks_[r].launches[l];
    if (x.dead) return;
    x.done = true;
    const NodeIndex n = job_.ranks[r].node;
    if (core) tell_done(r, l);
    if (core) end_runs(n);
    advance();
    update_transfers();
}

}  // namespace opus::controller::test
