// What was started or done under runs: heard, and what is half-started is cut.
#include <algorithm>
#include <utility>

#include "controller/core/gangs/gangs.h"
#include "controller/core/gangs/launches.h"
#include "controller/core/leases/cuts.h"
#include "controller/core/leases/runs.h"
#include "controller/core/provision/jobs.h"
#include "controller/core/recovery/suspension.h"
#include "controller/core/schedule/schedule.h"

namespace opus::controller {

// Keys that some member has finished and others have not: they hold their circuits, and the laggards pass
// whoever waits for these (schedule.cpp, joins_flight). What runs has been told by then, and is there.
void Cuts::cut(const Run& run) {
    for (const RunSequence& s : run.sequences) {
        Comm* comm = comms_.find(s.sequence.comm);
        if (comm == nullptr || comm->open() || !comm->complete()) continue;
        const Finished& finished = comm->finished_of(s.sequence);
        std::uint64_t low = s.end, high = s.begin;
        for (std::uint32_t i = 0; i < finished.size(); ++i) {
            const std::uint64_t upto = std::clamp(finished[i], s.begin, s.end);
            high = std::max(high, upto);
            if (!comm->members[slot_of(s.sequence, i)].gone) low = std::min(low, upto);
        }
        for (Key key = s.sequence; low < high; ++low) {
            key.n = low;
            const bool told = comm->keys.count(key) != 0;  // somebody has said what it is
            KeyState& state = launches_.key_state(*comm, key);
            if (!told) state.mesh = s.mesh;
            mark_cut(state);
            if (state.full()) gangs_.gather(state);
            launches_.erase_key_if_done(state);
        }
    }
}

// A member did it without our hearing.
void Cuts::mark_done(KeyState& key, std::uint32_t place) {
    KeyMember& member = key.members[place];
    if (member.presence != Presence::absent) return;
    member.presence = Presence::done;
    --key.missing;
    --key.left;
    ++key.done;
}

void Cuts::mark_cut(KeyState& key) {
    if (!key.cut) ++key.comm->cuts;
    key.cut = true;
    launches_.update_hold(key);
    // Laggards that wait already may go before those that reserved its ports.
    for (std::uint32_t i = 0; i < key.members.size(); ++i) {
        if (key.members[i].presence != Presence::absent) continue;
        const Member& m = key.comm->members[slot_of(key.key, i)];
        if (const Rank* rank = m.registered ? rank_of(m.node, m.rank) : nullptr)
            for (const auto& [seq, launch] : rank->launches)
                if (launch->gang != nullptr && launch->waits()) schedule_.queue(*launch->gang, true);
    }
}

// Rule (2): a rank of the gang is a laggard of a cut on the gang's circuits. Its key may be behind this launch.
// Not once somebody has waited for these ports long enough that suspension may help him: laggards could pass him
// for ever (K2).
bool Cuts::involves_laggard(const Gang& gang) {
    const std::uint64_t m = next_mark();
    std::set<std::pair<NodeIndex, RankId>> ranks;
    const auto has_waited = [&](PortId p, PairId e) {
        const auto& rs = inventory_.port(p).reservations;
        return std::any_of(rs.begin(), rs.end(), [&](const Reservation& r) {
            return r.gang != &gang && r.pair != e && r.gang->order() < gang.order() &&
                   now_ >= r.gang->blocked_ns + suspension_.break_time(*r.gang);
        });
    };
    for (const PairId e : gang.pairs)
        for (const Circuit& c : inventory_.pair(e).up)
            if (has_waited(c.a, e) || has_waited(c.b, e)) return false;
    for (const PairId e : gang.pairs)
        for (KeyState* key : inventory_.pair(e).holders) {
            if (!key->cut || std::exchange(key->mark, m) == m) continue;
            if (ranks.empty())
                for (const Launch* l : gang.launches) ranks.insert({l->id.node, l->id.rank});
            for (std::uint32_t i = 0; i < key->members.size(); ++i) {
                if (key->members[i].presence != Presence::absent) continue;
                const Member& member = key->comm->members[slot_of(key->key, i)];
                if (ranks.count({member.node, member.rank}) != 0) return true;
            }
        }
    return false;
}

// --- what was done, and not reported before --------------------------------------------------------

void Cuts::hear_ran(NodeIndex n, const wire::LaunchRan& ran) {
    if (launch_of({n, ran.demand.launch.rank, ran.demand.launch.seq}) != nullptr)
        return launches_.hear_done(n, ran.done);
    Trace t;
    t.kind = Trace::Kind::launch_done;
    t.launch = {n, ran.demand.launch.rank, ran.demand.launch.seq};
    t.ready_ns = ran.done.ready_ns;
    t.go_ns = ran.done.go_ns;
    t.done_ns = ran.done.done_ns;
    t.op = ran.demand.op;
    t.bytes = ran.demand.bytes;
    if (!ran.demand.keys.empty()) t.comm = ran.demand.keys.front().first.comm;
    trace(t);
    ++counters_.launches_done;
    ++counters_.run_launches;
    const Rank* rank = rank_of(n, ran.demand.launch.rank);
    if (rank == nullptr) return;
    plan::Seen seen;
    seen.op = ran.demand.op;
    seen.unasked = true;
    for (const wire::KeyRange& range : ran.demand.keys) {
        const Membership* member = Launches::membership_of(*rank, range);
        if (member == nullptr || !may_need_light(*member->comm)) continue;
        for (Key key = range.first; key.n < range.first.n + range.count; ++key.n)
            seen.keys.push_back({key, range.mesh});
    }
    if (!seen.keys.empty())
        if (const Comm* comm = comms_.find(seen.keys.front().key.comm))
            if (const Key& key = seen.keys.front().key;
                const Run* run = runs_.run_of(*comm, sequence_of(key), key.n, key.n + 1))
                seen.circuits = run->circuits;
    jobs_.note_seen(n, ran.done, std::move(seen), ran.demand.bytes);
    for (const wire::KeyRange& range : ran.demand.keys)
        if (const Membership* member = Launches::membership_of(*rank, range)) did_unreported(*member, range);
}

void Cuts::did_unreported(const Membership& membership, const wire::KeyRange& range) {
    Comm& comm = *membership.comm;
    const Key sequence = sequence_of(range.first);
    const std::uint64_t end = range.first.n + range.count;
    KeyState last = stand_in(comm, range.first, range.mesh);
    last.key.n = end - 1;
    launches_.count_use(last);
    for (const std::uint32_t slot : membership.slots) {  // a process with several members says so once for each
        const std::uint32_t place = place_of(sequence, slot);
        if (place == kNone || comm.finished_of(sequence)[place] >= end) continue;
        comm.finished_of(sequence)[place] = end;
        break;
    }
    if (comm.keys.empty()) return;
    Key key = range.first;
    for (std::uint32_t i = 0; i < range.count; ++i, ++key.n) {
        const auto it = comm.keys.find(key);
        if (it == comm.keys.end()) continue;
        KeyState& state = *it->second;
        for (const std::uint32_t slot : membership.slots)
            if (const std::uint32_t place = place_of(key, slot);
                place != kNone && state.members[place].presence == Presence::absent) {
                did_unreported(state, place);
                break;
            }
    }
}

// The key may be erased by it.
void Cuts::did_unreported(KeyState& key, std::uint32_t place) {
    mark_done(key, place);
    launches_.update_hold(key);
    if (key.full()) gangs_.gather(key);
    launches_.erase_key_if_done(key);
}

// A rank that asks for the n-th of a sequence has finished all before it, but for what is known to run: launches of a
// communicator are in order.
// Matters for keys of a cut whose reports were lost with a manager.
void Cuts::imply_done(Comm& comm, const Key& key, std::uint32_t slot) {
    std::uint64_t& upto = comm.finished_of(sequence_of(key))[place_of(key, slot)];
    if (key.n <= upto) return;
    upto = key.n;
    tell_finished(comm, slot);
}

// What the member is known to have finished, to the keys that are there.
void Cuts::tell_finished(Comm& comm, std::uint32_t slot) {
    std::vector<KeyState*> keys;
    for (const auto& entry : comm.keys) {
        KeyState& key = *entry.second;
        const std::uint32_t place = place_of(key.key, slot);
        if (place != kNone && key.members[place].presence == Presence::absent && key.key.n < key.finished->at(place))
            keys.push_back(&key);
    }
    std::sort(keys.begin(), keys.end(), [](const auto* x, const auto* y) { return x->key < y->key; });
    for (KeyState* key : keys) did_unreported(*key, place_of(key->key, slot));
}

}  // namespace opus::controller
