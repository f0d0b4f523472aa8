// Suspension (I7): a gang that is first in line for its ports waits for a launch in flight that itself
// waits for a member that has not started, perhaps because that member's rank is to do this gang's work
// first. Seen after T_break; then the launch is marked suspended, its circuits may be moved, and it queues
// to have them back. So is, much later, a launch that does not end for no known reason. A plan that gives its
// ports to others meanwhile does not wait for T_break (may_make_way).
#include <algorithm>
#include <utility>

#include "controller/core/explain.h"
#include "controller/core/gangs/gangs.h"
#include "controller/core/gangs/launches.h"
#include "controller/core/leases/runs.h"
#include "controller/core/recovery/suspension.h"
#include "controller/core/schedule/schedule.h"

namespace opus::controller {
namespace {

constexpr TimeNs kLeastBreakNs = 20'000'000;
// A launch all of whose peers have started most likely only takes long. If it is tied by common keys to one that may not
// be able to finish it is moved much later.
// Half as late each time that it was suspended before with nobody having come since: it waits for those that it keeps out.
constexpr TimeNs kTiedPatience = 8;
constexpr std::uint32_t kMostHalved = 3;  // to one
// Any other: later than any collective should end. No reason is known, but a GPU may be full, or have other kernels before it.
constexpr TimeNs kUnexplainedPatienceNs = 10'000'000'000;
// What comes back from the dark and finds everybody as he was, comes back half as often the next time.
constexpr TimeNs kMostPatienceNs = 1'000'000'000;
constexpr std::uint32_t kMostInVain = 10;

bool half_started(const KeyState& key) {
    if (key.comm->settled && !key.comm->complete()) return true;  // one that has not come again may have died of it
    const bool all_started = key.left == key.in_flight && key.left + key.done == key.members.size();
    if (all_started) return false;  // and nobody has died of it
    return std::any_of(key.members.begin(), key.members.end(), [](const KeyMember& m) {
        return m.presence == Presence::absent || m.presence == Presence::dead ||
               (m.presence == Presence::present && m.launch->stage == Stage::ready);
    });
}

// As long as a graph or a device communicator. Both go on without a gate, so their circuits stay.
bool may_last(const Launch& launch) {
    return std::any_of(launch.keys.begin(), launch.keys.end(),
                       [](const KeyRef& r) { return r.key->key.kind == KeyKind::conn_mesh || is_pinned(r.key->key.n); });
}

const Suspension::KeyLooked& look_at(const KeyState& key, Suspension::KeysLooked& looked) {
    const auto [at, fresh] = looked.try_emplace(&key);
    if (!fresh) return at->second;
    at->second.half_started = half_started(key);
    for (const KeyMember& m : key.members) at->second.held += m.launch != nullptr && !m.launch->open();
    return at->second;
}

}  // namespace

TimeNs Suspension::break_time(const Gang& gang) const {
    const TimeNs least = least_break_time();
    return options_.t_break_ns > 0 ? least : std::max(2 * gang.wanted_dark_ns, least);
}

TimeNs Suspension::least_break_time() const { return options_.t_break_ns > 0 ? options_.t_break_ns : kLeastBreakNs; }

bool Suspension::half_started(const Launch& launch, KeysLooked& looked) const {
    return std::any_of(launch.keys.begin(), launch.keys.end(),
                       [&](const KeyRef& r) { return look_at(*r.key, looked).half_started; });
}

// Changes when a member comes, starts, is done or dies.
std::uint64_t Suspension::awaited_by(const Launch& launch, KeysLooked& looked) const {
    std::uint64_t all = 1;
    for (const KeyRef& r : launch.keys) {
        const std::uint64_t held = look_at(*r.key, looked).held;
        for (const std::uint64_t part : {std::uint64_t{r.key->missing}, std::uint64_t{r.key->left}, held})
            all = (all ^ part) * 0x100000001b3ull;
    }
    return all;
}

// How long it waits before others are suspended for it. Launches that run already, wait for members that have not
// come, and had their circuits for so long without any coming, would only take them from each other in turn.
TimeNs Suspension::patience_of(const Gang& gang) const {
    std::uint32_t in_vain = kMostInVain;
    KeysLooked looked;
    for (const Launch* l : gang.launches) {
        in_vain = std::min(in_vain, l->open() && awaited_by(*l, looked) == l->awaited ? l->in_vain : 0);
        if (in_vain == 0) break;
    }
    const TimeNs least = break_time(gang);
    return std::max(least, std::min(least << in_vain, kMostPatienceNs));
}

// All launches that run and that keys tie to it: may one of them not be able to finish? It is the same for each of them.
bool Suspension::tied_to_half_started(Launch& launch, TiedLaunches& tied, KeysLooked& looked) {
    if (launch.mark == tied.mark) return tied.half_started[launch.part];
    const auto part = static_cast<std::uint32_t>(tied.half_started.size());
    bool half = false;
    std::vector<Launch*> walk{&launch};
    launch.mark = tied.mark;
    while (!walk.empty()) {
        Launch& at = *walk.back();
        walk.pop_back();
        at.part = part;
        half |= at.mixed || at.behind || at.connects;  // whom it waits for is not seen
        half |= at.stage == Stage::suspended;  // it may be for the ports of this very launch that it has no circuits
        half = half || half_started(at, looked);
        for (const KeyRef& r : at.keys) {
            if (std::exchange(r.key->mark, tied.mark) == tied.mark) continue;
            for (const KeyMember& member : r.key->members)
                if (member.launch != nullptr && member.launch->open() &&
                    std::exchange(member.launch->mark, tied.mark) != tied.mark)
                    walk.push_back(member.launch);
        }
    }
    tied.half_started.push_back(half);
    return half;
}

// `again`: when it is worth looking again, if not now.
bool Suspension::suspendable(const std::vector<Launch*>& holders, const Gang& gang, TimeNs patience, TimeNs& again) {
    bool all = true;
    KeysLooked looked;
    TiedLaunches tied{next_mark(), {}};
    const TimeNs least = break_time(gang);
    for (Launch* launch : holders) {
        const bool half = half_started(*launch, looked), tied_to_half = !half && tied_to_half_started(*launch, tied, looked);
        if (!half && !tied_to_half && may_last(*launch)) {
            all = false;
            continue;
        }
        TimeNs waits = patience;
        if (tied_to_half)
            waits = std::max(waits, (kTiedPatience >> std::min(launch->in_vain, kMostHalved)) * least);
        else if (!half)
            waits = std::max({waits, kTiedPatience * least, kUnexplainedPatienceNs});
        const TimeNs due = std::max(gang.blocked_ns, launch->start_ns) + waits;
        if (now_ < due) {
            again = std::min(again, due);
            all = false;
        }
    }
    return all;
}

// The pairs that hold its ports, each once. False: it is not first in line, a switch is at work, or runs are asked back.
bool Suspension::in_the_way(Gang& gang, std::vector<PairId>& pairs) {
    for (const WantedPort& w : gang.wanted) {
        const Obstacle obstacle = inventory_.obstacle(w, gang);
        if (obstacle == Obstacle::none) continue;
        if (obstacle != Obstacle::busy || inventory_.reserved_earlier(w.port, gang, w.pair)) return false;
        const PairId e = inventory_.port(w.port).pair;
        if (!inventory_.pair(e).runs.empty()) {  // who has started what is not known yet
            for (const WantedPort& each : std::vector<WantedPort>(gang.wanted)) runs_.revoke_for(gang, each);
            return false;
        }
        pairs.push_back(e);
    }
    std::sort(pairs.begin(), pairs.end());
    pairs.erase(std::unique(pairs.begin(), pairs.end()), pairs.end());
    return !pairs.empty();
}

void Suspension::consider(Gang& gang) {
    gang.break_armed = false;
    if (gang.state != Gang::State::waiting || gang.sleep != Gang::Sleep::for_ports) return;
    const TimeNs look = break_time(gang), patience = patience_of(gang);
    TimeNs again = now_ + look;
    const auto wait = [&] {
        gang.break_armed = true;
        arm(std::max(again, now_ + look / 4 + 1), TimerKind::gang_break, gang.id);
    };
    std::vector<PairId> busy;
    if (gang.collected < gang.launches.size() || !in_the_way(gang, busy)) return wait();
    std::vector<Launch*> holders;
    std::vector<KeyState*> drained;
    const std::uint64_t m = next_mark();
    for (const PairId e : busy)
        for (KeyState* key : inventory_.pair(e).holders) {
            if (std::exchange(key->mark, m) == m) continue;
            for (const KeyMember& member : key->members)
                if (member.launch != nullptr && member.launch->stage == Stage::in_flight &&
                    std::exchange(member.launch->mark, m) != m)
                    holders.push_back(member.launch);
            if (key->in_flight == 0) drained.push_back(key);
        }
    if (!drained.empty() && now_ < gang.blocked_ns + patience) again = std::min(again, gang.blocked_ns + patience);
    if (!suspendable(holders, gang, patience, again) || (!drained.empty() && now_ < gang.blocked_ns + patience))
        return wait();

    std::sort(holders.begin(), holders.end(), [](const Launch* x, const Launch* y) { return x->id < y->id; });
    const std::string why = "gang " + std::to_string(gang.ticket) + " (" + name(gang.launches.front()->id) +
                            (gang.launches.size() > 1 ? " and " + std::to_string(gang.launches.size() - 1) + " more" : "") +
                            ") has waited for its ports";
    const std::uint64_t id = gang.id;
    for (KeyState* key : drained) drop_drained(*key);
    suspend(holders, why);
    if (Gang* still = gangs_.find(id)) schedule_.queue(*still, true);  // it may have become part of another meanwhile
}

// Nothing of the key is in flight: only that somebody has finished holds its circuits.
void Suspension::drop_drained(KeyState& key) {
    key.dropped = true;
    launches_.update_hold(key);
}

void Suspension::suspend(const std::vector<Launch*>& launches, const std::string& why, LogLevel level) {
    Suspending with{Explained(world_), {}, {}};
    for (Launch* launch : launches) suspend(*launch, why, level, with);
}

void Suspension::suspend(Launch& launch, const std::string& why, LogLevel level, Suspending& with) {
    ++counters_.suspensions;
    std::vector<std::string> missing;
    explain_.explain_missing(launch, missing, with.said);
    log(level, "suspended " + name(launch.id) + ": " + why + (missing.empty() ? "" : ", and it waits: " + missing.front()));
    trace({.kind = Trace::Kind::suspend, .launch = launch.id, .op = launch.op, .bytes = launch.bytes});
    for (const KeyRef& r : launch.keys) r.key->dropped = true;
    const std::uint64_t before = std::exchange(launch.awaited, awaited_by(launch, with.looked));
    launch.in_vain = before == launch.awaited ? launch.in_vain + 1 : 0;
    launches_.leave_flight(launch);
    launch.suspended_step = step_;
    send(launch.id.node, wire::Suspended{{{launch.id.rank, launch.id.seq}}, false});
    world_.owe_steering(launch.id.node);
    gangs_.regather(launch, with.gathered);
}

// What it has sent has arrived, and it waits for peers who have not come, and are to come late.
bool Suspension::is_idle(const Launch& launch, const std::function<bool(const Key&)>& is_late) {
    const auto arrived = [](const KeyRef& r) { return r.key->arrived(); };
    const auto waits = [&](const KeyRef& r) {
        return r.key->key.kind == KeyKind::p2p && r.key->missing > 0 && r.key->done == 0 && !r.key->comm->open() &&
               is_late(r.key->key);
    };
    return !launch.mixed && std::ranges::any_of(launch.keys, arrived) && std::ranges::any_of(launch.keys, waits) &&
           std::ranges::all_of(launch.keys, [&](const KeyRef& r) { return arrived(r) || waits(r); });
}

bool Suspension::may_make_way(PairId e, const std::function<bool(const Key&)>& is_late) {
    const GpuPair& pair = inventory_.pair(e);
    return pair.runs.empty() && std::ranges::all_of(pair.holders, [](const KeyState* key) { return key->in_flight > 0; }) &&
           std::ranges::all_of(holders_of(e), [&](const Launch* launch) { return is_idle(*launch, is_late); });
}

void Suspension::make_way(PairId e, const std::string& why) { suspend(holders_of(e), why, LogLevel::debug); }

// Another hand, or a fault, took light that launches in flight were using: they are as good as suspended. What only
// those who have finished held is held no more: its laggards bring the circuits back.
void Suspension::lost_light(PairId e, const std::string& why) {
    runs_.revoke_on(e, why);
    suspend(holders_of(e), why);
    for (KeyState* held : std::vector<KeyState*>(inventory_.pair(e).holders)) drop_drained(*held);
}

std::vector<Launch*> Suspension::holders_of(PairId e) {
    std::vector<Launch*> holders;
    const std::uint64_t m = next_mark();
    for (const KeyState* key : inventory_.pair(e).holders)
        for (const KeyMember& member : key->members)
            if (member.launch != nullptr && member.launch->stage == Stage::in_flight &&
                std::exchange(member.launch->mark, m) != m)
                holders.push_back(member.launch);
    std::sort(holders.begin(), holders.end(), [](const Launch* x, const Launch* y) { return x->id < y->id; });
    return holders;
}

}  // namespace opus::controller
