// Suspension (I7): a gang that is first in line for its ports waits for a launch in flight that itself
// waits for a member that has not started, perhaps because that member's rank is to do this gang's work
// first. Seen after T_break; then the launch is marked suspended, its circuits may be moved, and it queues
// to have them back.
#include <algorithm>
#include <deque>
#include <unordered_set>
#include <utility>

#include "controller/core/impl.h"

namespace opus::controller {
namespace {

constexpr TimeNs kLeastBreakNs = 20'000'000;
// A launch all of whose peers have started most likely only takes long. It is moved only if it is tied by
// common keys to one that may not be able to finish, and much later.
constexpr TimeNs kTiedPatience = 8;
// What comes back from the dark and finds everybody as he was, comes back half as often the next time.
constexpr TimeNs kMostPatienceNs = 1'000'000'000;
constexpr std::uint32_t kMostDoubled = 10;

}  // namespace

TimeNs Core::Impl::break_time(const Gang& gang) const {
    if (options.t_break_ns > 0) return options.t_break_ns;
    TimeNs dark = 0;
    for (const Wish& w : gang.wishes) dark = std::max(dark, fabric.switch_of(w.port).dark_ns);
    return std::max(2 * dark, kLeastBreakNs);
}

bool Core::Impl::half_started(const Launch& launch) const {
    for (const KeyRef& r : launch.keys) {
        const bool all_started = r.key->left == r.key->flying && r.key->left + r.key->done == r.key->members.size();
        if (all_started) continue;  // and nobody has died of it
        for (const KeyMember& m : r.key->members) {
            if (m.presence == Presence::absent || m.presence == Presence::dead) return true;
            if (m.presence == Presence::present && m.launch->stage == Stage::ready) return true;
        }
    }
    return false;
}

// Changes when a member comes, starts, is done or dies.
std::uint64_t Core::Impl::awaited_by(const Launch& launch) const {
    std::uint64_t all = 1;
    for (const KeyRef& r : launch.keys) {
        std::uint64_t held = 0;
        for (const KeyMember& m : r.key->members) held += m.launch != nullptr && !m.launch->open;
        for (const std::uint64_t part : {std::uint64_t{r.key->missing}, std::uint64_t{r.key->left}, held})
            all = (all ^ part) * 0x100000001b3ull;
    }
    return all;
}

// How long it waits before others are suspended for it. Launches that run already, wait for members that have not
// come, and had their circuits for so long without any coming, would only take them from each other in turn.
TimeNs Core::Impl::patience_of(const Gang& gang) const {
    std::uint32_t in_vain = kMostDoubled;
    for (const Launch* l : gang.launches)
        in_vain = std::min(in_vain, l->open && awaited_by(*l) == l->awaited ? l->in_vain : 0);
    const TimeNs least = break_time(gang);
    return std::max(least, std::min(least << in_vain, kMostPatienceNs));
}

bool Core::Impl::waits_for_half_started(Launch& launch) {
    const std::uint64_t m = next_mark();
    std::unordered_set<const Launch*> seen{&launch};
    std::deque<const Launch*> walk{&launch};
    while (!walk.empty()) {
        const Launch* at = walk.front();
        walk.pop_front();
        if (at->mixed || at->behind) return true;  // whom it waits for is not seen
        for (const KeyRef& r : at->keys) {
            if (r.key->mark == m) continue;
            r.key->mark = m;
            for (const KeyMember& member : r.key->members) {
                if (member.launch == nullptr || !member.launch->open || !seen.insert(member.launch).second) continue;
                if (half_started(*member.launch)) return true;
                walk.push_back(member.launch);
            }
        }
    }
    return false;
}

// `again`: when it is worth looking again, if not now.
bool Core::Impl::suspendable(const std::vector<Launch*>& holders, const Gang& gang, TimeNs patience, TimeNs& again) {
    bool all = true;
    for (Launch* launch : holders) {
        const bool half = half_started(*launch);
        if (!half && !waits_for_half_started(*launch)) {
            all = false;
            continue;
        }
        const TimeNs since = std::max(gang.blocked_ns, launch->start_ns);
        const TimeNs due = since + (half ? patience : kTiedPatience * patience);
        if (now < due) {
            again = std::min(again, due);
            all = false;
        }
    }
    return all;
}

void Core::Impl::consider_suspension(Gang& gang) {
    gang.break_armed = false;
    if (gang.state != Gang::State::waiting || !gang.blocked || gang.offline) return;
    const TimeNs look = break_time(gang), patience = patience_of(gang);
    TimeNs again = now + look;
    const auto wait = [&] {
        gang.break_armed = true;
        arm(std::max(again, now + look / 4 + 1), TimerKind::gang_break, gang.id);
    };
    if (gang.collected < gang.launches.size()) return wait();

    std::vector<EdgeId> busy;
    for (const Wish& w : gang.wishes) {
        const Obstacle obstacle = inventory.obstacle(w, gang);
        if (obstacle == Obstacle::none) continue;
        if (obstacle != Obstacle::busy) return wait();  // not first in line, or a switch is at work
        const EdgeId e = inventory.port(w.port).edge;
        if (!inventory.edge(e).runs.empty()) {  // who has started what is not known yet
            for (const Wish& each : std::vector<Wish>(gang.wishes)) revoke_for(gang, each);
            return wait();
        }
        if (std::find(busy.begin(), busy.end(), e) == busy.end()) busy.push_back(e);
    }
    if (busy.empty()) return wait();
    std::vector<Launch*> holders;
    std::vector<KeyState*> drained;
    for (const EdgeId e : busy) {
        for (const KeyState* held : inventory.edge(e).holders) {
            KeyState* key = held->comm->keys.at(held->key).get();
            for (const KeyMember& m : key->members)
                if (m.launch != nullptr && m.launch->stage == Stage::in_flight &&
                    std::find(holders.begin(), holders.end(), m.launch) == holders.end())
                    holders.push_back(m.launch);
            if (key->flying == 0) drained.push_back(key);
        }
    }
    if (!drained.empty() && now < gang.blocked_ns + patience) again = std::min(again, gang.blocked_ns + patience);
    if (!suspendable(holders, gang, patience, again) || (!drained.empty() && now < gang.blocked_ns + patience))
        return wait();

    std::sort(holders.begin(), holders.end(), [](const Launch* x, const Launch* y) { return x->id < y->id; });
    const std::string why = "gang " + std::to_string(gang.ticket) + " (" + name(gang.launches.front()->id) +
                            (gang.launches.size() > 1 ? " and " + std::to_string(gang.launches.size() - 1) + " more" : "") +
                            ") has waited for its ports";
    const std::uint64_t id = gang.id;
    for (KeyState* key : drained) drop_drained(*key);
    for (Launch* launch : holders) suspend(*launch, why);
    if (Gang* still = find_gang(id)) queue(*still, true);  // it may have become part of another meanwhile
}

// Nothing of the key is in flight: only that somebody has finished holds its circuits.
void Core::Impl::drop_drained(KeyState& key) {
    key.dropped = true;
    update_hold(key);
}

void Core::Impl::suspend(Launch& launch, const std::string& why) {
    ++counters.suspensions;
    std::vector<std::string> missing;
    explain_missing(launch, missing);
    log(LogLevel::warn,
        "suspended " + name(launch.id) + ": " + why + (missing.empty() ? "" : ", and it waits: " + missing.front()));
    Trace t;
    t.kind = Trace::Kind::suspend;
    t.launch = launch.id;
    t.op = launch.op;
    t.bytes = launch.bytes;
    trace(std::move(t));
    for (const KeyRef& r : launch.keys) r.key->dropped = true;
    const std::uint64_t before = std::exchange(launch.awaited, awaited_by(launch));
    launch.in_vain = before == launch.awaited ? launch.in_vain + 1 : 0;
    leave_flight(launch);
    launch.suspended_step = step;
    send(launch.id.node, wire::Suspended{{{launch.id.rank, launch.id.seq}}, false});
    tell_steering(launch);
    regather(launch);
}

// Another hand, or a fault, took light that launches in flight were using: they are as good as suspended. What only
// those who have finished held is held no more: its laggards bring the circuits back.
void Core::Impl::lost_light(EdgeId e, const std::string& why) {
    for (const std::uint64_t grant : std::vector<std::uint64_t>(inventory.edge(e).runs)) revoke(runs.at(grant), why);
    for (Launch* launch : holders_of(e)) suspend(*launch, why);
    for (const KeyState* held : std::vector<const KeyState*>(inventory.edge(e).holders))
        drop_drained(*held->comm->keys.at(held->key));
}

}  // namespace opus::controller
