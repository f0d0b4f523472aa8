// Launches and their keys: who has come, who is in flight, who is done.
#include <algorithm>

#include "controller/core/gangs/gangs.h"
#include "controller/core/gangs/launches.h"
#include "controller/core/leases/cuts.h"
#include "controller/core/leases/runs.h"
#include "controller/core/membership/node_sessions.h"
#include "controller/core/membership/registration.h"
#include "controller/core/program/grants.h"
#include "controller/core/provision/jobs.h"
#include "controller/core/recovery/adoption.h"
#include "controller/core/recovery/holds.h"
#include "controller/core/recovery/suspension.h"
#include "controller/core/schedule/schedule.h"

namespace opus::controller {

namespace {

// The slot of the key that this process takes: its own that nobody has taken yet, or kNone.
std::uint32_t free_slot(const KeyState& key, const Membership& membership) {
    for (const std::uint32_t slot : membership.slots) {
        if (is_collective(key.key)) {
            if (key.members[slot].presence == Presence::absent) return slot;
            continue;
        }
        const std::uint32_t place = place_of(key.key, slot);
        if (place != kNone && key.members[place].presence == Presence::absent) return place;
    }
    return kNone;
}

}  // namespace

KeyState& Launches::key_state(Comm& comm, const Key& key) {
    auto& place = comm.keys[key];
    if (place) return *place;
    place = std::make_unique<KeyState>();
    KeyState& state = *place;
    state.key = key;
    state.comm = &comm;
    state.members.resize(places_of(key.kind, comm.size));
    state.missing = state.left = static_cast<std::uint32_t>(state.members.size());
    state.finished = &comm.finished_of(sequence_of(key));
    for (std::uint32_t i = 0; i < state.members.size(); ++i)
        if (key.n < state.finished->at(i)) cuts_.mark_done(state, i);
    return state;
}

std::pair<const PairId*, const PairId*> Launches::pairs_of(KeyState& key) {
    Comm& comm = *key.comm;
    if (is_collective(key.key)) {
        if (!comm.all_came()) return {};
        bool& known = key.mesh ? comm.mesh_known : comm.ring_known;
        auto& pairs = key.mesh ? comm.mesh : comm.ring;
        if (!known) {
            pairs = collective_pairs(comm, key.mesh, fabric_, inventory_);
            (key.mesh ? comm.mesh_routable : comm.ring_routable) = 0;
            known = true;
        }
        return {pairs.data(), pairs.data() + pairs.size()};
    }
    if (key.pair == kNone) key.pair = transfer_pair(comm, key.key.src, key.key.dst, fabric_, inventory_);
    if (key.pair == kNone) return {};
    return {&key.pair, &key.pair + 1};
}

void Launches::count_use(KeyState& key) {
    const auto [begin, end] = pairs_of(key);
    if (begin == end) return;
    const Key sequence = sequence_of(key.key);
    const std::uint64_t upto = is_pinned(key.key.n) ? 1 : key.key.n - sequence.n + 1;
    std::uint64_t& counted = key.comm->counted[sequence];
    if (upto <= counted) return;
    for (const PairId* e = begin; e != end; ++e) inventory_.pair(*e).uses += upto - counted;
    counted = upto;
}

bool Launches::is_lit(KeyState& key) {
    const auto [begin, end] = pairs_of(key);
    return std::all_of(begin, end, [this](PairId e) { return inventory_.lit(e) != nullptr; });
}

bool Launches::is_lit(const Launch& launch) {
    return std::all_of(launch.keys.begin(), launch.keys.end(), [this](const KeyRef& r) { return is_lit(*r.key); });
}

bool Launches::needs_nothing(const Launch& launch) {
    for (const KeyRef& r : launch.keys) {
        if (r.key->comm->verdict == Verdict::unknown) return false;
        const auto [begin, end] = pairs_of(*r.key);
        if (begin != end) return false;
    }
    return true;
}

bool Launches::misses_gone_member(const KeyState& key) {
    if (key.missing == 0 || key.comm->gone == 0) return false;
    for (std::uint32_t i = 0; i < key.members.size(); ++i) {
        const Presence presence = key.members[i].presence;
        const Member& member = key.comm->members[slot_of(key.key, i)];
        if (presence == Presence::dead || (presence == Presence::absent && member.gone)) return true;
    }
    return false;
}

bool Launches::misses_gone_member(const Launch& launch) {
    return std::any_of(launch.keys.begin(), launch.keys.end(), [](const KeyRef& r) { return misses_gone_member(*r.key); });
}

// A call asks for its connections first, and returns when they are made: not before its own gate is open, perhaps. That
// they have lost their light meanwhile changes nothing of it. A replay stands in no call.
bool Launches::is_connecting_before(const Rank& rank, const Launch& launch) {
    if ((launch.id.seq & kReplayed) != 0) return false;
    return std::any_of(rank.launches.begin(), rank.launches.lower_bound(launch.id.seq), [](const auto& before) {
        const Launch& l = *before.second;
        return l.connects && l.open();
    });
}

const Membership* Launches::membership_of(const Rank& rank, const wire::KeyRange& range) {
    const auto at = rank.comms.find(range.first.comm);
    if (at == rank.comms.end()) return nullptr;
    const std::uint32_t size = at->second.comm->size;
    return range.first.src < size && range.first.dst < size ? &at->second : nullptr;
}

// Null: known already. Keys of communicators that this process is no member of are left out, and of those that
// pass, unless it `runs` over circuits since these were held.
Launch* Launches::add(NodeIndex node, const wire::LaunchDemand& demand, bool runs) {
    Rank& rank = nodes_[node].ranks[demand.launch.rank];
    rank.info.rank = demand.launch.rank;
    auto& place = rank.launches[demand.launch.seq];
    if (place) return nullptr;
    place = std::make_unique<Launch>();
    Launch& launch = *place;
    launch.id = {node, demand.launch.rank, demand.launch.seq};
    launch.op = demand.op;
    launch.bytes = demand.bytes;
    launch.mixed = demand.mixed;
    launch.behind = demand.behind;
    launch.since_ns = now_;
    for (const wire::KeyRange& range : demand.keys) {
        const Membership* member = membership_of(rank, range);
        if (member == nullptr) continue;
        Comm& comm = *member->comm;
        launch.mixed |= comm.open();
        if (!may_need_light(comm) && (comm.verdict != Verdict::passes || !runs)) continue;
        Key key = range.first;
        for (std::uint32_t i = 0; i < range.count; ++i, ++key.n) {
            KeyState& state = key_state(comm, key);
            // Whoever says otherwise once it is held is not believed.
            state.mesh |= !state.held && is_collective(state.key) && range.mesh;
            const std::uint32_t slot = free_slot(state, *member);
            // One that may wait for others may be asked for before those of its own communicator are done.
            if (comm.cuts > 0 && slot != kNone && !demand.behind) cuts_.imply_done(comm, key, slot_of(key, slot));
            if (slot == kNone) {  // a second launch with a key of ours: not to be believed
                erase_key_if_done(state);
                continue;
            }
            state.members[slot] = {&launch, Presence::present};
            --state.missing;
            launch.keys.push_back({&state, slot});
        }
    }
    launch.connects = !launch.keys.empty() && std::all_of(launch.keys.begin(), launch.keys.end(), [](const KeyRef& r) {
        return is_connection(r.key->key.kind) &&
               r.key->key.kind != KeyKind::conn_mesh;  // which may last as long as a device communicator
    });
    return &launch;
}

void Launches::demand(NodeIndex node, const wire::LaunchDemand& demand) {
    ++counters_.demands;
    Launch* launch = add(node, demand);
    if (launch == nullptr) return;
    if (launch->keys.empty() && !launch->mixed)
        return holds_.pass_launches({launch}, Policy::proceed, "it names no communicator that its rank has registered", true);
    if (is_unheld(*launch)) return holds_.pass_unheld(*launch);
    for (const KeyRef& r : launch->keys)
        if (Comm& comm = *r.key->comm; (r.key->key.n & kReplayed) != 0 && !is_connection(r.key->key.kind)) {
            (is_pinned(r.key->key.n) ? comm.pins : comm.replays) = true;
            if (comm.pins && comm.replays && !comm.open())
                return registration_.degrade(
                    comm, Policy::proceed, Reason::passed,
                    "some of its members hold replays of CUDA graphs, others cannot (OPUS_GATE, drivers)");
        }
    runs_.demand_meets_runs(*launch);
    jobs_.check_fit(*launch);
    enter_held(*launch);
}

bool Launches::is_unheld(const Launch& launch) {
    return std::ranges::all_of(launch.keys, [](const KeyRef& r) { return r.key->comm->open(); });
}

// Its rank waits in a gate until it starts, unless those whom it waits for cannot come.
void Launches::enter_held(Launch& launch) {
    enter(launch);
    if (misses_gone_member(launch))
        for (const KeyRef& r : launch.keys)
            if (r.key->comm->gone > 0 && !r.key->comm->open())
                return registration_.degrade(*r.key->comm, Policy::proceed, Reason::died,
                                             "a launch waits for a rank that left");
    node_sessions_.pass_overdue(launch);
}

// It has come: who was waiting for it may be complete now.
void Launches::enter(Launch& launch) {
    if (launch.stage == Stage::ready)
        launch.in_call = launch.behind && is_connecting_before(nodes_[launch.id.node].ranks[launch.id.rank], launch);
    for (const KeyRef& r : launch.keys)
        if (r.key->full()) gangs_.gather(*r.key);
    // What needs no circuit starts at once. So does a launch whose other part may be what a peer waits for:
    // it holds the circuits of the rest, and is suspended if that is in somebody's way.
    if (launch.gang || launch.stage != Stage::ready) return;
    if (launch.mixed || needs_nothing(launch)) return schedule_.queue(gangs_.of(launch), true);
    if (!launch.in_call) return;
    calls_.emplace_back(now_ + suspension_.least_break_time(), launch.id);
    if (calls_.size() == 1) arm(calls_.front().first, TimerKind::call_kept, 0);
}

// A call that still makes connections may be kept by CUDA for its own gate, and its peers come to that only when it has
// returned. It starts without them, as a launch does whose other part may be what a peer waits for.
void Launches::open_kept_calls() {
    for (; !calls_.empty() && calls_.front().first <= now_; calls_.pop_front()) {
        Launch* launch = launch_of(calls_.front().second);
        if (launch == nullptr || launch->gang || launch->stage != Stage::ready || !launch->in_call) continue;
        const Rank* rank = rank_of(launch->id.node, launch->id.rank);
        if (rank != nullptr && is_connecting_before(*rank, *launch)) schedule_.queue(gangs_.of(*launch), true);
    }
    if (!calls_.empty()) arm(calls_.front().first, TimerKind::call_kept, 0);
}

void Launches::hear_done(NodeIndex node, const wire::LaunchDone& done) {
    const LaunchId id{node, done.launch.rank, done.launch.seq};
    Launch* launch = launch_of(id);
    Trace t;
    t.kind = Trace::Kind::launch_done;
    t.launch = id;
    t.ready_ns = done.ready_ns;
    t.go_ns = done.go_ns;
    t.done_ns = done.done_ns;
    t.held = !done.ungated;
    if (launch != nullptr) {
        t.id = launch->grant;
        t.op = launch->op;
        t.bytes = launch->bytes;
        if (!launch->keys.empty()) t.comm = launch->keys.front().key->key.comm;
    }
    trace(t);
    if (launch == nullptr) return;
    plan::Seen seen;
    seen.op = launch->op;
    seen.keys = jobs_.keys_of(*launch);
    seen.grant = launch->began;
    seen.circuits = launch->circuits;
    jobs_.note_seen(node, done, std::move(seen), launch->bytes);
    ++counters_.launches_done;
    finish(*launch, Presence::done);
}

void Launches::hear_seen(NodeIndex node, const wire::LaunchSeen& seen) {
    Trace t;
    t.kind = Trace::Kind::launch_done;
    t.launch = {node, seen.done.launch.rank, seen.done.launch.seq};
    t.comm = seen.comm;
    t.op = seen.op;
    t.bytes = seen.bytes;
    t.ready_ns = seen.done.ready_ns;
    t.go_ns = seen.done.go_ns;
    t.done_ns = seen.done.done_ns;
    t.held = false;
    trace(t);
    ++counters_.launches_seen;
}

void Launches::finish(Launch& launch, Presence how) {
    if (launch.gang != nullptr) gangs_.leave(launch);
    const bool flew = launch.stage == Stage::in_flight;
    if (launch.circuits_known != Known::yes) adoption_.settle(launch);
    for (const KeyRef& r : launch.keys) {
        KeyState& key = *r.key;
        if (flew) --key.in_flight;  // and done in the same moment: what it is through with may still be on its way
        key.members[r.slot] = {nullptr, how};
        --key.left;
        if (how == Presence::done) {
            ++key.done;
            std::uint64_t& upto = key.finished->at(r.slot);
            upto = std::max(upto, key.key.n + 1);
        }
        if (how == Presence::dead) ++key.missing;
        update_hold(key);
        if (key.arrived()) wake_idle(*key.members[0].launch);
        erase_key_if_done(key);
    }
    grants_.finished(launch);
    if (Rank* rank = rank_of(launch.id.node, launch.id.rank)) rank->launches.erase(std::uint64_t(launch.id.seq));
}

// What it has sent has arrived: if it waits for others, a plan may give its circuits away.
void Launches::wake_idle(const Launch& launch) {
    if (std::ranges::none_of(launch.keys, [](const KeyRef& r) { return r.key->missing > 0; })) return;
    for (const KeyRef& r : launch.keys)
        if (r.key->pair != kNone) schedule_.wake_pair(r.key->pair);
}

void Launches::start_flight(Launch& launch) {
    launch.stage = Stage::in_flight;
    if (!launch.open()) launch.gate = Gate::granted;
    launch.in_call = false;  // what keeps its call now is no gate of its own
    launch.start_ns = now_;
    for (const KeyRef& r : launch.keys) {
        ++r.key->in_flight;
        r.key->dropped = false;
        update_hold(*r.key);
    }
}

// The caller sets the new stage, or erases the launch.
void Launches::leave_flight(Launch& launch) {
    launch.stage = Stage::suspended;
    for (const KeyRef& r : launch.keys) {
        --r.key->in_flight;
        update_hold(*r.key);
    }
}

// A key holds its circuits from the first start until all members are done: a sender's kernel may end
// before its bytes have arrived. What nobody has in flight holds only light that is there: its laggards bring it back.
void Launches::update_hold(KeyState& key) {
    const bool draining = (key.held || key.cut) && key.done > 0 && !key.dropped && !key.comm->open();
    const bool want = key.left > 0 && (key.in_flight > 0 || draining);
    if (want == key.held) return;
    const auto [begin, end] = pairs_of(key);
    if (want && begin == end) return;  // nothing to hold, or not known yet
    const auto dark = [this](PairId e) {
        return std::ranges::none_of(inventory_.pair(e).up, [this](const Circuit& c) {
            return !inventory_.port(c.a).no_light && !inventory_.port(c.b).no_light;
        });
    };
    if (want && key.in_flight == 0 && std::any_of(begin, end, dark)) {
        key.dropped = true;
        return;
    }
    key.held = want;
    for (const PairId* e = begin; e != end; ++e) {
        auto& holders = inventory_.pair(*e).holders;
        if (want) {
            holders.push_back(&key);
            continue;
        }
        std::erase(holders, &key);
        if (!inventory_.pair(*e).busy()) schedule_.wake_pair(*e);
    }
}

void Launches::erase_key_if_done(KeyState& key) {
    if (key.left > 0) return;
    update_hold(key);
    if (key.cut) --key.comm->cuts;
    key.comm->keys.erase(Key(key.key));
}

// What its keys need now, each looked at once: all members of a ring have the same.
bool Launches::is_lit(const Gang& gang) {
    const std::uint64_t m = next_mark();
    for (const Launch* launch : gang.launches)
        for (const KeyRef& r : launch->keys) {
            if (std::exchange(r.key->mark, m) != m && !is_lit(*r.key)) return false;
        }
    return true;
}

std::string Launches::check() {
    for (const auto& [number, comm] : comms_.in_order())
        for (const auto& entry : comm->keys) {
            KeyState& key = *entry.second;
            std::uint32_t missing = 0, left = 0, done = 0, in_flight = 0;
            for (const KeyMember& m : key.members) {
                missing += m.presence == Presence::absent || m.presence == Presence::dead;
                left += m.presence == Presence::absent || m.presence == Presence::present;
                done += m.presence == Presence::done;
                in_flight += m.presence == Presence::present && m.launch->stage == Stage::in_flight;
                if ((m.presence == Presence::present) != (m.launch != nullptr))
                    return "a key's member is present without a launch";
            }
            if (missing != key.missing || left != key.left || done != key.done || in_flight != key.in_flight)
                return "a key miscounts its members";
            if (left == 0) return "a key that is done is kept";
            const auto [begin, end] = pairs_of(key);
            if (key.in_flight > 0 && begin != end && !key.held) return "a key in flight holds nothing";
            for (const PairId* e = begin; e != end; ++e) {
                const auto& holders = inventory_.pair(*e).holders;
                if (std::count(holders.begin(), holders.end(), &key) != (key.held ? 1 : 0))
                    return "a pair's holders are wrong";
            }
        }
    return {};
}

}  // namespace opus::controller
