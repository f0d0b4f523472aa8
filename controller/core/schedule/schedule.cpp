// The schedule: gangs in ticket order, those first whose calls hold ports (Gang::in_call). A gang that cannot have its
// ports now reserves them, and later ones leave them to it, unless all their circuits are up and a launch in flight
// waits for them (joiners).
#include <algorithm>

#include "controller/core/gangs/gangs.h"
#include "controller/core/leases/cuts.h"
#include "controller/core/leases/runs.h"
#include "controller/core/program/change_sets.h"
#include "controller/core/program/fences.h"
#include "controller/core/program/grants.h"
#include "controller/core/provision/turns.h"
#include "controller/core/recovery/holds.h"
#include "controller/core/recovery/suspension.h"
#include "controller/core/schedule/schedule.h"

namespace opus::controller {

void Schedule::schedule() {
    // Each attempt either places its gang or leaves it asleep, so this ends; the bound is there so that a
    // mistake shows as a line in the log instead of a silent daemon.
    for (std::size_t bound = 64 * gangs_.all().size() + 4096; !queued_.empty(); --bound) {
        Gang& gang = *queued_.begin()->second;
        queued_.erase(queued_.begin());
        gang.queued = false;
        if (bound == 0)
            return log(LogLevel::error, "the schedule does not settle: gang " + std::to_string(gang.ticket));
        attempt(gang);
    }
}

void Schedule::attempt(Gang& gang) {
    if (gang.state != Gang::State::waiting || now_ < gang.retry_at_ns) return;
    std::vector<PairId> added;
    const bool grown = gangs_.collect(gang, added);
    if (gang.sleep == Gang::Sleep::for_ports && !gang.force && !(grown && gang.lit)) {
        if ((added.empty() || want_more(gang, added)) && still_blocked(gang)) return;
    }
    gang.force = gang.lit = false;
    gang.looked_step = step_;
    unwatch(gang);
    if (!gang.sorted) {
        std::sort(gang.pairs.begin(), gang.pairs.end());
        gang.pairs.erase(std::unique(gang.pairs.begin(), gang.pairs.end()), gang.pairs.end());
        gang.sorted = true;
    }
    if (gang.unjudged || !reachable(gang)) {
        if (gang.unjudged) gangs_.restamp(gang);
        gang.sleep = Gang::Sleep::for_others;
        return set_wanted(gang, {});
    }
    if (gang.pairs.empty()) return grants_.grant(gang);
    if (!lies_lit(gang) && !is_routable(gang)) return holds_.not_routable(gang);
    if (meets_committed(gang)) return block(gang);
    bool reserved = false;
    gang.lit = all_lit(gang, reserved);
    if (suspended_now(gang)) return back_off(gang);
    if (gang.lit && (joins_flight(gang) || cuts_.involves_laggard(gang) || (reserved && may_pass(gang))))
        return grants_.grant(gang);
    const auto planned = turns_.planned_use(gang);
    if (planned && !gang.in_call)
        if (const TimeNs until = turns_.turn_of(gang, *planned); until > now_) return turns_.wait_turn(gang, until);
    // Lit, but perhaps not by all the ports it could have: a phase gets the whole bandwidth (design, section 5.6), or as much as is planned.
    if (Plan plan; planner_.place(gang, plan, planned.has_value())) {
        if (plan.fresh.empty()) return grants_.grant(gang);
        if (const TimeNs until = fences_.rests_until(plan); until > now_) {
            block(gang);
            gang.sleep = Gang::Sleep::for_others;
            return arm(until, TimerKind::gang_retry, gang.id);
        }
        return change_sets_.program(gang, plan);
    }
    if (gang.lit && !reserved) return grants_.grant(gang);
    block(gang);
}

// A grant must reach the managers of all that are to start.
bool Schedule::reachable(const Gang& gang) {
    return std::all_of(gang.launches.begin(), gang.launches.end(),
                       [this](const Launch* l) { return l->open() || nodes_[l->id.node].up(); });
}

// A gang that is being programmed was complete without these; they start after it, not before, so that
// nothing starts alone if a switch fails. Its grant, or its failure, queues them again.
bool Schedule::meets_committed(const Gang& gang) {
    const std::uint64_t m = next_mark();
    for (const Launch* launch : gang.launches)
        for (const KeyRef& r : launch->keys) {
            if (r.key->mark == m || !r.key->full()) continue;
            r.key->mark = m;
            for (const KeyMember& member : r.key->members)
                if (member.launch != nullptr && member.launch->stage == Stage::committed && !member.launch->open())
                    return true;
        }
    return false;
}

// Parallel circuits may be left to a launch that was suspended in this very step. It is back when the
// others have been taken away, not before. Its gang may be the one that it was suspended for: it keeps its place.
bool Schedule::suspended_now(const Gang& gang) const {
    return std::any_of(gang.launches.begin(), gang.launches.end(),
                       [this](const Launch* l) { return l->open() && l->suspended_step == step_; });
}

void Schedule::back_off(Gang& gang) {
    reserve(gang);
    gang.sleep = Gang::Sleep::for_others;
    arm(now_ + 1, TimerKind::gang_retry, gang.id);
}

// By shape: what was found once for a communicator holds until another port is fenced.
bool Schedule::is_routable(Gang& gang) {
    const std::uint64_t fence = inventory_.fence_generation + 1;
    std::uint64_t* shape = nullptr;
    if (gang.key_count == 1 && is_collective(gang.first_key->key))
        shape = gang.first_key->mesh ? &gang.first_key->comm->mesh_routable : &gang.first_key->comm->ring_routable;
    if (shape != nullptr && *shape == fence) return true;
    if (gang.routable_fence == fence && gang.routable_pairs == gang.pairs.size()) return true;
    if (!planner_.routable(gang.pairs)) return false;
    if (shape != nullptr) *shape = fence;
    gang.routable_fence = fence;
    gang.routable_pairs = gang.pairs.size();
    return true;
}

// On ports that nothing is held against, or by light that is in use: so there is a way.
bool Schedule::lies_lit(const Gang& gang) const {
    return std::all_of(gang.pairs.begin(), gang.pairs.end(), [this](PairId e) {
        const Circuit* c = inventory_.lit(e);
        if (c == nullptr) return false;
        return inventory_.pair(e).held() || (!inventory_.port(c->a).fenced() && !inventory_.port(c->b).fenced());
    });
}

bool Schedule::all_lit(const Gang& gang, bool& reserved) const {
    for (const PairId e : gang.pairs) {
        if (inventory_.lit(e) == nullptr) return false;
        for (const Circuit& c : inventory_.pair(e).up)
            reserved |= inventory_.reserved_earlier(c.a, gang, e) || inventory_.reserved_earlier(c.b, gang, e);
    }
    return true;
}

// Those that have reserved its light would turn it away, to bring it back for this gang afterwards. It goes first,
// unless one of them has waited as long as a move takes: nobody is passed for ever.
bool Schedule::may_pass(const Gang& gang) const {
    for (const PairId e : gang.pairs)
        for (const Circuit& c : inventory_.pair(e).up)
            for (const PortId p : {c.a, c.b})
                for (const Reservation& r : inventory_.port(p).reservations) {
                    if (r.gang == &gang || r.pair == e || r.gang->order() >= gang.order()) continue;
                    if (now_ - gangs_.complete_since(*r.gang) >= fabric_.switch_of(p).dark_ns) return false;
                }
    return true;
}

// A launch in flight (or one that is done, whose bytes may still be on their way) waits for this gang.
bool Schedule::joins_flight(const Gang& gang) const {
    for (const Launch* launch : gang.launches)
        for (const KeyRef& r : launch->keys)
            if (r.key->in_flight > 0 || r.key->held) return true;
    return false;
}

// --- reservations ---------------------------------------------------------------------------------

void Schedule::block(Gang& gang) {
    gang.sleep = Gang::Sleep::for_ports;
    if (gang.blocked_ns < 0) gang.blocked_ns = now_;
    reserve(gang);
    for (const WantedPort& w : gang.wanted) runs_.revoke_for(gang, w);
    gang.scan = 0;
    watch(gang);
    if (gang.break_armed) return;
    gang.break_armed = true;
    arm(now_ + suspension_.break_time(gang), TimerKind::gang_break, gang.id);
}

void Schedule::reserve(Gang& gang) {
    Plan plan;
    planner_.want(gang, plan);
    std::vector<WantedPort> wanted;
    wanted.reserve(2 * (plan.kept.size() + plan.fresh.size()));
    for (const auto& [e, circuit] : plan.kept) {
        const auto& up = inventory_.pair(e).up;
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
void Schedule::set_wanted(Gang& gang, std::vector<WantedPort> wanted) {
    const std::vector<WantedPort> old = std::move(gang.wanted);
    gang.wanted = std::move(wanted);
    for (const WantedPort& w : old)
        std::erase_if(inventory_.port(w.port).reservations, [&](const Reservation& r) { return r.gang == &gang; });
    gang.wanted_dark_ns = 0;
    for (const WantedPort& w : gang.wanted) {
        inventory_.port(w.port).reservations.push_back({&gang, w.pair});
        gang.wanted_dark_ns = std::max(gang.wanted_dark_ns, fabric_.switch_of(w.port).dark_ns);
    }
    for (const WantedPort& w : old)
        if (!inventory_.port(w.port).reservations.empty() && !inventory_.reserved_by(gang, w.port, w.pair))
            wake(fabric_.ports[w.port].gpu);
}

// The gang grew while it waits for something else: reserve for the new part alone. False: look at it whole.
bool Schedule::want_more(Gang& gang, const std::vector<PairId>& added) {
    const auto add = [&](PairId e, const Circuit& c) {
        for (const PortId p : {c.a, c.b}) {
            inventory_.port(p).reservations.push_back({&gang, e});
            gang.wanted.push_back({p, e});
            gang.wanted_dark_ns = std::max(gang.wanted_dark_ns, fabric_.switch_of(p).dark_ns);
            runs_.revoke_for(gang, gang.wanted.back());
        }
    };
    for (const PairId e : added) {
        const GpuPair& pair = inventory_.pair(e);
        if (!pair.up.empty() || !pair.coming.empty()) {
            const Circuit c = pair.up.empty() ? pair.coming.front() : pair.up.front();
            if (inventory_.reserved_by(gang, c.a, e) && inventory_.reserved_by(gang, c.b, e)) continue;
            if (inventory_.reserved_by(gang, c.a) || inventory_.reserved_by(gang, c.b))
                return false;  // for other pairs
            add(e, c);
            continue;
        }
        bool found = false;
        for (const PortId p : fabric_.gpus[pair.a].ports)
            for (const PortId q : fabric_.gpus[pair.b].ports) {
                if (found || !fabric_.can_join(p, q)) continue;
                if (inventory_.port(p).fenced() || inventory_.port(q).fenced()) continue;
                if (inventory_.reserved_by(gang, p) || inventory_.reserved_by(gang, q)) continue;
                add(e, make_circuit(p, q));
                found = true;
            }
        if (!found) return false;
    }
    return true;
}

// --- waking ---------------------------------------------------------------------------------------

// What it waited for has changed: is it still in the way, or is the next thing?
bool Schedule::still_blocked(Gang& gang) {
    while (gang.scan < gang.wanted.size() && inventory_.obstacle(gang.wanted[gang.scan], gang) == Obstacle::none)
        ++gang.scan;
    if (gang.scan == gang.wanted.size()) return false;
    // Others have joined the pair meanwhile, elsewhere: what is in the way here need not be.
    if (const Circuit* c = inventory_.lit(gang.wanted[gang.scan].pair);
        c != nullptr && inventory_.port(c->a).changed > gang.looked_step)
        return false;
    runs_.revoke_for(gang, gang.wanted[gang.scan]);
    const GpuId gpu = fabric_.ports[gang.wanted[gang.scan].port].gpu;
    for (const PortId p : fabric_.gpus[gpu].ports)  // another port of it may do
        if (!inventory_.reserved_by(gang, p) && inventory_.obstacle(p, gang) == Obstacle::none) return false;
    unwatch(gang);
    watch(gang);
    gang.sleep = Gang::Sleep::for_ports;
    return true;
}

void Schedule::watch(Gang& gang) {
    while (gang.scan < gang.wanted.size() && inventory_.obstacle(gang.wanted[gang.scan], gang) == Obstacle::none)
        ++gang.scan;
    if (gang.scan == gang.wanted.size()) {
        gang.watch_all = true;
        watching_all_.insert(gang.order());
        return;
    }
    watch_gpu(gang, fabric_.ports[gang.wanted[gang.scan].port].gpu);
}

void Schedule::watch_gpu(Gang& gang, GpuId gpu) {
    gang.watch = gpu;
    watchers_[gpu].push_back(&gang);
}

void Schedule::unwatch(Gang& gang) {
    gang.sleep = Gang::Sleep::no;
    if (gang.watch_all) watching_all_.erase(gang.order());
    gang.watch_all = false;
    if (gang.watch != kNone) std::erase(watchers_[gang.watch], &gang);
    gang.watch = kNone;
}

void Schedule::wake(GpuId gpu) {
    for (Gang* gang : watchers_[gpu]) queue(*gang, false);
    for (const PortId p : fabric_.gpus[gpu].ports) turns_.look_at(p);
    for (const auto& order : watching_all_)
        if (Gang* gang = gangs_.find(std::get<2>(order))) queue(*gang, true);
}

void Schedule::wake_pair(PairId e) {
    wake(inventory_.pair(e).a);
    wake(inventory_.pair(e).b);
}

void Schedule::queue(Gang& gang, bool whole) {
    gang.force |= whole;
    if (gang.queued || gang.state != Gang::State::waiting) return;
    gang.queued = true;
    queued_.insert({gang.order(), &gang});
}

void Schedule::dequeue(Gang& gang) {
    if (std::exchange(gang.queued, false)) queued_.erase({gang.order(), &gang});
}

void Schedule::queue_all() {
    for (auto& [id, gang] : gangs_.all()) queue(*gang, true);
}

}  // namespace opus::controller
