// How runs end: what was started under them is heard, what is half-started is cut, and what a new session or an
// older controller's time has left of them is adopted.
#include <algorithm>
#include <utility>

#include "controller/core/impl.h"
#include "opus/assert.h"

namespace opus::controller {

// --- returning ------------------------------------------------------------------------------------

void Core::Impl::hear(NodeIndex n, const wire::Returned& m) {
    for (const wire::LaunchDemand& d : m.running) {
        adopt(n, {d, wire::LaunchState::in_flight, m.id}, false);
        if (Launch* launch = launch_of({n, d.launch.rank, d.launch.seq}))
            for (const KeyRef& r : launch->keys) mark_cut(*r.key);
    }
    if (nodes[n].unsettled > 0) refresh_absent(n);
    if (Run* run = find_run(m.id)) node_is_over(*run, n);
}

// The node holds no part of it any more.
void Core::Impl::node_is_over(Run& run, NodeIndex n) {
    if (run.nodes.erase(n) == 0) return;
    nodes[n].runs.erase(run.grant);
    if (run.unsettled) {
        --nodes[n].unsettled;
        refresh_absent(n);
    }
    if (run.nodes.empty()) close_run(run);
}

void Core::Impl::close_run(Run& run) {
    const std::uint64_t grant = run.grant;
    cut(run);
    for (const NodeIndex n : run.nodes) {
        nodes[n].runs.erase(grant);
        if (run.unsettled) --nodes[n].unsettled;
    }
    runs_again.erase(grant);
    for (const RunSequence& s : run.sequences)
        if (Comm* comm = comms.find(s.sequence.comm)) std::erase(comm->runs, grant);
    const std::vector<EdgeId> edges = std::move(run.edges);
    kept_runs.erase(grant);
    runs.erase(grant);
    for (const EdgeId e : edges) {
        std::erase(inventory.edge(e).runs, grant);
        if (!inventory.edge(e).busy()) wake_edge(e);
    }
}

// Keys that some member has finished and others have not: they hold their circuits, and the laggards pass
// whoever waits for these (schedule.cpp, joins_flight). What runs has been told by then, and is there.
void Core::Impl::cut(const Run& run) {
    for (const RunSequence& s : run.sequences) {
        Comm* comm = comms.find(s.sequence.comm);
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
            KeyState& state = key_state(*comm, key);
            if (!told) state.mesh = s.mesh;
            mark_cut(state);
            if (state.full()) gather(state);
            erase_key_if_done(state);
        }
    }
}

// A member did it without our hearing.
void Core::Impl::mark_done(KeyState& key, std::uint32_t place) {
    KeyMember& member = key.members[place];
    if (member.presence != Presence::absent) return;
    member.presence = Presence::done;
    --key.missing;
    --key.left;
    ++key.done;
}

void Core::Impl::mark_cut(KeyState& key) {
    if (!key.cut) ++key.comm->cuts;
    key.cut = true;
    update_hold(key);
    // Laggards that wait already may go before those that reserved its ports.
    for (std::uint32_t i = 0; i < key.members.size(); ++i) {
        if (key.members[i].presence != Presence::absent) continue;
        const Member& m = key.comm->members[slot_of(key.key, i)];
        if (const Rank* rank = m.registered ? rank_of(m.node, m.rank) : nullptr)
            for (const auto& [seq, launch] : rank->launches)
                if (launch->gang != nullptr && launch->waits()) queue(*launch->gang, true);
    }
}

