// Gangs: components of waiting launches over keys that are full now. Built as launches come: a key counts
// the members it misses, and the last one to come joins all of them; the smaller of two gangs moves into
// the larger, so a gang of n costs n log n however it came together.
#include <algorithm>
#include <utility>

#include "controller/core/gangs/gangs.h"
#include "controller/core/gangs/launches.h"
#include "controller/core/recovery/holds.h"
#include "controller/core/schedule/schedule.h"

namespace opus::controller {

Gang* Gangs::find(std::uint64_t id) {
    const auto it = all_.find(id);
    return it == all_.end() ? nullptr : it->second.get();
}

void Gangs::restamp(Gang& gang) {
    gang.stamp = next_stamp_++;
    gang.collected = 0;
    gang.key_count = 0;
    gang.first_key = nullptr;
    gang.sorted = true;
    gang.pairs.clear();
    gang.unjudged = false;
    gang.routable_fence = 0;
}

Gang& Gangs::of(Launch& launch) {
    if (launch.gang != nullptr) return *launch.gang;
    auto gang = std::make_unique<Gang>();
    gang->id = next_gang_++;
    gang->ticket = next_ticket_++;
    gang->complete_ns = now_;
    restamp(*gang);
    Gang& g = *(all_[gang->id] = std::move(gang));
    ++counters_.gangs;
    join(g, launch);
    Trace t;
    t.kind = Trace::Kind::gang_complete;
    t.id = g.ticket;
    t.launch = launch.id;
    t.op = launch.op;
    t.bytes = launch.bytes;
    if (!launch.keys.empty()) t.comm = launch.keys.front().key->key.comm;
    trace(t);
    return g;
}

void Gangs::join(Gang& gang, Launch& launch) {
    launch.gang = &gang;
    launch.gang_pos = static_cast<std::uint32_t>(gang.launches.size());
    gang.launches.push_back(&launch);
    if (launch.in_call && !gang.in_call) change_place(gang, [&] { gang.in_call = true; });
    if (launch.complete_ns == 0) launch.complete_ns = now_;
    schedule_.queue(gang, false);
    if (launch.open()) return;
    const TimeNs asked = holds_.asked_hold(launch);
    const TimeNs at = launch.complete_ns + (asked != 0 ? asked : kDefaultHoldNs);
    if (gang.hold_at_ns == 0 || at < gang.hold_at_ns) holds_.hold(gang, at);
}

// It changes its place among those that wait.
template <class Change>
void Gangs::change_place(Gang& gang, Change change) {
    schedule_.unwatch(gang);
    schedule_.dequeue(gang);
    change();
    schedule_.queue(gang, true);
}

Gang& Gangs::merge(Gang& x, Gang& y) {
    Gang& into = x.launches.size() >= y.launches.size() ? x : y;
    Gang& from = &into == &x ? y : x;
    for (Launch* launch : from.launches) join(into, *launch);
    const bool older = from.ticket < into.ticket;
    const std::uint64_t ticket = std::min(into.ticket, from.ticket);
    into.failures = std::max(into.failures, from.failures);
    if (into.blocked_ns < 0 || (from.blocked_ns >= 0 && from.blocked_ns < into.blocked_ns))
        into.blocked_ns = from.blocked_ns;
    into.revoked_for |= from.revoked_for;
    from.launches.clear();
    erase(from);
    if (older) change_place(into, [&] { into.ticket = ticket; });
    return into;
}

namespace {

// Does it wait for circuits together with others?
bool gathers(const Launch& launch) { return asks(launch) && !launch.alone; }

// What is suspended and waits for somebody who has not come has no use for circuits until he comes: not for what has arrived.
bool calls_for_circuits(const Launch& launch, const KeyState& key) {
    if (!key.full()) return false;
    return launch.stage != Stage::suspended || !key.arrived() ||
           std::ranges::none_of(launch.keys, [](const KeyRef& r) { return r.key->missing > 0; });
}

}  // namespace

// The key is full: those of its members that wait are one gang, but for those that run already and are to
// wait by themselves.
void Gangs::gather(KeyState& key) {
    Gang* gang = nullptr;
    for (KeyMember& member : key.members) {
        Launch* launch = member.launch;
        if (launch == nullptr || !asks(*launch) || !calls_for_circuits(*launch, key)) continue;
        if (launch->alone) {
            of(*launch);
            continue;
        }
        if (launch->gang == nullptr && gang != nullptr) {
            join(*gang, *launch);
        } else if (gang == nullptr) {
            gang = &of(*launch);
        } else if (launch->gang != gang) {
            gang = &merge(*gang, *launch->gang);
        }
    }
}

void Gangs::regather(Launch& launch) {
    for (const KeyRef& r : launch.keys)
        if (r.key->full()) gather(*r.key);
}

// Each of them is as it will be: a key is gathered once.
void Gangs::regather(const std::vector<Launch*>& launches) {
    const std::uint64_t m = next_mark();
    for (const Launch* launch : launches)
        for (const KeyRef& r : launch->keys)
            if (r.key->full() && std::exchange(r.key->mark, m) != m) gather(*r.key);
}

// They come to wait one after the other. Those of a key that wait already are one gang, so what has come since is all
// that is looked at.
void Gangs::regather(Launch& launch, Gathered& gathered) {
    for (const KeyRef& r : launch.keys) {
        KeyState& key = *r.key;
        if (!calls_for_circuits(launch, key)) continue;
        const auto [at, fresh] = gathered.try_emplace(&key, kNone);
        if (!fresh) {
            gather(launch, key, at->second);
            continue;
        }
        gather(key);
        for (std::uint32_t i = 0; i < key.members.size() && at->second == kNone; ++i)
            if (key.members[i].launch != nullptr && gathers(*key.members[i].launch)) at->second = i;
    }
}

// `first` of its members wait together; the launch waits now, too, as if all of them were gathered.
void Gangs::gather(Launch& launch, KeyState& key, std::uint32_t& first) {
    if (launch.alone && asks(launch)) of(launch);
    if (!gathers(launch)) return;
    std::uint32_t place = kNone;
    for (const KeyRef& r : launch.keys)
        if (r.key == &key) place = std::min(place, r.slot);
    Launch* before = first < place ? key.members[first].launch : nullptr;
    Launch* after = first != kNone && first > place ? key.members[first].launch : nullptr;
    if (before != nullptr && launch.gang == nullptr)
        join(*before->gang, launch);
    else if (before != nullptr && launch.gang != before->gang)
        merge(*before->gang, *launch.gang);
    else if (Gang& gang = of(launch); after != nullptr && after->gang != &gang)
        merge(gang, *after->gang);
    first = std::min(first, place);
}

void Gangs::leave(Launch& launch) {
    Gang& gang = *launch.gang;
    launch.gang = nullptr;
    Launch* last = gang.launches.back();
    gang.launches[launch.gang_pos] = last;
    last->gang_pos = launch.gang_pos;
    gang.launches.pop_back();
    if (gang.launches.empty() && gang.state == Gang::State::waiting) return erase(gang);
    if (gang.state == Gang::State::programming) return;  // what it claimed stays claimed until its switches answer
    restamp(gang);
    const auto is_in_call = [](const Launch* l) { return l->in_call; };
    if (gang.in_call && std::none_of(gang.launches.begin(), gang.launches.end(), is_in_call))
        change_place(gang, [&] { gang.in_call = false; });
    schedule_.queue(gang, true);
}

void Gangs::erase(Gang& gang) {
    schedule_.unwatch(gang);
    if (!gang.wanted.empty()) schedule_.set_wanted(gang, {});
    schedule_.dequeue(gang);
    all_.erase(std::uint64_t(gang.id));
}

// Looks at the launches that joined since; true if there were any. `added` gets the circuits of new keys.
bool Gangs::collect(Gang& gang, std::vector<PairId>& added) {
    const bool grown = gang.collected < gang.launches.size();
    for (; gang.collected < gang.launches.size(); ++gang.collected) {
        for (const KeyRef& r : gang.launches[gang.collected]->keys) {
            if (r.key->seen_by == gang.stamp) continue;
            r.key->seen_by = gang.stamp;
            if (++gang.key_count == 1) gang.first_key = r.key;
            gang.unjudged |= r.key->comm->verdict == Verdict::unknown;
            const auto [begin, end] = launches_.pairs_of(*r.key);
            added.insert(added.end(), begin, end);
        }
    }
    if (added.empty()) return grown;
    gang.sorted = gang.pairs.empty() && gang.key_count == 1;
    gang.pairs.insert(gang.pairs.end(), added.begin(), added.end());
    return grown;
}

// Asked for each port of another gang: what has been found holds until a launch joins or leaves.
TimeNs Gangs::complete_since(const Gang& gang) const {
    Gang::Since& known = gang.since;
    if (known.stamp == gang.stamp && known.launches == gang.launches.size() && known.last_ns >= 0) return known.last_ns;
    known = {gang.stamp, gang.launches.size(), gang.complete_ns};
    for (const Launch* launch : gang.launches) known.last_ns = std::max(known.last_ns, launch->complete_ns);
    return known.last_ns;
}

std::string Gangs::check() {
    for (const auto& [id, gang] : all_) {
        const std::string who = "gang " + std::to_string(gang->ticket);
        if (gang->launches.empty() && gang->state == Gang::State::waiting) return who + " is empty";
        for (std::size_t i = 0; i < gang->launches.size(); ++i) {
            const Launch& l = *gang->launches[i];
            if (l.gang != gang.get() || l.gang_pos != i) return who + ": a launch does not know it";
            if (l.waits() != (gang->state == Gang::State::waiting))
                return who + ": " + name(l.id) + " is at another stage";
        }
        if (gang->state == Gang::State::programming && !gang->wanted.empty()) return who + " is placed and reserves";
        if (gang->state == Gang::State::waiting && gang->sleep == Gang::Sleep::no && !gang->queued && now_ > gang->retry_at_ns)
            return who + " waits for nothing";
    }
    for (const NodeState& node : nodes_)
        for (const auto& [rid, rank] : node.ranks)
            for (const auto& [seq, l] : rank.launches) {
                const bool full =
                    std::ranges::any_of(l->keys, [&](const KeyRef& r) { return calls_for_circuits(*l, *r.key); });
                if (l->stage == Stage::ready && full && l->gang == nullptr)
                    return name(l->id) + " is complete and in no gang";
                if (l->stage == Stage::suspended && full && asks(*l) && l->gang == nullptr)
                    return name(l->id) + " is suspended and does not queue";
                if (l->stage == Stage::in_flight && l->gang != nullptr) return name(l->id) + " is in flight and queues";
            }
    return {};
}

}  // namespace opus::controller
