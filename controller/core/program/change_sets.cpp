// Change sets: circuits are turned for gangs, plans and operators, all that one step decides for a switch at once.
#include <algorithm>
#include <utility>

#include "controller/core/gangs/gangs.h"
#include "controller/core/gangs/launches.h"
#include "controller/core/program/change_sets.h"
#include "controller/core/program/fences.h"
#include "controller/core/program/grants.h"
#include "controller/core/program/switches.h"
#include "controller/core/provision/hidden.h"
#include "controller/core/provision/turns.h"
#include "controller/core/schedule/schedule.h"
#include "opus/assert.h"

namespace opus::controller {

void ChangeSets::program(Gang& gang, const Plan& plan) {
    schedule_.set_wanted(gang, {});
    gang.state = Gang::State::programming;
    gang.placed_ns = now_;
    gang.dark_ns = 0;
    gang.pending_ops = 0;
    ++gang.attempt;
    for (Launch* launch : gang.launches) launch->stage = Stage::committed;
    for (const PairId e : gang.pairs) ++inventory_.pair(e).claims;
    for (const auto& [pair, circuit] : plan.fresh) {
        if (inventory_.port(circuit.a).peer == circuit.b && inventory_.usable(circuit)) continue;  // up already
        hidden_.lose(circuit);
        // After a failure each circuit goes alone, so that the one at fault shows.
        Op& op = open(fabric_.ports[circuit.a].sw, gang.failures > 0);
        connect(op, pair, circuit);
        if (!op.gangs.empty() && op.gangs.back().gang == gang.id && op.gangs.back().attempt == gang.attempt) continue;
        op.gangs.push_back({gang.id, gang.attempt});
        ++gang.pending_ops;
    }
    if (gang.pending_ops == 0) grants_.grant(gang);
}

// Changes for one switch that are decided in one step go in one change set.
Op& ChangeSets::open(SwitchIndex sw, bool alone) {
    if (!alone)
        if (const auto it = open_.find({sw, false}); it != open_.end()) return must_find(inventory_.ops(), it->second);
    const OpId id = next_++;
    Op& op = inventory_.ops()[id];
    op.id = id;
    op.sw = sw;
    op.begun_ns = now_;
    if (!alone) open_[{sw, false}] = id;
    new_.push_back(id);
    return op;
}

void ChangeSets::turn_dark(Op& op, PortId p) {
    const PortId peer = inventory_.port(p).peer;
    hidden_.forget(p);
    turns_.lose_turns(p);
    if (peer == kNone) return;
    trace({.kind = Trace::Kind::circuit_down, .id = op.id, .circuit = make_circuit(p, peer)});
    ++counters_.circuits_moved;
    const PairId e = inventory_.port(p).pair;
    inventory_.darken(p, step_, now_);
    if (peer < fabric_.ports.size()) turns_.lose_turns(peer);
    inventory_.port(p).op = op.id;
    op.dark.push_back(p);
    // The other end is not named in the change: it is free, and may be in the next one, whichever is carried out first.
    if (peer < fabric_.ports.size()) {
        inventory_.port(peer).leaves = op.id;
        op.dark.push_back(peer);
    }
    if (e != kNone) schedule_.wake_pair(e);
}

void ChangeSets::connect(Op& op, PairId pair, const Circuit& circuit) {
    for (const PortId p : {circuit.a, circuit.b}) turn_dark(op, p);
    for (const PortId p : {circuit.a, circuit.b}) {
        hidden_.forget(p);
        inventory_.port(p).op = op.id;
        inventory_.port(p).changed = step_;
        inventory_.port(p).since_ns = now_;
        inventory_.port(p).dark_by_fault = false;
    }
    op.connect.emplace_back(pair, circuit);
    inventory_.pair(pair).coming.push_back(circuit);
}

void ChangeSets::emit() {
    for (const OpId id : new_) {
        const auto it = inventory_.ops().find(id);
        if (it == inventory_.ops().end()) continue;
        Op& op = it->second;
        // Ports that lose a circuit and get another one are not dark.
        const std::vector<PortId> lit = op.turned();
        std::erase_if(op.dark, [&](PortId port) {
            PortState& s = inventory_.port(port);
            const bool stays_dark = (s.op == id || s.leaves == id) && !std::binary_search(lit.begin(), lit.end(), port);
            if (!stays_dark && s.leaves == id) s.leaves = 0;
            return !stays_dark;
        });
        Program p{op.sw, op.id, {}, switches_.switch_timeout(op.sw)};
        for (const PortId port : op.disconnect) p.changes.disconnect.push_back(fabric_.ports[port].sw_port);
        for (const auto& entry : op.connect)
            p.changes.connect.emplace_back(fabric_.ports[entry.second.a].sw_port, fabric_.ports[entry.second.b].sw_port);
        ++counters_.reconfigurations;
        act(std::move(p));
        trace({.kind = Trace::Kind::program_begin, .id = id});
    }
    new_.clear();
    open_.clear();
}

void ChangeSets::settle(Op& op, const Applied& applied) {
    for (const auto& [pair, circuit] : op.connect) {
        std::erase(inventory_.pair(pair).coming, circuit);
        for (const PortId p : {circuit.a, circuit.b}) {
            inventory_.port(p).op = 0;
            fences_.trust(p);
        }
        inventory_.light(circuit, step_, now_);
        inventory_.see(circuit);
        trace({.kind = Trace::Kind::circuit_up, .id = op.id, .circuit = circuit});
    }
    for (const PortId p : op.dark) {
        PortState& s = inventory_.port(p);
        if (s.leaves == op.id) s.leaves = 0;
        if (s.op == op.id) s.op = 0;
        if (s.op != 0 || s.peer != kNone) continue;  // another has taken it meanwhile
        s.no_light = false;
        s.note.clear();
        s.changed = step_;
    }
    for (const auto& entry : op.connect) schedule_.wake_pair(entry.first);
    for (const PortId p : op.dark) schedule_.wake(fabric_.ports[p].gpu);
    fences_.carried_out(op);
    const TimeNs took = applied.settled_ns > applied.sent_ns ? applied.settled_ns - applied.sent_ns : now_ - op.begun_ns;
    if (op.planned) hidden_.made(op, took);
    if (op.has_ctl) act(CtlDone{op.ctl, true, {}});
    if (op.planned)
        for (const auto& entry : op.connect) turns_.lit_for_plan(entry.second.a);
    const std::vector<OpGang> waiting = std::move(op.gangs);
    inventory_.ops().erase(OpId(op.id));
    for (const OpGang& ref : waiting) {
        Gang* gang = gangs_.find(ref.gang);
        if (gang == nullptr || gang->state != Gang::State::programming || gang->attempt != ref.attempt) continue;
        gang->dark_ns = std::max(gang->dark_ns, took);
        if (--gang->pending_ops > 0) continue;
        // A switch that has confirmed may have lost its session since, and then it is asked again first; or a member
        // has become known, and more circuits are needed than were asked for.
        const bool lit = launches_.is_lit(*gang);
        lit ? grants_.grant(*gang) : fail_gang(*gang);
    }
}

// Its ports are in doubt until read back; its gangs wait again, on every rail.
void ChangeSets::fail(Op& op, DriverError error, const std::string& text) {
    // A lost session says nothing of the port, and the switch may still be at work on the command.
    const bool cut_off = error == DriverError::unreachable || error == DriverError::cancelled;
    const TimeNs until = cut_off ? op.begun_ns + switches_.command_time(op.sw) : 0;
    ++counters_.switch_errors;
    log(LogLevel::error, fabric_.switches[op.sw].name + ": change set " + std::to_string(op.id) + " failed: " + text);
    SwitchState& sw = inventory_.sw(op.sw);
    if (!cut_off) fences_.not_carried_out(op);
    const auto doubt = [&](PortId p) {
        PortState& s = inventory_.port(p);
        s.op = 0;
        s.unknown = true;
        s.dark_by_fault = true;
        s.doubt_until_ns = until;
        s.changed = step_;
        s.note = text;
        schedule_.wake(fabric_.ports[p].gpu);
    };
    for (const auto& [pair, circuit] : op.connect) {
        std::erase(inventory_.pair(pair).coming, circuit);
        sw.suspects.push_back(
            {circuit, !cut_off && op.connect.size() == 1, error == DriverError::no_light, op.begun_ns, op.tries});
        doubt(circuit.a);
        doubt(circuit.b);
        turns_.lose_turns(circuit.a);
        turns_.lose_turns(circuit.b);
    }
    for (const PortId p : op.dark) {
        PortState& s = inventory_.port(p);
        if (s.leaves == op.id) s.leaves = 0;
        if ((s.op == 0 || s.op == op.id) && s.peer == kNone) doubt(p);  // else another has taken it meanwhile
    }
    if (op.has_ctl) act(CtlDone{op.ctl, false, text});
    for (const auto& entry : op.connect)
        for (const PortId p : {entry.second.a, entry.second.b}) hidden_.forget(p);
    const std::vector<OpGang> waiting = std::move(op.gangs);
    const SwitchIndex s = op.sw;
    const TimeNs begun = op.begun_ns;
    inventory_.ops().erase(OpId(op.id));
    for (const OpGang& ref : waiting)
        if (Gang* gang = gangs_.find(ref.gang);
            gang != nullptr && gang->state == Gang::State::programming && gang->attempt == ref.attempt)
            fail_gang(*gang);
    if (cut_off)
        arm(begun + switches_.switch_timeout(s), TimerKind::switch_read, s);  // by then it is over, however slow
    switches_.read_map(s);
}

void ChangeSets::unclaim(Gang& gang) {
    for (const PairId e : gang.pairs)
        if (--inventory_.pair(e).claims == 0 && !inventory_.pair(e).busy()) schedule_.wake_pair(e);
}

// Keeps its ticket, and nothing else: circuits already moved stay, owned by nobody.
void ChangeSets::fail_gang(Gang& gang) {
    unclaim(gang);
    gang.state = Gang::State::waiting;
    ++gang.attempt;
    ++gang.failures;
    if (gang.launches.empty()) return gangs_.erase(gang);
    gang.retry_at_ns = now_ + (TimeNs(100'000'000) << std::min(gang.failures - 1, 5u));
    arm(gang.retry_at_ns, TimerKind::gang_retry, gang.id);
    gangs_.restamp(gang);
    for (Launch* launch : gang.launches) launch->stage = launch->open() ? Stage::suspended : Stage::ready;
    const std::vector<Launch*> launches = gang.launches;
    gangs_.regather(launches);  // others may have come meanwhile
}

std::string ChangeSets::check() {
    for (PortId p = 0; p < fabric_.ports.size(); ++p) {
        const PortState& s = inventory_.port(p);
        const std::string& name = fabric_.ports[p].name;
        if (s.peer < fabric_.ports.size()) {
            if (inventory_.port(s.peer).peer != p)
                return name + " leads to " + fabric_.ports[s.peer].name + ", which does not lead back";
            const auto& up = inventory_.pair(s.pair).up;
            if (std::count(up.begin(), up.end(), make_circuit(p, s.peer)) != 1)
                return name + ": its circuit is not listed once";
        } else if (s.pair != kNone) {
            return name + " is dark and has a pair";
        }
        if (s.op != 0) {
            const auto it = inventory_.ops().find(s.op);
            if (it == inventory_.ops().end()) return name + " moves under a change set that is over";
            if (s.peer != kNone) return name + " moves and is lit";
        }
        if (s.leaves != 0 && inventory_.ops().count(s.leaves) == 0)
            return name + " leaves under a change set that is over";
        for (const Reservation& r : s.reservations) {
            if (r.gang->state != Gang::State::waiting) return name + " is reserved by a gang that does not wait";
            if (std::none_of(r.gang->wanted.begin(), r.gang->wanted.end(),
                             [&](const WantedPort& w) { return w.port == p; }))
                return name + " is reserved by a gang that does not want it";
        }
    }
    for (PairId e = 0; e < inventory_.pair_count(); ++e) {
        const GpuPair& pair = inventory_.pair(e);
        const std::string called = name(pair.a) + " - " + name(pair.b);
        std::uint32_t claims = 0;
        for (const auto& [id, gang] : gangs_.all())
            if (gang->state == Gang::State::programming)
                claims += std::count(gang->pairs.begin(), gang->pairs.end(), e);
        if (claims != pair.claims) return called + ": claims do not add up";
        for (const Circuit& c : pair.up)
            if (inventory_.port(c.a).peer != c.b) return called + ": lists a circuit that is not up";
        if (!pair.holders.empty() && pair.up.empty()) return called + " is held and dark";
    }
    return {};
}

}  // namespace opus::controller
