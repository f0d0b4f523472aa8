// Programming switches for a gang, and granting it when all of them have confirmed.
#include <algorithm>
#include <utility>

#include "controller/core/impl.h"
#include "opus/assert.h"

namespace opus::controller {

void Core::Impl::program(Gang& gang, const Plan& plan) {
    set_wanted(gang, {});
    gang.state = Gang::State::programming;
    gang.placed_ns = now;
    gang.dark_ns = 0;
    gang.pending_ops = 0;
    ++gang.attempt;
    for (Launch* launch : gang.launches) launch->stage = Stage::committed;
    for (const EdgeId e : gang.edges) ++inventory.edge(e).claims;
    for (const auto& [edge, circuit] : plan.fresh) {
        if (inventory.port(circuit.a).peer == circuit.b && inventory.usable(circuit)) continue;  // up already
        lose_ahead(circuit);
        // After a failure each circuit goes alone, so that the one at fault shows.
        Op& op = open_op(fabric.ports[circuit.a].sw, gang.failures > 0);
        connect(op, edge, circuit);
        if (!op.gangs.empty() && op.gangs.back().gang == gang.id && op.gangs.back().attempt == gang.attempt) continue;
        op.gangs.push_back({gang.id, gang.attempt});
        ++gang.pending_ops;
    }
    if (gang.pending_ops == 0) grant(gang);
}

// Changes for one switch that are decided in one step go in one change set.
Op& Core::Impl::open_op(SwitchIndex sw, bool alone) {
    if (!alone)
        if (const auto it = open_ops.find({sw, false}); it != open_ops.end())
            return must_find(inventory.ops(), it->second);
    const OpId id = next_op++;
    Op& op = inventory.ops()[id];
    op.id = id;
    op.sw = sw;
    op.begun_ns = now;
    if (!alone) open_ops[{sw, false}] = id;
    new_ops.push_back(id);
    return op;
}

void Core::Impl::turn_dark(Op& op, PortId p) {
    const PortId peer = inventory.port(p).peer;
    ahead[p] = {};
    lose_turns(p);
    if (peer == kNone) return;
    Trace t;
    t.kind = Trace::Kind::circuit_down;
    t.id = op.id;
    t.circuit = make_circuit(p, peer);
    trace(std::move(t));
    ++counters.circuits_moved;
    const EdgeId e = inventory.port(p).edge;
    inventory.darken(p, step, now);
    if (peer < fabric.ports.size()) lose_turns(peer);
    inventory.port(p).op = op.id;
    op.dark.push_back(p);
    // The other end is not named in the change: it is free, and may be in the next one, whichever is carried out first.
    if (peer < fabric.ports.size()) {
        inventory.port(peer).leaves = op.id;
        op.dark.push_back(peer);
    }
    if (e != kNone) wake_edge(e);
}

void Core::Impl::connect(Op& op, EdgeId edge, const Circuit& circuit) {
    for (const PortId p : {circuit.a, circuit.b}) turn_dark(op, p);
    for (const PortId p : {circuit.a, circuit.b}) {
        ahead[p] = {};
        inventory.port(p).op = op.id;
        inventory.port(p).changed = step;
        inventory.port(p).since_ns = now;
        inventory.port(p).dark_by_fault = false;
    }
    op.connect.emplace_back(edge, circuit);
    inventory.edge(edge).coming.push_back(circuit);
}

void Core::Impl::emit_programs() {
    for (const OpId id : new_ops) {
        const auto it = inventory.ops().find(id);
        if (it == inventory.ops().end()) continue;
        Op& op = it->second;
        // Ports that lose a circuit and get another one are not dark.
        const std::vector<PortId> lit = op.turned();
        std::erase_if(op.dark, [&](PortId port) {
            PortState& s = inventory.port(port);
            const bool stays_dark = (s.op == id || s.leaves == id) && !std::binary_search(lit.begin(), lit.end(), port);
            if (!stays_dark && s.leaves == id) s.leaves = 0;
            return !stays_dark;
        });
        Program p{op.sw, op.id, {}, switch_timeout(op.sw)};
        for (const PortId port : op.disconnect) p.changes.disconnect.push_back(fabric.ports[port].sw_port);
        for (const auto& entry : op.connect)
            p.changes.connect.emplace_back(fabric.ports[entry.second.a].sw_port, fabric.ports[entry.second.b].sw_port);
        ++counters.reconfigurations;
        out->push_back(std::move(p));
        Trace t;
        t.kind = Trace::Kind::program_begin;
        t.id = id;
        trace(std::move(t));
    }
    new_ops.clear();
    open_ops.clear();
}

void Core::Impl::settle_op(Op& op, const Applied& applied) {
    for (const auto& [edge, circuit] : op.connect) {
        std::erase(inventory.edge(edge).coming, circuit);
        for (const PortId p : {circuit.a, circuit.b}) {
            inventory.port(p).op = 0;
            trust(p);
        }
        inventory.light(circuit, step, now);
        inventory.see(circuit);
        Trace t;
        t.kind = Trace::Kind::circuit_up;
        t.id = op.id;
        t.circuit = circuit;
        trace(std::move(t));
    }
    for (const PortId p : op.dark) {
        PortState& s = inventory.port(p);
        if (s.leaves == op.id) s.leaves = 0;
        if (s.op == op.id) s.op = 0;
        if (s.op != 0 || s.peer != kNone) continue;  // another has taken it meanwhile
        s.no_light = false;
        s.note.clear();
        s.changed = step;
    }
    for (const auto& entry : op.connect) wake_edge(entry.first);
    for (const PortId p : op.dark) wake(fabric.ports[p].gpu);
    carried_out(op);
    const TimeNs took = applied.settled_ns > applied.sent_ns ? applied.settled_ns - applied.sent_ns : now - op.begun_ns;
    if (op.planned) made_ahead(op, took);
    if (op.has_ctl) out->push_back(CtlDone{op.ctl, true, {}});
    if (op.planned)
        for (const auto& entry : op.connect) lit_for_plan(entry.second.a);
    const std::vector<OpGang> waiting = std::move(op.gangs);
    inventory.ops().erase(OpId(op.id));
    for (const OpGang& ref : waiting) {
        Gang* gang = find_gang(ref.gang);
        if (gang == nullptr || gang->state != Gang::State::programming || gang->attempt != ref.attempt) continue;
        gang->dark_ns = std::max(gang->dark_ns, took);
        if (--gang->pending_ops > 0) continue;
        // A switch that has confirmed may have lost its session since, and then it is asked again first; or a member
        // has become known, and more circuits are needed than were asked for.
        const bool lit = is_lit(*gang);
        lit ? grant(*gang) : fail_gang(*gang);
    }
}

// Its ports are in doubt until read back; its gangs wait again, on every rail.
void Core::Impl::fail_op(Op& op, DriverError error, const std::string& text) {
    // A lost session says nothing of the port, and the switch may still be at work on the command.
    const bool cut_off = error == DriverError::unreachable || error == DriverError::cancelled;
    const TimeNs until = cut_off ? op.begun_ns + command_time(op.sw) : 0;
    ++counters.switch_errors;
    log(LogLevel::error, fabric.switches[op.sw].name + ": change set " + std::to_string(op.id) + " failed: " + text);
    SwitchState& sw = inventory.sw(op.sw);
    if (!cut_off) not_carried_out(op);
    const auto doubt = [&](PortId p) {
        PortState& s = inventory.port(p);
        s.op = 0;
        s.unknown = true;
        s.dark_by_fault = true;
        s.doubt_until_ns = until;
        s.changed = step;
        s.note = text;
        wake(fabric.ports[p].gpu);
    };
    for (const auto& [edge, circuit] : op.connect) {
        std::erase(inventory.edge(edge).coming, circuit);
        sw.suspects.push_back({circuit, !cut_off && op.connect.size() == 1, error == DriverError::no_light, op.begun_ns,
                               op.tries});
        doubt(circuit.a);
        doubt(circuit.b);
        lose_turns(circuit.a);
        lose_turns(circuit.b);
    }
    for (const PortId p : op.dark) {
        PortState& s = inventory.port(p);
        if (s.leaves == op.id) s.leaves = 0;
        if ((s.op == 0 || s.op == op.id) && s.peer == kNone) doubt(p);  // else another has taken it meanwhile
    }
    if (op.has_ctl) out->push_back(CtlDone{op.ctl, false, text});
    for (const auto& entry : op.connect) ahead[entry.second.a] = ahead[entry.second.b] = {};
    const std::vector<OpGang> waiting = std::move(op.gangs);
    const SwitchIndex s = op.sw;
    const TimeNs begun = op.begun_ns;
    inventory.ops().erase(OpId(op.id));
    for (const OpGang& ref : waiting)
        if (Gang* gang = find_gang(ref.gang);
            gang != nullptr && gang->state == Gang::State::programming && gang->attempt == ref.attempt)
            fail_gang(*gang);
    if (cut_off) arm(begun + switch_timeout(s), TimerKind::switch_read, s);  // by then it is over, however slow
    read_map(s);
}

// What its keys need now, each looked at once: all members of a ring have the same.
bool Core::Impl::is_lit(const Gang& gang) {
    const std::uint64_t m = next_mark();
    for (const Launch* launch : gang.launches)
        for (const KeyRef& r : launch->keys) {
            if (std::exchange(r.key->mark, m) != m && !is_lit(*r.key)) return false;
        }
    return true;
}

void Core::Impl::unclaim(Gang& gang) {
    for (const EdgeId e : gang.edges)
        if (--inventory.edge(e).claims == 0 && !inventory.edge(e).busy()) wake_edge(e);
}

// Keeps its ticket, and nothing else: circuits already moved stay, owned by nobody.
void Core::Impl::fail_gang(Gang& gang) {
    unclaim(gang);
    gang.state = Gang::State::waiting;
    ++gang.attempt;
    ++gang.failures;
    if (gang.launches.empty()) return erase_gang(gang);
    gang.retry_at_ns = now + (TimeNs(100'000'000) << std::min(gang.failures - 1, 5u));
    arm(gang.retry_at_ns, TimerKind::gang_retry, gang.id);
    restamp(gang);
    for (Launch* launch : gang.launches) launch->stage = launch->open ? Stage::suspended : Stage::ready;
    const std::vector<Launch*> launches = gang.launches;
    regather(launches);  // others may have come meanwhile
}

// Whole or not at all: every launch of it is in flight from here on. Where a node's session is gone in this
// moment, its snapshot will say `ready` and it is told again.
void Core::Impl::grant(Gang& gang) {
    count_grant(gang, use_ahead(gang));
    begin_use(gang);
    const double bytes = Planner::bytes_of(gang);
    for (const EdgeId e : gang.edges) {
        Edge& edge = inventory.edge(e);
        edge.most_bytes = std::max(edge.most_bytes, bytes);
        ++edge.uses;
    }
    while (runs.count(next_grant) != 0) ++next_grant;  // an older controller's, whose epoch was the same
    const std::uint64_t id = next_grant++;
    const bool claimed = gang.state == Gang::State::programming;
    std::sort(gang.launches.begin(), gang.launches.end(), [](const Launch* x, const Launch* y) { return x->id < y->id; });
    const std::uint32_t circuits = fewest_circuits(gang.edges);
    auto soft = begin_run(gang, id, circuits);
    struct Told {
        NodeIndex node = kNone;
        std::vector<wire::LocalLaunch> firm, back;
        bool grant = false;
    };
    std::vector<Told> told;  // in their order
    for (Launch* launch : gang.launches) {
        launch->gang = nullptr;
        if (told.empty() || told.back().node != launch->id.node) told.push_back({launch->id.node, {}, {}, false});
        (launch->open ? told.back().back : told.back().firm).push_back({launch->id.rank, launch->id.seq});
        if (launch->open) {
            Trace t;
            t.kind = Trace::Kind::resume;
            t.id = gang.ticket;
            t.launch = launch->id;
            trace(std::move(t));
        }
        if (auto it = grants.find(launch->grant); it != grants.end() && --it->second.running == 0) grants.erase(it);
        launch->grant = id;
        launch->circuits = circuits;
        start_flight(*launch);
    }
    if (!gang.launches.empty()) grants[id] = {gang.ticket, static_cast<std::uint32_t>(gang.launches.size())};
    // Others that share a key with these may be joiners now.
    const std::uint64_t m = next_mark();
    for (const Launch* launch : gang.launches)
        for (const KeyRef& r : launch->keys) {
            if (r.key->mark == m) continue;
            r.key->mark = m;
            for (const KeyMember& member : r.key->members)
                if (member.launch != nullptr && member.launch->waits() && member.launch->gang != nullptr)
                    queue(*member.launch->gang, true);
        }
    gang.launches.clear();
    if (claimed) unclaim(gang);
    for (Told& t : told) {
        if (t.firm.empty()) continue;
        t.grant = true;
        auto run = soft.extract(t.node);
        send_grant(t.node, id, std::move(t.firm), run ? std::move(run.mapped()) : std::vector<wire::KeyRange>{});
    }
    for (auto& [node, run] : soft) send_grant(node, id, {}, std::move(run));  // theirs is in flight already
    for (Told& t : told) {
        if (t.back.empty()) continue;
        if (!t.grant) send_grant(t.node, id, {});
        send(t.node, wire::Suspended{std::move(t.back), true});
    }
    erase_gang(gang);
}

void Core::Impl::count_grant(const Gang& gang, TimeNs exposed) {
    ++counters.grants;
    TimeNs last = gang.complete_ns;  // when the last of it came: before that there was nothing to decide
    for (const Launch* launch : gang.launches) last = std::max(last, launch->complete_ns);
    const bool moved = gang.state == Gang::State::programming;
    if (!moved) ++counters.gangs_without_move;
    const TimeNs placed = moved ? gang.placed_ns : now;
    const TimeNs queued_for = gang.blocked_ns >= 0 ? std::max<TimeNs>(0, placed - std::max(last, gang.blocked_ns)) : 0;
    const TimeNs dark = moved ? std::min(gang.dark_ns, now - placed) : 0;
    counters.queue_wait_ns += queued_for;
    counters.dark_wait_ns += dark;
    counters.control_ns += std::max<TimeNs>(0, now - std::min(last, placed) - queued_for - dark);
    Trace t;
    t.kind = Trace::Kind::gang_granted;
    t.id = gang.ticket;
    if (!gang.launches.empty()) t.launch = gang.launches.front()->id;
    t.ready_ns = last;
    t.queue_ns = queued_for;
    t.dark_ns = exposed;
    trace(std::move(t));
}

// --- steering -------------------------------------------------------------------------------------

void Core::Impl::send_grant(NodeIndex node, std::uint64_t id, std::vector<wire::LocalLaunch> firm,
                            std::vector<wire::KeyRange> soft) {
    if (nodes[node].session == 0) return;
    wire::Grant grant{id != 0 ? id : next_grant++, std::move(firm), std::move(soft), steering_news(node)};
    if (!grant.firm.empty() || !grant.soft.empty() || !grant.steering.empty()) send(node, std::move(grant));
}

// What changed since the node was last told. One that is being turned, or was when something failed, leads
// nowhere, nor does one that is joined without light. Nothing is said of one whose switch cannot be asked now: light goes on without its session.
std::vector<wire::PortSteering> Core::Impl::steering_news(NodeIndex node) {
    std::vector<wire::PortSteering> news;
    const Node& n = fabric.nodes[node];
    for (std::uint32_t local = 0; local < n.gpus.size(); ++local) {
        const Gpu& gpu = fabric.gpus[n.gpus[local]];
        for (std::uint32_t index = 0; index < gpu.ports.size(); ++index) {
            PortState& s = inventory.port(gpu.ports[index]);
            const bool turned = s.op != 0 || (s.unknown && s.changed != 0);
            if (!turned && !inventory.known(gpu.ports[index])) continue;
            const PortId leads = !turned && !s.no_light && s.peer < fabric.ports.size() ? s.peer : kNone;
            if (leads == s.reported) continue;
            s.reported = leads;
            wire::PortSteering entry{local, index, kNone, kNone, kNone};
            if (leads != kNone) {
                const Port& peer = fabric.ports[leads];
                entry.peer_node = fabric.gpus[peer.gpu].node;
                entry.peer_gpu = fabric.gpus[peer.gpu].local;
                entry.peer_port = peer.index;
            }
            news.push_back(entry);
        }
    }
    return news;
}

void Core::Impl::tell_steering(const Launch& launch) {
    nodes[launch.id.node].tell = true;
    owed.insert(launch.id.node);
}

}  // namespace opus::controller
