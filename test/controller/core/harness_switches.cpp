// Switches with dark time, and the sessions to them.
#include "test/controller/core/harness.h"

#include <algorithm>
#include <utility>

namespace opus::controller::test {

void World::connect_switch(SwitchIndex s) {
    switch_up_[s] = true;
    feed(SwitchEvent{
        s, SessionUp{{"model", "ocs", std::to_string(s), "1", fabric.switches[s].ingress, fabric.switches[s].egress}}});
}

void World::session_down(SwitchIndex s, TimeNs for_ns) {
    switch_up_[s] = false;
    feed(SwitchEvent{s, SessionDown{"dropped"}});
    at(now + for_ns, [this, s] { connect_switch(s); });
}

// The command breaks circuits at once; the new ones pass light after the dark time.
void World::apply(const Program& p) {
    ++programs;
    if (taken_up_ns == 0) return carry_out(p, now, core_life_);
    at(now + taken_up_ns, [this, p, sent = now, life = core_life_] { carry_out(p, sent, life); });
}

void World::carry_out(const Program& p, TimeNs sent, std::uint64_t life) {
    const SwitchIndex s = p.sw;
    std::vector<std::pair<PortId, PortId>> connect;
    const auto cable = [&](SwitchPort n) {
        for (PortId q = 0; q < fabric.ports.size(); ++q)
            if (fabric.ports[q].sw == s && fabric.ports[q].sw_port == n) return q;
        return kNone;
    };
    for (const auto& [x, y] : p.changes.connect) {
        connect.emplace_back(cable(x), cable(y));
        if (!fabric.can_join(connect.back().first, connect.back().second)) violate("asked to join what no switch can");
    }
    for (const SwitchPort x : p.changes.disconnect) darken(cable(x));
    auto [error, applies] = switch_fault ? switch_fault(p) : std::pair{DriverError::none, connect.size()};
    if (error == DriverError::none) applies = connect.size();
    for (std::size_t i = 0; i < std::min(applies, connect.size()); ++i) {
        darken(connect[i].first);
        darken(connect[i].second);
        ++coming_[connect[i].first];
        ++coming_[connect[i].second];
    }
    update_transfers();
    const TimeNs dark = fabric.switches[s].dark_ns;
    at(now + dark + jitter(0, dark / 4), [=, this, error = error, applies = applies] {
        for (std::size_t i = 0; i < connect.size(); ++i) {
            if (i >= applies) break;
            const auto [a, b] = connect[i];
            darken(a);
            darken(b);
            --coming_[a];
            --coming_[b];
            auto& leads = error == DriverError::no_light ? blind_ : peer_;
            leads[a] = b;
            leads[b] = a;
            leaves_[a] = leaves_[b] = {kNone, 0};
        }
        update_transfers();
        if (life != core_life_ || !switch_up_[s]) return;
        feed(SwitchEvent{s, Applied{p.op, error, error == DriverError::none ? "" : "fault of the test", sent, sent, now}});
    });
}

void World::darken(PortId p) {
    if (const PortId q = blind_[p]; q != kNone) blind_[p] = blind_[q] = kNone;
    const PortId q = peer_[p];
    if (q == kNone) return;
    const auto pair = std::minmax(fabric.ports[p].gpu, fabric.ports[q].gpu);
    check_runs(pair);
    for (std::size_t r = 0; r < ranks_.size(); ++r)
        for (std::size_t l = 0; l < ranks_[r].launches.size(); ++l) {
            const RunLaunch& x = ranks_[r].launches[l];
            if (!x.granted || x.reported_done || x.dead) continue;
            // It was granted over another circuit of the pair, while this one was already to be turned away.
            if (leaves_[p].first == q && x.granted_ns > leaves_[p].second) continue;
            // A new controller knows of a launch when its node has reported; until then it keeps that node's ports.
            const NodeIndex n = job_.ranks[r].node;
            if (core_life_ > 0 && fabric.gpus[pair.first].node != n && fabric.gpus[pair.second].node != n) continue;
            for (const auto& range : x.keys) {
                const Transfer& t = transfers_[transfer_of_.at(range.first)];
                if (bereaved(range.first.comm.hi - 0x1000)) continue;
                if (std::find(t.pairs.begin(), t.pairs.end(), std::pair<GpuId, GpuId>(pair)) == t.pairs.end()) continue;
                if (x.moved_away || x.passed) {
                    ++lost_under_suspended;
                } else if (!t.done || !x.done) {
                    violate("the circuit " + fabric.ports[p].name + " - " + fabric.ports[q].name + " moves under " +
                            name(r, l));
                }
            }
        }
    peer_[p] = peer_[q] = kNone;
}

void World::move_circuit(PortId a, PortId b) {
    for (const PortId p : {a, b})
        if (const PortId q = blind_[p]; q != kNone) blind_[p] = blind_[q] = kNone;
    for (const PortId p : {a, b})
        if (peer_[p] != kNone) {
            peer_[peer_[p]] = kNone;
            peer_[p] = kNone;
        }
    if (a != b) {
        peer_[a] = b;
        peer_[b] = a;
    }
    update_transfers();
}

}  // namespace opus::controller::test
