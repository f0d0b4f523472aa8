// How runs end: their nodes answer, their communicators go, or a new session and an older controller's time have left them behind.
#include <algorithm>
#include <utility>

#include "controller/core/leases/cuts.h"
#include "controller/core/leases/runs.h"
#include "controller/core/membership/node_sessions.h"
#include "controller/core/recovery/adoption.h"
#include "controller/core/schedule/schedule.h"
#include "opus/assert.h"

namespace opus::controller {

void Runs::hear(NodeIndex n, const wire::Returned& m) {
    for (const wire::LaunchDemand& d : m.running) {
        node_sessions_.adopt(n, {d, wire::LaunchState::in_flight, m.id}, false);
        if (Launch* launch = launch_of({n, d.launch.rank, d.launch.seq}))
            for (const KeyRef& r : launch->keys) cuts_.mark_cut(*r.key);
    }
    if (nodes_[n].unsettled > 0) node_sessions_.refresh_absent(n);
    if (Run* run = find(m.id)) node_is_over(*run, n);
}

// The node holds no part of it any more.
void Runs::node_is_over(Run& run, NodeIndex n) {
    if (run.nodes.erase(n) == 0) return;
    nodes_[n].runs.erase(run.grant);
    if (run.unsettled) {
        --nodes_[n].unsettled;
        node_sessions_.refresh_absent(n);
    }
    if (run.nodes.empty()) close(run);
}

void Runs::close(Run& run) {
    const std::uint64_t grant = run.grant;
    cuts_.cut(run);
    for (const NodeIndex n : run.nodes) {
        nodes_[n].runs.erase(grant);
        if (run.unsettled) --nodes_[n].unsettled;
    }
    again_.erase(grant);
    for (const RunSequence& s : run.sequences)
        if (Comm* comm = comms_.find(s.sequence.comm)) std::erase(comm->runs, grant);
    const std::vector<PairId> pairs = std::move(run.pairs);
    kept_.erase(grant);
    runs_.erase(grant);
    for (const PairId e : pairs) {
        std::erase(inventory_.pair(e).runs, grant);
        if (!inventory_.pair(e).busy()) schedule_.wake_pair(e);
    }
}

void Runs::end_of(Comm& comm) {
    for (const std::uint64_t grant : std::vector<std::uint64_t>(comm.runs)) {
        Run& run = must_find(runs_, grant);
        std::erase_if(run.sequences, [&](const RunSequence& s) { return s.sequence.comm == comm.id; });
        if (run.unsettled) again_.insert(grant);
        run.sequences.empty() ? close(run) : revoke(run, "a communicator of it is gone");
    }
    comm.runs.clear();
}

// Its snapshot says which runs it holds; launches it has started are adopted by then.
void Runs::adopt_tokens(NodeIndex n, const std::vector<wire::Token>& tokens) {
    std::set<std::uint64_t> held;
    for (const wire::Token& token : tokens)
        if (!token.soft.empty()) held.insert(token.grant);
    std::vector<std::uint64_t> over;
    for (const std::uint64_t grant : nodes_[n].runs)
        if (held.count(grant) == 0) over.push_back(grant);
    for (const std::uint64_t grant : over) node_is_over(must_find(runs_, grant), n);
    for (const wire::Token& token : tokens)
        if (!token.soft.empty()) adopt_token(n, token);
    // What it was granted and has never heard of.
    for (const auto& [id, rank] : nodes_[n].ranks)
        for (const auto& [seq, launch] : rank.launches)
            if (launch->waits()) demand_meets_runs(*launch);
}

void Runs::adopt_token(NodeIndex n, const wire::Token& token) {
    Run* run = find(token.grant);
    if (run == nullptr) {
        run = &runs_[token.grant];
        run->grant = token.grant;
        run->unsettled = true;
    }
    if (!run->unsettled) {  // of this controller's time
        const bool fresh = run->nodes.insert(n).second;
        nodes_[n].runs.insert(run->grant);
        if (run->revoked) send_revoke(*run, n);
        if (fresh) revoke(*run, fabric_.nodes[n].name + " holds what it was not known to hold");
        return;
    }
    again_.insert(token.grant);
    for (const wire::KeyRange& range : token.soft) {
        Comm* comm = comms_.find(range.first.comm);
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
    nodes_[n].runs.insert(run->grant);
    ++nodes_[n].unsettled;
    adoption_.due();
}

void Runs::look_again(const Comm& comm) {
    for (const std::uint64_t grant : comm.runs)
        if (must_find(runs_, grant).unsettled) again_.insert(grant);
}

void Runs::look_again() {
    for (const auto& [grant, run] : runs_)
        if (run.unsettled) again_.insert(grant);
}

// The circuits of adopted runs, once they can be known.
void Runs::settle_adopted() {
    std::vector<std::uint64_t> ready;
    for (const std::uint64_t grant : std::exchange(again_, {})) {
        Run& run = must_find(runs_, grant);
        bool known = true, never = false;
        std::vector<PairId> pairs;
        for (const RunSequence& s : run.sequences) {
            Comm* comm = comms_.find(s.sequence.comm);
            known &= comm != nullptr && comm->verdict != Verdict::unknown;
            if (!known) break;
            never |= !comm->complete();
            const auto of_it = pairs_of_sequence(*comm, s.sequence, s.mesh);
            pairs.insert(pairs.end(), of_it.begin(), of_it.end());
        }
        known &= std::all_of(pairs.begin(), pairs.end(), [this](PairId e) { return adoption_.is_read(e); });
        if (!known) continue;
        if (never) {  // a member is gone, so nobody will say where it lies: its nodes' ports are kept until they have answered
            for (const NodeIndex n : run.nodes) send_revoke(run, n);
            continue;
        }
        run.pairs = std::move(pairs);
        ready.push_back(grant);
    }
    for (const std::uint64_t grant : ready) {
        Run& run = must_find(runs_, grant);
        run.unsettled = false;
        lie_on_pairs(run);
        const bool asked = std::exchange(run.revoked, false);
        const bool lit = std::all_of(run.pairs.begin(), run.pairs.end(), [this](PairId e) { return inventory_.lit(e); });
        const std::set<NodeIndex> holders = run.nodes;
        for (const NodeIndex n : holders) {
            --nodes_[n].unsettled;
            node_sessions_.refresh_absent(n);
        }
        if (asked || !lit || !options_.runs)
            revoke(run, !lit ? "its circuits are not up" : "asked for before it was known");
        if (run.nodes.empty()) close(run);
    }
}

std::string Runs::check() {
    std::size_t on_pairs = 0, on_comms = 0;
    for (const auto& [grant, run] : runs_) {
        const std::string who = "run " + std::to_string(grant);
        if (run.nodes.empty()) return who + " is held by nobody";
        on_pairs += run.pairs.size();
        std::set<CommId> concerned;
        for (const RunSequence& s : run.sequences) {
            concerned.insert(s.sequence.comm);
            const Comm* comm = comms_.find(s.sequence.comm);
            if (comm == nullptr) return who + " is of a communicator that is gone";
            if (std::count(comm->runs.begin(), comm->runs.end(), grant) != 1)
                return who + " is not known to its communicator";
        }
        on_comms += concerned.size();
        for (const PairId e : run.pairs) {
            if (std::count(inventory_.pair(e).runs.begin(), inventory_.pair(e).runs.end(), grant) != 1)
                return who + " is not known to its circuits";
            if (!run.revoked && inventory_.pair(e).up.empty()) return who + " may be used in the dark";
        }
    }
    for (PairId e = 0; e < inventory_.pair_count(); ++e) on_pairs -= inventory_.pair(e).runs.size();
    for (const auto& [number, comm] : comms_.in_order()) on_comms -= comm->runs.size();
    if (on_pairs != 0) return "a circuit is held by a run that is over";
    if (on_comms != 0) return "a communicator lists a run that is over";
    for (const auto& [number, comm] : comms_.in_order()) {
        std::uint32_t cuts = 0;
        for (const auto& entry : comm->keys) cuts += entry.second->cut;
        if (cuts != comm->cuts) return "a communicator miscounts the keys of its cuts";
    }
    return {};
}

}  // namespace opus::controller
