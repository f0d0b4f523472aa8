// Gangs: components of waiting launches over keys that are full now. Built as launches come: a key counts
// the members it misses, and the last one to come joins all of them; the smaller of two gangs moves into
// the larger, so a gang of n costs n log n however it came together.
#include <algorithm>

#include "controller/core/impl.h"

namespace opus::controller {

Gang* Core::Impl::find_gang(std::uint64_t id) {
    const auto it = gangs.find(id);
    return it == gangs.end() ? nullptr : it->second.get();
}

void Core::Impl::restamp(Gang& gang) {
    gang.stamp = next_stamp++;
    gang.collected = 0;
    gang.key_count = 0;
    gang.first_key = nullptr;
    gang.sorted = true;
    gang.edges.clear();
    gang.unjudged = false;
    gang.routable_fence = 0;
}

Gang& Core::Impl::gang_for(Launch& launch) {
    if (launch.gang != nullptr) return *launch.gang;
    auto gang = std::make_unique<Gang>();
    gang->id = next_gang++;
    gang->ticket = next_ticket++;
    gang->complete_ns = now;
    restamp(*gang);
    Gang& g = *(gangs[gang->id] = std::move(gang));
    ++counters.gangs;
    join(g, launch);
    Trace t;
    t.kind = Trace::Kind::gang_complete;
    t.id = g.ticket;
    t.launch = launch.id;
    t.op = launch.op;
    t.bytes = launch.bytes;
    if (!launch.keys.empty()) t.comm = launch.keys.front().key->key.comm;
    trace(std::move(t));
    return g;
}

void Core::Impl::join(Gang& gang, Launch& launch) {
    launch.gang = &gang;
    launch.gang_pos = static_cast<std::uint32_t>(gang.launches.size());
    gang.launches.push_back(&launch);
    if (launch.complete_ns == 0) launch.complete_ns = now;
    queue(gang, false);
    if (launch.open) return;
    const Rank* rank = rank_of(launch.id.node, launch.id.rank);
    const std::uint32_t hold_ms = rank != nullptr && rank->info.hold_ms != 0 ? rank->info.hold_ms : 30'000;
    const TimeNs at = launch.complete_ns + TimeNs(hold_ms) * 1'000'000;
    if (gang.hold_at_ns == 0 || at < gang.hold_at_ns) hold(gang, at);
}

Gang& Core::Impl::merge(Gang& x, Gang& y) {
    Gang& into = x.launches.size() >= y.launches.size() ? x : y;
    Gang& from = &into == &x ? y : x;
    for (Launch* launch : from.launches) join(into, *launch);
    const bool older = from.order() < into.order();
    const std::uint64_t ticket = std::min(into.ticket, from.ticket);
    into.failures = std::max(into.failures, from.failures);
    if (into.blocked_ns < 0 || (from.blocked_ns >= 0 && from.blocked_ns < into.blocked_ns))
        into.blocked_ns = from.blocked_ns;
    into.revoked_for |= from.revoked_for;
    from.launches.clear();
    erase_gang(from);
    if (older) {
        unwatch(into);
        queued.erase({into.order(), &into});
        into.queued = false;
        into.ticket = ticket;
        queue(into, true);
    }
    return into;
}

// The key is full: those of its members that wait are one gang, but for those that run already and are to
// wait by themselves.
void Core::Impl::gather(KeyState& key) {
    Gang* gang = nullptr;
    for (KeyMember& member : key.members) {
        Launch* launch = member.launch;
        if (launch == nullptr || !launch->waits() || launch->no_light || launch->unsettled) continue;
        if (launch->alone) {
            gang_for(*launch);
            continue;
        }
        if (launch->gang == nullptr && gang != nullptr) {
            join(*gang, *launch);
        } else if (gang == nullptr) {
            gang = &gang_for(*launch);
        } else if (launch->gang != gang) {
            gang = &merge(*gang, *launch->gang);
        }
    }
}

void Core::Impl::regather(Launch& launch) {
    for (const KeyRef& r : launch.keys)
        if (r.key->full()) gather(*r.key);
}

void Core::Impl::leave(Launch& launch) {
    Gang& gang = *launch.gang;
    launch.gang = nullptr;
    Launch* last = gang.launches.back();
    gang.launches[launch.gang_pos] = last;
    last->gang_pos = launch.gang_pos;
    gang.launches.pop_back();
    if (gang.launches.empty() && gang.state == Gang::State::waiting) return erase_gang(gang);
    if (gang.state == Gang::State::programming) return;  // what it claimed stays claimed until its switches answer
    restamp(gang);
    queue(gang, true);
}

void Core::Impl::erase_gang(Gang& gang) {
    unwatch(gang);
    if (!gang.wishes.empty()) set_wishes(gang, {});
    if (gang.queued) queued.erase({gang.order(), &gang});
    gangs.erase(std::uint64_t(gang.id));
}

void Core::Impl::queue(Gang& gang, bool whole) {
    gang.force |= whole;
    if (gang.queued || gang.state != Gang::State::waiting) return;
    gang.queued = true;
    queued.insert({gang.order(), &gang});
}

void Core::Impl::queue_all() {
    for (auto& [id, gang] : gangs) queue(*gang, true);
}

// Looks at the launches that joined since; true if there were any. `added` gets the circuits of new keys.
bool Core::Impl::collect(Gang& gang, std::vector<EdgeId>& added) {
    const bool grown = gang.collected < gang.launches.size();
    for (; gang.collected < gang.launches.size(); ++gang.collected) {
        for (const KeyRef& r : gang.launches[gang.collected]->keys) {
            if (r.key->seen_by == gang.stamp) continue;
            r.key->seen_by = gang.stamp;
            if (++gang.key_count == 1) gang.first_key = r.key;
            gang.unjudged |= r.key->comm->verdict == Verdict::unknown;
            const auto [begin, end] = edges_of(*r.key);
            added.insert(added.end(), begin, end);
        }
    }
    if (added.empty()) return grown;
    gang.sorted = gang.edges.empty() && gang.key_count == 1;
    gang.edges.insert(gang.edges.end(), added.begin(), added.end());
    return grown;
}

}  // namespace opus::controller
