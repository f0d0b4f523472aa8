// Ranks that follow program order, and what light carries for them.
#include "test/controller/core/harness.h"

#include <algorithm>
#include <utility>

namespace opus::controller::test {

// A gate is reached when what comes before it in its stream is over; a communicator's order is its manager's business.
void World::advance() {
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
        if (ranks_[r].dead) continue;
        const auto& program = job_.ranks[r].program;
        for (std::size_t l = 0; l < program.size(); ++l) {
            RunLaunch& x = ranks_[r].launches[l];
            if (x.reached) continue;
            bool ready = true;
            for (std::size_t e = 0; e < l && ready; ++e)
                ready = ranks_[r].launches[e].done || program[e].stream != program[l].stream;
            for (const std::size_t e : program[l].after) ready &= ranks_[r].launches[e].done;
            if (!ready) continue;
            x.reached = true;
            at(now + program[l].delay_ns + jitter(0, 100'000), [this, r, l] { reach(r, l); });
        }
    }
}

void World::reach(std::size_t r, std::size_t l) {
    RunLaunch& x = ranks_[r].launches[l];
    if (x.dead || x.go) return;
    if (!core) return start(r, l);
    const NodeIndex n = job_.ranks[r].node;
    x.waits = true;
    if (x.let_go) let_go(n, r, l);
    see(n, manager::Ready{static_cast<RankId>(r), l});
}

void World::start(std::size_t r, std::size_t l) {
    RunLaunch& x = ranks_[r].launches[l];
    x.go = true;
    x.waits = false;
    x.go_ns = now;
    if (x.keys.empty()) at(now, [this, r, l] { finish_launch(r, l); });
    update_transfers();
}

// Kernels of one communicator run one after the other; connections are made on the host.
bool World::runs(const Place& place, KeyKind kind) const {
    const RunRank& rank = ranks_[place.rank];
    if (!rank.launches[place.launch].go || rank.dead) return false;
    if (place.before < place.launch && !is_connection(kind) && !rank.launches[place.before].done) return false;
    const auto& behind = job_.ranks[place.rank].program[place.launch].behind;
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
        for (const Place& member : t.members) moving &= runs(member, t.key.kind);
        const bool elsewhere = std::any_of(t.members.begin(), t.members.end(),
                                           [this](const Place& m) { return ranks_[m.rank].launches[m.launch].unseen; });
        if (core && !elsewhere)
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
    for (const Place& member : t.members) {
        const TimeNs late = jitter(0, 3 * kMs);
        at(now + late, [this, i, r = member.rank, l = member.launch] {
            RunLaunch& x = ranks_[r].launches[l];
            x.left.erase(i);
            if (x.left.empty() && !x.done) finish_launch(r, l);
        });
    }
}

void World::finish_launch(std::size_t r, std::size_t l) {
    RunLaunch& x = ranks_[r].launches[l];
    if (x.dead) return;
    x.done = true;
    if (core) see(job_.ranks[r].node, manager::DoneSeen{static_cast<RankId>(r), l});
    advance();
    update_transfers();
}

}  // namespace opus::controller::test