// Rule (2): a rank of the gang is a laggard of a cut on the gang's circuits. Its key may be behind this launch.
// Not once somebody has waited for these ports long enough that suspension may help him: laggards could pass him
// for ever (K2).
bool Core::Impl::involves_laggard(const Gang& gang) {
    const std::uint64_t m = next_mark();
    std::set<std::pair<NodeIndex, RankId>> ranks;
    const auto has_waited = [&](PortId p, EdgeId e) {
        const auto& rs = inventory.port(p).reservations;
        return std::any_of(rs.begin(), rs.end(), [&](const Reservation& r) {
            return r.gang != &gang && r.edge != e && r.gang->order() < gang.order() &&
                   now >= r.gang->blocked_ns + break_time(*r.gang);
        });
    };
    for (const EdgeId e : gang.edges)
        for (const Circuit& c : inventory.edge(e).up)
            if (has_waited(c.a, e) || has_waited(c.b, e)) return false;
    for (const EdgeId e : gang.edges)
        for (KeyState* key : inventory.edge(e).holders) {
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

void Core::Impl::hear_ran(NodeIndex n, const wire::LaunchRan& ran) {
    if (launch_of({n, ran.demand.launch.rank, ran.demand.launch.seq}) != nullptr) return hear_done(n, ran.done);
    Trace t;
    t.kind = Trace::Kind::launch_done;
    t.launch = {n, ran.demand.launch.rank, ran.demand.launch.seq};
    t.ready_ns = ran.done.ready_ns;
    t.go_ns = ran.done.go_ns;
    t.done_ns = ran.done.done_ns;
    t.op = ran.demand.op;
    t.bytes = ran.demand.bytes;
    if (!ran.demand.keys.empty()) t.comm = ran.demand.keys.front().first.comm;
    trace(std::move(t));
    ++counters.launches_done;
    ++counters.run_launches;
    const Rank* rank = rank_of(n, ran.demand.launch.rank);
    if (rank == nullptr) return;
    plan::Seen seen;
    seen.op = ran.demand.op;
    seen.unasked = true;
    for (const wire::KeyRange& range : ran.demand.keys)
        for (Key key = range.first; key.n < range.first.n + range.count; ++key.n)
            seen.keys.push_back({key, range.mesh});
    if (!seen.keys.empty())
        if (const Comm* comm = comms.find(seen.keys.front().key.comm))
            if (const Key& key = seen.keys.front().key; const Run* run = run_of(*comm, sequence_of(key), key.n, key.n + 1))
                seen.circuits = run->circuits;
    note_seen(n, ran.done, std::move(seen), ran.demand.bytes);
    for (const wire::KeyRange& range : ran.demand.keys)
        if (const auto member = rank->comms.find(range.first.comm); member != rank->comms.end())
            did_unreported(member->second, range);
}

void Core::Impl::did_unreported(const Membership& membership, const wire::KeyRange& range) {
    Comm& comm = *membership.comm;
    const Key sequence = sequence_of(range.first);
    const std::uint64_t end = range.first.n + range.count;
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
void Core::Impl::did_unreported(KeyState& key, std::uint32_t place) {
    mark_done(key, place);
    update_hold(key);
    if (key.full()) gather(key);
    erase_key_if_done(key);
}

// A rank that asks for the n-th of a sequence has finished all before it, but for what is known to run: launches of a
// communicator are in order.
// Matters for keys of a cut whose reports were lost with a manager.
void Core::Impl::imply_done(Comm& comm, const Key& key, std::uint32_t slot) {
    std::uint64_t& upto = comm.finished_of(sequence_of(key))[place_of(key, slot)];
    if (key.n <= upto) return;
    upto = key.n;
    tell_finished(comm, slot);
}

// What the member is known to have finished, to the keys that are there.
void Core::Impl::tell_finished(Comm& comm, std::uint32_t slot) {
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

// --- communicators that end, nodes that come again ------------------------------------------------

void Core::Impl::end_runs_of(Comm& comm) {
    for (const std::uint64_t grant : std::vector<std::uint64_t>(comm.runs)) {
        Run& run = must_find(runs, grant);
        std::erase_if(run.sequences, [&](const RunSequence& s) { return s.sequence.comm == comm.id; });
        if (run.unsettled) runs_again.insert(grant);
        run.sequences.empty() ? close_run(run) : revoke(run, "a communicator of it is gone");
    }
    comm.runs.clear();
}

// Its snapshot says which runs it holds; launches it has started are adopted by then.
void Core::Impl::adopt_tokens(NodeIndex n, const std::vector<wire::Token>& tokens) {
    std::set<std::uint64_t> held;
    for (const wire::Token& token : tokens)
        if (!token.soft.empty()) held.insert(token.grant);
    std::vector<std::uint64_t> over;
    for (const std::uint64_t grant : nodes[n].runs)
        if (held.count(grant) == 0) over.push_back(grant);
    for (const std::uint64_t grant : over) node_is_over(must_find(runs, grant), n);
    for (const wire::Token& token : tokens)
        if (!token.soft.empty()) adopt_token(n, token);
    // What it was granted and has never heard of.
    for (const auto& [id, rank] : nodes[n].ranks)
        for (const auto& [seq, launch] : rank.launches)
            if (launch->waits()) demand_meets_runs(*launch);
}

void Core::Impl::adopt_token(NodeIndex n, const wire::Token& token) {
    Run* run = find_run(token.grant);
    if (run == nullptr) {
        run = &runs[token.grant];
        run->grant = token.grant;
        run->unsettled = true;
    }
    if (!run->unsettled) {  // of this controller's time
        const bool fresh = run->nodes.insert(n).second;
        nodes[n].runs.insert(run->grant);
        if (run->revoked) send_revoke(*run, n);
        if (fresh) revoke(*run, fabric.nodes[n].name + " holds what it was not known to hold");
        return;
    }
    runs_again.insert(token.grant);
    for (const wire::KeyRange& range : token.soft) {
        Comm* comm = comms.find(range.first.comm);
        const std::uint32_t highest = std::max(range.first.src, range.first.dst);
        if (comm == nullptr || highest >= comm->size) continue;
        const Key sequence = sequence_of(range.first);
        const RunSequence s{sequence, range.mesh, range.first.n, range.first.n + range.count};
        const auto known = std::find_if(run->sequences.begin(), run->sequences.end(), [&](const RunSequence& x) {
            return x.sequence == sequence && x.begin == s.begin;
        });
        if (known != run->sequences.end()) continue;
        run->sequences.push_back(s);
        join_comm(*comm, token.grant);
    }
    if (!run->nodes.insert(n).second) return;
    nodes[n].runs.insert(run->grant);
    ++nodes[n].unsettled;
    adoption_due = true;
}

// The circuits of adopted runs, once they can be known.
void Core::Impl::settle_runs() {
    std::vector<std::uint64_t> ready;
    for (const std::uint64_t grant : std::exchange(runs_again, {})) {
        Run& run = must_find(runs, grant);
        bool known = true, never = false;
        std::vector<EdgeId> edges;
        for (const RunSequence& s : run.sequences) {
            Comm* comm = comms.find(s.sequence.comm);
            known &= comm != nullptr && comm->verdict != Verdict::unknown;
            if (!known) break;
            never |= !comm->complete();
            const auto of_it = edges_of_sequence(*comm, s.sequence, s.mesh);
            edges.insert(edges.end(), of_it.begin(), of_it.end());
        }
        known &= std::all_of(edges.begin(), edges.end(), [this](EdgeId e) { return is_read(e); });
        if (!known) continue;
        if (never) {  // a member is gone, so nobody will say where it lies: its nodes' ports are kept until they have answered
            for (const NodeIndex n : run.nodes) send_revoke(run, n);
            continue;
        }
        run.edges = std::move(edges);
        ready.push_back(grant);
    }
    for (const std::uint64_t grant : ready) {
        Run& run = must_find(runs, grant);
        run.unsettled = false;
        lie_on_edges(run);
        const bool asked = std::exchange(run.revoked, false);
        const bool lit = std::all_of(run.edges.begin(), run.edges.end(), [this](EdgeId e) { return inventory.lit(e); });
        const std::set<NodeIndex> holders = run.nodes;
        for (const NodeIndex n : holders) {
            --nodes[n].unsettled;
            refresh_absent(n);
        }
        if (asked || !lit || !options.runs)
            revoke(run, !lit ? "its circuits are not up" : "asked for before it was known");
        if (run.nodes.empty()) close_run(run);
    }
}

}  // namespace opus::controller
