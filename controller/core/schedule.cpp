// The schedule: gangs in ticket order, those first whose calls hold ports (Gang::in_call). A gang that cannot have its ports
// now reserves them, and later ones leave them to it, unless all their circuits are up and a launch in flight waits for
// them (joiners).
#include <algorithm>

#include "controller/core/impl.h"

namespace opus::controller {

void Core::Impl::schedule() {
    // Each attempt either places its gang or leaves it asleep, so this ends; the bound is there so that a
    // mistake shows as a line in the log instead of a silent daemon.
    for (std::size_t bound = 64 * gangs.size() + 4096; !queued.empty(); --bound) {
        Gang& gang = *queued.begin()->second;
        queued.erase(queued.begin());
        gang.queued = false;
        if (bound == 0)
            return log(LogLevel::error, "the schedule does not settle: gang " + std::to_string(gang.ticket));
        attempt(gang);
    }
}

void Core::Impl::attempt(Gang& gang) {
    if (gang.state != Gang::State::waiting || now < gang.retry_at_ns) return;
    std::vector<EdgeId> added;
    const bool grown = collect(gang, added);
    if (gang.blocked && !gang.force && !gang.offline && !(grown && gang.lit)) {
        if ((added.empty() || want_more(gang, added)) && still_blocked(gang)) return;
    }
    gang.force = gang.offline = gang.lit = false;
    gang.looked_step = step;
    unwatch(gang);
    if (!gang.sorted) {
        std::sort(gang.edges.begin(), gang.edges.end());
        gang.edges.erase(std::unique(gang.edges.begin(), gang.edges.end()), gang.edges.end());
        gang.sorted = true;
    }
    if (gang.unjudged || !reachable(gang)) {
        if (gang.unjudged) restamp(gang);
        gang.blocked = gang.offline = true;
        return set_wanted(gang, {});
    }
    if (gang.edges.empty()) return grant(gang);
    if (!lies_lit(gang) && !is_routable(gang)) return not_routable(gang);
    if (meets_committed(gang)) return block(gang);
    bool reserved = false;
    gang.lit = all_lit(gang, reserved);
    if (suspended_now(gang)) return back_off(gang);
    if (gang.lit && (joins_flight(gang) || involves_laggard(gang) || (reserved && may_pass(gang)))) return grant(gang);
    const auto planned = planned_use(gang);
    if (planned && !gang.in_call)
        if (const TimeNs until = turn_of(gang, *planned); until > now) return wait_turn(gang, until);
    // Lit, but perhaps not by all the ports it could have: a phase gets the whole bandwidth (design, section 5.6), or as much as is planned.
    if (Plan plan; planner.place(gang, plan, planned.has_value())) {
        if (plan.fresh.empty()) return grant(gang);
        if (const TimeNs until = rests_until(plan); until > now) {
            block(gang);
            gang.offline = true;
            return arm(until, TimerKind::gang_retry, gang.id);
        }
        return program(gang, plan);
    }
    if (gang.lit && !reserved) return grant(gang);
    block(gang);
}

// A grant must reach the managers of all that are to start.
bool Core::Impl::reachable(const Gang& gang) {
    return std::all_of(gang.launches.begin(), gang.launches.end(),
                       [this](const Launch* l) { return l->open || nodes[l->id.node].up(); });
}

// A gang that is being programmed was complete without these; they start after it, not before, so that
// nothing starts alone if a switch fails. Its grant, or its failure, queues them again.
bool Core::Impl::meets_committed(const Gang& gang) {
    const std::uint64_t m = next_mark();
    for (const Launch* launch : gang.launches)
        for (const KeyRef& r : launch->keys) {
            if (r.key->mark == m || !r.key->full()) continue;
            r.key->mark = m;
            for (const KeyMember& member : r.key->members)
                if (member.launch != nullptr && member.launch->stage == Stage::committed && !member.launch->open)
                    return true;
        }
    return false;
}

// Parallel circuits may be left to a launch that was suspended in this very step. It is back when the
// others have been taken away, not before. Its gang may be the one that it was suspended for: it keeps its place.
bool Core::Impl::suspended_now(const Gang& gang) const {
    return std::any_of(gang.launches.begin(), gang.launches.end(),
                       [this](const Launch* l) { return l->open && l->suspended_step == step; });
}

void Core::Impl::back_off(Gang& gang) {
    reserve(gang);
    gang.blocked = gang.offline = true;
    arm(now + 1, TimerKind::gang_retry, gang.id);
}

// By shape: what was found once for a communicator holds until another port is fenced.
bool Core::Impl::is_routable(Gang& gang) {
    const std::uint64_t fence = inventory.fence_generation + 1;
    std::uint64_t* shape = nullptr;
    if (gang.key_count == 1 && is_collective(gang.first_key->key))
        shape = gang.first_key->mesh ? &gang.first_key->comm->mesh_routable : &gang.first_key->comm->ring_routable;
    if (shape != nullptr && *shape == fence) return true;
    if (gang.routable_fence == fence && gang.routable_edges == gang.edges.size()) return true;
    if (!planner.routable(gang.edges)) return false;
    if (shape != nullptr) *shape = fence;
    gang.routable_fence = fence;
    gang.routable_edges = gang.edges.size();
    return true;
}

// On ports that nothing is held against, or by light that is in use: so there is a way.
bool Core::Impl::lies_lit(const Gang& gang) const {
    return std::all_of(gang.edges.begin(), gang.edges.end(), [this](EdgeId e) {
        const Circuit* c = inventory.lit(e);
        if (c == nullptr) return false;
        return inventory.edge(e).held() || (!inventory.port(c->a).fenced() && !inventory.port(c->b).fenced());
    });
}

bool Core::Impl::all_lit(const Gang& gang, bool& reserved) const {
    for (const EdgeId e : gang.edges) {
        if (inventory.lit(e) == nullptr) return false;
        for (const Circuit& c : inventory.edge(e).up)
            reserved |= inventory.reserved_earlier(c.a, gang, e) || inventory.reserved_earlier(c.b, gang, e);
    }
    return true;
}

// Those that have reserved its light would turn it away, to bring it back for this gang afterwards. It goes first,
// unless one of them has waited as long as a move takes: nobody is passed for ever.
bool Core::Impl::may_pass(const Gang& gang) const {
    for (const EdgeId e : gang.edges)
        for (const Circuit& c : inventory.edge(e).up)
            for (const PortId p : {c.a, c.b})
                for (const Reservation& r : inventory.port(p).reservations) {
                    if (r.gang == &gang || r.edge == e || r.gang->order() >= gang.order()) continue;
                    if (now - complete_since(*r.gang) >= fabric.switch_of(p).dark_ns) return false;
                }
    return true;
}

// A launch in flight (or one that is done, whose bytes may still be on their way) waits for this gang.
bool Core::Impl::joins_flight(const Gang& gang) const {
    for (const Launch* launch : gang.launches)
        for (const KeyRef& r : launch->keys)
            if (r.key->in_flight > 0 || r.key->held) return true;
    return false;
}

// --- reservations ---------------------------------------------------------------------------------

void Core::Impl::block(Gang& gang) {
    gang.blocked = true;
    if (gang.blocked_ns < 0) gang.blocked_ns = now;
    reserve(gang);
    for (const WantedPort& w : gang.wanted) revoke_for(gang, w);
    gang.scan = 0;
    watch(gang);
    if (gang.break_armed) return;
    gang.break_armed = true;
    arm(now + break_time(gang), TimerKind::gang_break, gang.id);
}

void Core::Impl::reserve(Gang& gang) {
    Plan plan;
    planner.want(gang, plan);
    std::vector<WantedPort> wanted;
    wanted.reserve(2 * (plan.kept.size() + plan.fresh.size()));
    for (const auto& [e, circuit] : plan.kept) {
        const auto& up = inventory.edge(e).up;
        for (const Circuit& c : up.empty() ? std::vector<Circuit>{circuit} : up) {
            wanted.push_back({c.a, e});
            wanted.push_back({c.b, e});
        }
    }
    for (const auto& [e, circuit] : plan.fresh) {
        wanted.push_back({circuit.a, e});
        wanted.push_back({circuit.b, e});
    }
    set_wanted(gang, std::move(wanted));
}

// What it no longer wants may be what another waits for.
void Core::Impl::set_wanted(Gang& gang, std::vector<WantedPort> wanted) {
    const std::vector<WantedPort> old = std::move(gang.wanted);
    gang.wanted = std::move(wanted);
    for (const WantedPort& w : old)
        std::erase_if(inventory.port(w.port).reservations, [&](const Reservation& r) { return r.gang == &gang; });
    gang.wanted_dark_ns = 0;
    for (const WantedPort& w : gang.wanted) {
        inventory.port(w.port).reservations.push_back({&gang, w.edge});
        gang.wanted_dark_ns = std::max(gang.wanted_dark_ns, fabric.switch_of(w.port).dark_ns);
    }
    for (const WantedPort& w : old)
        if (!inventory.port(w.port).reservations.empty() && !inventory.reserved_by(gang, w.port, w.edge))
            wake(fabric.ports[w.port].gpu);
}

// The gang grew while it waits for something else: reserve for the new part alone. False: look at it whole.
bool Core::Impl::want_more(Gang& gang, const std::vector<EdgeId>& added) {
    const auto add = [&](EdgeId e, const Circuit& c) {
        for (const PortId p : {c.a, c.b}) {
            inventory.port(p).reservations.push_back({&gang, e});
            gang.wanted.push_back({p, e});
            gang.wanted_dark_ns = std::max(gang.wanted_dark_ns, fabric.switch_of(p).dark_ns);
            revoke_for(gang, gang.wanted.back());
        }
    };
    for (const EdgeId e : added) {
        const Edge& edge = inventory.edge(e);
        if (!edge.up.empty() || !edge.coming.empty()) {
            const Circuit c = edge.up.empty() ? edge.coming.front() : edge.up.front();
            if (inventory.reserved_by(gang, c.a, e) && inventory.reserved_by(gang, c.b, e)) continue;
            if (inventory.reserved_by(gang, c.a) || inventory.reserved_by(gang, c.b)) return false;  // for other pairs
            add(e, c);
            continue;
        }
        bool found = false;
        for (const PortId p : fabric.gpus[edge.a].ports)
            for (const PortId q : fabric.gpus[edge.b].ports) {
                if (found || !fabric.can_join(p, q)) continue;
                if (inventory.port(p).fenced() || inventory.port(q).fenced()) continue;
                if (inventory.reserved_by(gang, p) || inventory.reserved_by(gang, q)) continue;
                add(e, make_circuit(p, q));
                found = true;
            }
        if (!found) return false;
    }
    return true;
}

// --- waking ---------------------------------------------------------------------------------------

// What it waited for has changed: is it still in the way, or is the next thing?
bool Core::Impl::still_blocked(Gang& gang) {
    while (gang.scan < gang.wanted.size() && inventory.obstacle(gang.wanted[gang.scan], gang) == Obstacle::none)
        ++gang.scan;
    if (gang.scan == gang.wanted.size()) return false;
    // Others have joined the pair meanwhile, elsewhere: what is in the way here need not be.
    if (const Circuit* c = inventory.lit(gang.wanted[gang.scan].edge);
        c != nullptr && inventory.port(c->a).changed > gang.looked_step)
        return false;
    revoke_for(gang, gang.wanted[gang.scan]);
    const GpuId gpu = fabric.ports[gang.wanted[gang.scan].port].gpu;
    for (const PortId p : fabric.gpus[gpu].ports)  // another port of it may do
        if (!inventory.reserved_by(gang, p) && inventory.obstacle(p, gang) == Obstacle::none) return false;
    unwatch(gang);
    watch(gang);
    gang.blocked = true;
    return true;
}

void Core::Impl::watch(Gang& gang) {
    while (gang.scan < gang.wanted.size() && inventory.obstacle(gang.wanted[gang.scan], gang) == Obstacle::none)
        ++gang.scan;
    if (gang.scan == gang.wanted.size()) {
        gang.watch_all = true;
        watching_all.insert(gang.order());
        return;
    }
    gang.watch = fabric.ports[gang.wanted[gang.scan].port].gpu;
    watchers[gang.watch].push_back(&gang);
}

void Core::Impl::unwatch(Gang& gang) {
    gang.blocked = false;
    if (gang.watch_all) watching_all.erase(gang.order());
    gang.watch_all = false;
    if (gang.watch != kNone) std::erase(watchers[gang.watch], &gang);
    gang.watch = kNone;
}

void Core::Impl::wake(GpuId gpu) {
    for (Gang* gang : watchers[gpu]) queue(*gang, false);
    for (const PortId p : fabric.gpus[gpu].ports)
        if (course_at[p] != nullptr) plan_due.insert(p);
    for (const auto& order : watching_all)
        if (Gang* gang = find_gang(std::get<2>(order))) queue(*gang, true);
}

void Core::Impl::wake_edge(EdgeId e) {
    wake(inventory.edge(e).a);
    wake(inventory.edge(e).b);
}

}  // namespace opus::controller
