#include "controller/core/core.h"

#include <algorithm>

#include "controller/core/impl.h"

namespace opus::controller {

Core::Core(const Fabric& fabric, CoreOptions options) : impl_(std::make_unique<Impl>(fabric, options)) {}
Core::~Core() = default;

void Core::on(const Event& event, TimeNs now, Actions& out) { impl_->on(event, now, out); }
const Counters& Core::counters() const { return impl_->counters; }

Core::Impl::Impl(const Fabric& f, CoreOptions o)
    : fabric(f), options(o), inventory(f), planner(inventory), nodes(f.nodes.size()), watchers(f.gpus.size()) {
    ahead.resize(f.ports.size());
    course_at.resize(f.ports.size());
    users.resize(f.ports.size());
    // Managers hold grants of an older controller beside ours.
    next_grant = (options.epoch << 20) + 1;
}

void Core::Impl::on(const Event& event, TimeNs at, Actions& actions) {
    now = at;
    out = &actions;
    ++step;
    if (!started) {
        started = true;
        for (NodeIndex n = 0; n < nodes.size(); ++n) nodes[n].grace_at_ns = now + options.node_grace_ns;
        if (!nodes.empty()) arm(now + options.node_grace_ns, TimerKind::node_grace, kNone);
        arm(now + options.node_silence_ns, TimerKind::silence, 0);
        doubt_all();
    }
    if (options.map_period_ns > 0 && now >= read_again_ns) read_maps_again();
    std::visit([this](const auto& e) { handle(e); }, event);
    finish_step();
    out = nullptr;
}

// Decisions first, then what nodes are told, then what switches are told: a node hears that a port goes
// dark before the port does.
void Core::Impl::finish_step() {
    if (adoption_due) settle_adopted();
    if (!unheard.empty()) tell_again();
    if (!by_hand.empty()) drain_ports();
    schedule();
    follow_plans();
    schedule();
    if (!to_try.empty()) try_ports();
    if (!gangs.empty() && !waiting_armed) {
        waiting_armed = true;
        arm(now + kTellWaiting, TimerKind::waiting, 0);
    }
    while (!owed.empty()) {
        const NodeIndex n = *owed.begin();
        owed.erase(owed.begin());
        NodeState& node = nodes[n];
        if (!node.verdicts.empty()) send(n, wire::Verdicts{std::move(node.verdicts)});
        node.verdicts.clear();
        if (node.tell && node.up()) {
            node.tell = false;
            send_grant(n, 0, {});
        }
    }
    emit_programs();
    if (const TimeNs at = timers.empty() ? -1 : std::get<0>(*timers.begin()); at >= 0 && at != wake_told) {
        wake_told = at;
        out->push_back(WakeAt{at});
    }
}

void Core::Impl::handle(const Tick&) {
    while (!timers.empty() && std::get<0>(*timers.begin()) <= now) {
        const auto [at, kind, id] = *timers.begin();
        timers.erase(timers.begin());
        fire(kind, id);
    }
    wake_told = -1;
}

void Core::Impl::arm(TimeNs at, TimerKind kind, std::uint64_t id) { timers.emplace(std::max(at, now), kind, id); }

// A timer outlives what it was set for: each looks again whether there is anything to do.
void Core::Impl::fire(TimerKind kind, std::uint64_t id) {
    switch (kind) {
        case TimerKind::gang_break:
            if (Gang* g = find_gang(id)) consider_suspension(*g);
            break;
        case TimerKind::gang_hold: end_holds(); break;
        case TimerKind::gang_retry:
            if (Gang* g = find_gang(id)) queue(*g, true);
            break;
        case TimerKind::run_quantum: quantum_over(id); break;
        case TimerKind::comm_register:
            if (Comm* c = comms.by_number(id)) look_for_missing(*c);
            break;
        case TimerKind::node_grace:
            for (NodeIndex n = 0; n < nodes.size(); ++n)
                if ((id == kNone || id == n) && nodes[n].grace_at_ns != 0 && nodes[n].grace_at_ns <= now)
                    give_up_node(n);
            break;
        case TimerKind::node_hold: node_hold_over(static_cast<NodeIndex>(id)); break;
        case TimerKind::switch_read: read_map(static_cast<SwitchIndex>(id)); break;
        case TimerKind::switches_again: break;  // it was only to wake us: on() has looked
        case TimerKind::port_trial: trial_due(static_cast<PortId>(id)); break;
        case TimerKind::silence: watch_silence(); break;
        case TimerKind::waiting: tell_waiting(); break;
        case TimerKind::call_kept: open_kept_calls(); break;
    }
}

void Core::Impl::send(NodeIndex node, wire::Message&& message) {
    if (nodes[node].session == 0) return;
    out->emplace_back(SendTo{node, nodes[node].session, std::move(message)});
}

void Core::Impl::log(LogLevel level, std::string text) { out->push_back(Log{level, std::move(text)}); }

void Core::Impl::trace(const Trace& t) { std::get<Trace>(out->emplace_back(t)).at_ns = now; }

void Core::Impl::handle(const NodeMessage& e) {
    if (e.node >= nodes.size() || nodes[e.node].session == 0 || nodes[e.node].session != e.session) return;
    NodeState& node = nodes[e.node];
    node.last_seen_ns = now;
    if (!node.reported && !std::holds_alternative<wire::Snapshot>(e.message)) {
        if (!std::holds_alternative<wire::Heartbeat>(e.message)) resync(e.node, "a session begins with a snapshot");
        return;
    }
    std::visit([&](const auto& m) { hear(e.node, m); }, e.message);
}

void Core::Impl::hear(NodeIndex n, const wire::Register& m) {
    register_ranks(n, m.ranks);
    for (const wire::CommEntrant& entrant : m.entering) enter_creation(n, entrant);
    for (const wire::CommMember& member : m.comms) register_member(n, member);
}

void Core::Impl::hear(NodeIndex n, const wire::Retire& m) {
    for (const wire::CommGone& gone : m.comms) member_gone(n, gone.rank, gone.comm);
    for (const wire::CommEntrant& e : m.failed) creation_failed(n, e.rank, e.comm, Reason::left);
    for (const wire::CommGone& lost : m.degraded) {
        const Rank* rank = rank_of(n, lost.rank);
        Comm* comm = comms.find(lost.comm);
        if (comm == nullptr || rank == nullptr || rank->comms.count(lost.comm) == 0) continue;
        degrade(*comm, Policy::proceed, Reason::unrecorded,
                fabric.nodes[n].name + ".r" + std::to_string(lost.rank) + " let launches pass unrecorded or alone");
    }
    for (const RankId rank : m.ranks) end_rank(n, rank, "ended");
}

void Core::Impl::hear(NodeIndex n, const wire::Demand& m) {
    for (const wire::LaunchDemand& d : m.launches) demand(n, d);
}

void Core::Impl::hear(NodeIndex n, const wire::Done& m) {
    for (const wire::LaunchDone& d : m.launches) hear_done(n, d);
    for (const wire::LaunchRan& r : m.ran) hear_ran(n, r);
    for (const std::uint64_t grant : m.ended)
        if (Run* run = find_run(grant)) node_is_over(*run, n);
    for (const wire::LaunchSeen& s : m.seen) hear_seen(n, s);
}

}  // namespace opus::controller
