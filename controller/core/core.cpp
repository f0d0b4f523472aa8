#include "controller/core/core.h"

#include <utility>

#include "controller/core/impl.h"

namespace opus::controller {

Core::Core(const Fabric& fabric, CoreOptions options) : impl_(std::make_unique<Impl>(fabric, options)) {}
Core::~Core() = default;

void Core::on(const Event& event, TimeNs now, Actions& out) { impl_->on(event, now, out); }

void Core::Impl::on(const Event& event, TimeNs now, Actions& actions) {
    world.now = now;
    world.out = &actions;
    ++world.step;
    if (!std::exchange(started_, true)) begin();
    if (rooms.switches.is_reading_due()) rooms.switches.read_maps_again();
    std::visit([this](const auto& e) { handle(e); }, event);
    finish_step();
    world.out = nullptr;
}

void Core::Impl::begin() {
    const CoreOptions& options = world.options;
    for (NodeState& node : world.nodes) node.grace_at_ns = world.now + options.node_grace_ns;
    if (!world.nodes.empty()) world.timers.arm(world.now + options.node_grace_ns, TimerKind::node_grace, kNone);
    rooms.switches.doubt_all();
}

// Decisions first, then what nodes are told, then what switches are told: a node hears that a port goes
// dark before the port does.
void Core::Impl::finish_step() {
    if (rooms.adoption.is_due()) rooms.adoption.settle_known();
    rooms.node_sessions.tell_again();
    rooms.fences.drain_ports();
    rooms.schedule.schedule();
    rooms.turns.follow_plans();
    rooms.schedule.schedule();
    rooms.fences.try_ports();
    rooms.explain.watch_waiting();
    while (!world.owed.empty()) {
        const NodeIndex n = *world.owed.begin();
        world.owed.erase(world.owed.begin());
        NodeState& node = world.nodes[n];
        if (!node.verdicts.empty() && node.session != 0)
            world.out->push_back(SendTo{n, node.session, wire::Verdicts{std::move(node.verdicts)}});
        node.verdicts.clear();
        if (node.tell && node.up()) {
            node.tell = false;
            rooms.grants.send_grant(n, 0, {});
        }
    }
    rooms.change_sets.emit();
    if (const auto at = world.timers.next(); at && *at != wake_told_ns_) {
        wake_told_ns_ = *at;
        world.out->push_back(WakeAt{*at});
    }
}

void Core::Impl::handle(const Tick&) {
    while (const auto timer = world.timers.take_due(world.now)) fire(*timer);
    wake_told_ns_ = -1;
}

void Core::Impl::fire(const Timers::Timer& timer) {
    const std::uint64_t id = timer.id;
    switch (timer.kind) {
        case TimerKind::gang_break:
            if (Gang* g = rooms.gangs.find(id)) rooms.suspension.consider(*g);
            break;
        case TimerKind::gang_hold: rooms.holds.end_holds(); break;
        case TimerKind::gang_retry:
            if (Gang* g = rooms.gangs.find(id)) rooms.schedule.queue(*g, true);
            break;
        case TimerKind::run_quantum: rooms.runs.quantum_over(id); break;
        case TimerKind::comm_register:
            if (Comm* c = world.comms.by_number(id)) rooms.creation.look_for_missing(*c);
            break;
        case TimerKind::node_grace: rooms.node_sessions.end_grace(static_cast<NodeIndex>(id)); break;
        case TimerKind::node_hold: rooms.node_sessions.node_hold_over(static_cast<NodeIndex>(id)); break;
        case TimerKind::switch_read: rooms.switches.read_map(static_cast<SwitchIndex>(id)); break;
        case TimerKind::switches_again: break;  // it was only to wake us: on() has looked
        case TimerKind::port_trial: rooms.fences.trial_due(static_cast<PortId>(id)); break;
        case TimerKind::waiting: rooms.explain.tell_waiting(); break;
        case TimerKind::call_kept: rooms.launches.open_kept_calls(); break;
    }
}

void Core::Impl::handle(const NodeMessage& e) {
    if (e.node >= world.nodes.size()) return;
    NodeState& node = world.nodes[e.node];
    if (node.session == 0 || node.session != e.session) return;
    node.last_seen_ns = world.now;
    if (!node.reported && !std::holds_alternative<wire::Snapshot>(e.message)) {
        if (!std::holds_alternative<wire::Heartbeat>(e.message))
            rooms.node_sessions.resync(e.node, "a session begins with a snapshot");
        return;
    }
    std::visit([&](const auto& m) { hear(e.node, m); }, e.message);
}

void Core::Impl::hear(NodeIndex n, const wire::Register& m) {
    rooms.registration.register_ranks(n, m.ranks);
    for (const wire::CommEntrant& entrant : m.entering) rooms.creation.enter(n, entrant);
    for (const wire::CommMember& member : m.comms) rooms.registration.register_member(n, member);
}

void Core::Impl::hear(NodeIndex n, const wire::Retire& m) {
    for (const wire::CommGone& gone : m.comms) rooms.registration.member_gone(n, gone.rank, gone.comm);
    for (const wire::CommEntrant& e : m.failed) rooms.creation.fail(n, e.rank, e.comm, Reason::left);
    for (const wire::CommGone& lost : m.degraded) {
        const Rank* rank = world.rank_of(n, lost.rank);
        Comm* comm = world.comms.find(lost.comm);
        if (comm == nullptr || rank == nullptr || rank->comms.count(lost.comm) == 0) continue;
        rooms.registration.degrade(
            *comm, Policy::proceed, Reason::unrecorded,
            world.fabric.nodes[n].name + ".r" + std::to_string(lost.rank) + " let launches pass unrecorded or alone");
    }
    for (const RankId rank : m.ranks) rooms.registration.end_rank(n, rank, "ended");
}

void Core::Impl::hear(NodeIndex n, const wire::Demand& m) {
    for (const wire::LaunchDemand& d : m.launches) rooms.launches.demand(n, d);
}

void Core::Impl::hear(NodeIndex n, const wire::Done& m) {
    for (const wire::LaunchDone& d : m.launches) rooms.launches.hear_done(n, d);
    for (const wire::LaunchRan& r : m.ran) rooms.cuts.hear_ran(n, r);
    for (const std::uint64_t grant : m.ended)
        if (Run* run = rooms.runs.find(grant)) rooms.runs.node_is_over(*run, n);
    for (const wire::LaunchSeen& s : m.seen) rooms.launches.hear_seen(n, s);
}

// Invariants of the rooms' own state, for tests: true after every event, or the first that is not.
std::string Core::Impl::check() {
    for (std::string fault : {rooms.change_sets.check(), rooms.launches.check(), rooms.gangs.check(),
                              rooms.hidden.check(), rooms.runs.check()})
        if (!fault.empty()) return fault;
    return {};
}

}  // namespace opus::controller
