// Managers that do what managers do: what they ask, tell and hear.
#include "test/controller/core/harness.h"

#include <algorithm>
#include <utility>

#include "test/controller/core/job_ways.h"

namespace opus::controller::test {

wire::CommMember World::member_of(std::size_t comm, std::uint32_t slot) const {
    const std::size_t r = job_.comms[comm][slot];
    wire::CommMember m;
    m.comm = comm_id(comm);
    m.rank_in_comm = slot;
    m.size = static_cast<std::uint32_t>(job_.comms[comm].size());
    m.rank = static_cast<RankId>(r);
    m.gpu = job_.ranks[r].gpu;
    const auto mode = modes.find(r);
    m.mode = mode == modes.end() ? Mode::enforce : mode->second;
    m.verdict = entry_verdict(comm);
    m.creation = CreationState::returned;
    m.own_nic = job_.ranks[r].own_nic;
    m.own_host = job_.ranks[r].own_host;
    return m;
}

wire::LaunchDemand World::demand_of(std::size_t r, std::size_t l) const {
    wire::LaunchDemand d;
    d.launch = {static_cast<RankId>(r), l};
    const auto& keys = ranks_[r].launches[l].keys;
    if (!std::all_of(keys.begin(), keys.end(), [this](const auto& k) { return intra(k.first.comm.hi - 0x1000); }))
        d.keys = keys;
    d.op = ranks_[r].launches[l].op;
    d.bytes = 1024;
    d.mixed = job_.ranks[r].program[l].mixed;
    d.behind = !job_.ranks[r].program[l].behind.empty();
    return d;
}

// Some member is dead, and the core knows: what is left of it passes.
bool World::bereaved(std::size_t comm) const {
    const auto& members = job_.comms[comm];
    if (std::none_of(members.begin(), members.end(), [this](std::size_t member) { return ranks_[member].dead; }))
        return false;
    for (const GroupStatus& group : core->groups())
        if (group.comm == comm_id(comm)) return group.verdict == Verdict::passes || group.verdict == Verdict::degraded;
    return true;
}

bool World::intra(std::size_t comm) const { return JobWays{job_, domain_}.intra(comm); }

wire::Snapshot World::snapshot(NodeIndex n) const {
    wire::Snapshot s;
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
        if (job_.ranks[r].node != n || ranks_[r].dead) continue;
        s.ranks.push_back({static_cast<RankId>(r), 1, job_.ranks[r].gpu, hold_ms, policy, "job"});
        for (std::size_t c = 0; c < job_.comms.size(); ++c)
            for (std::uint32_t slot = 0; slot < job_.comms[c].size(); ++slot) {
                if (job_.comms[c][slot] != r) continue;
                s.comms.push_back(member_of(c, slot));
                std::map<Key, std::uint64_t> ends;
                for (const RunLaunch& l : ranks_[r].launches)
                    for (const auto& range : l.keys) {
                        if (!l.done || range.first.comm != comm_id(c)) continue;
                        std::uint64_t& end = ends[sequence_of(range.first)];
                        end = std::max(end, range.first.n + 1);
                    }
                for (const auto& [which, end] : ends) {
                    Key sequence = which;
                    sequence.n = end - 1;
                    s.comms.back().done.push_back({sequence, 1});
                }
            }
        for (std::size_t l = 0; l < ranks_[r].launches.size(); ++l) {
            const RunLaunch& x = ranks_[r].launches[l];
            if (!x.reached || x.done) continue;
            const auto state = !x.go         ? wire::LaunchState::ready
                               : x.passed    ? wire::LaunchState::passed
                               : x.suspended ? wire::LaunchState::suspended
                                             : wire::LaunchState::in_flight;
            s.launches.push_back({demand_of(r, l), state, x.grant});
            if (s.launches.back().demand.keys.empty()) s.launches.pop_back();
        }
    }
    for (const auto& [grant, ranges] : managers_[n].soft) s.tokens.push_back({grant, {}, ranges, {}});
    return s;
}

void World::connect_node(NodeIndex n) {
    Manager& m = managers_[n];
    m.session = next_session_++;
    m.up = true;
    feed(NodeSession{n, m.session});
    for (auto& [where, r] : rank_of_)
        if (where.first == n)
            for (RunLaunch& x : ranks_[r].launches) {
                x.asked = x.asked || x.reached;
                x.reported_done = x.reported_done || x.done;
                x.under_run = x.under_run && x.done;  // the snapshot tells
            }
    m.unreported.launches.clear();
    to_core(n, snapshot(n));
    if (!m.unreported.ran.empty()) to_core(n, std::exchange(m.unreported, {}));
}

void World::drop_node(NodeIndex n, bool back) {
    Manager& m = managers_[n];
    if (!m.up) return;
    m.up = false;
    m.down_ns = now;
    feed(NodeLost{n, m.session});
    m.session = 0;
    if (back)
        at(now + jitter(1 * kMs, 200 * kMs), [this, n] {
            if (!managers_[n].up) connect_node(n);
        });
}

void World::restart_controller() {
    ++core_life_;
    ++options_.epoch;
    options_.first = false;
    wake_ = -1;
    core = std::make_unique<Core>(fabric, options_);
    std::fill(switch_up_.begin(), switch_up_.end(), false);
    std::fill(leaves_.begin(), leaves_.end(), std::pair<PortId, TimeNs>(kNone, 0));  // what the old one had decided
    for (Manager& m : managers_) m.up = false, m.session = 0;
    for (RunRank& rank : ranks_)  // what the old one sent and nobody got is as if it had never been said
        for (RunLaunch& x : rank.launches) {
            x.granted = x.granted && x.go;
            x.moved_away = x.suspended || x.passed;
        }
    for (SwitchIndex s = 0; s < fabric.switches.size(); ++s)
        at(now + jitter(1 * kMs, 50 * kMs), [this, s] { connect_switch(s); });
    for (NodeIndex n = 0; n < fabric.nodes.size(); ++n)
        at(now + jitter(1 * kMs, 300 * kMs), [this, n] {
            if (!managers_[n].up) connect_node(n);
        });
}

void World::kill_rank(std::size_t r) {
    if (ranks_[r].dead) return;
    ranks_[r].dead = true;
    for (RunLaunch& l : ranks_[r].launches) l.dead = true;
    end_runs(job_.ranks[r].node);
    to_core(job_.ranks[r].node, wire::Retire{{static_cast<RankId>(r)}, {}, {}});
    update_transfers();
}

void World::to_core(NodeIndex n, wire::Message message) {
    Manager& m = managers_[n];
    if (!m.up) return;
    m.last_in = std::max(m.last_in, now + jitter(message_least_ns, message_most_ns));
    at(m.last_in, [this, n, session = m.session, message = std::move(message)] {
        if (managers_[n].session != session) return;
        if (const auto* d = std::get_if<wire::Done>(&message)) {
            for (const auto& x : d->launches)
                ranks_[rank_at(n, x.launch.rank)].launches[x.launch.seq].reported_done = true;
            for (const auto& x : d->ran)
                ranks_[rank_at(n, x.done.launch.rank)].launches[x.done.launch.seq].reported_done = true;
        }
        note_message(n, " -> ", message);
        feed(NodeMessage{n, session, message});
    });
}

// For the log of a replay: what launches and ranges a message names.
void World::note_message(NodeIndex n, const char* way, const wire::Message& message) {
    if (!keep_log || std::holds_alternative<wire::Heartbeat>(message)) return;
    std::string text = std::to_string(now / 1000) + " us: " + fabric.nodes[n].name + way;
    const auto launches = [&](const char* what, const std::vector<wire::LocalLaunch>& list) {
        if (!list.empty()) text += std::string(" ") + what;
        for (const auto& l : list) text += " r" + std::to_string(l.rank) + "#" + std::to_string(l.seq);
    };
    const auto ranges = [&](const char* what, const std::vector<wire::KeyRange>& list) {
        if (!list.empty()) text += std::string(" ") + what;
        for (const auto& r : list)
            text += " c" + std::to_string(r.first.comm.hi - 0x1000) +
                    (r.first.kind == KeyKind::p2p ? "." + std::to_string(r.first.src) + ">" + std::to_string(r.first.dst)
                                                  : "") +
                    "[" + std::to_string(r.first.n) + "+" + std::to_string(r.count) + "]";
    };
    const auto demands = [&](const char* what, const std::vector<wire::LaunchDemand>& list) {
        for (const auto& d : list) {
            launches(what, {d.launch});
            ranges("keys", d.keys);
        }
    };
    if (const auto* d = std::get_if<wire::Demand>(&message)) demands("demand", d->launches);
    if (const auto* g = std::get_if<wire::Grant>(&message)) {
        launches(("grant " + std::to_string(g->id)).c_str(), g->firm);
        ranges("soft", g->soft);
    }
    if (const auto* v = std::get_if<wire::Revoke>(&message)) text += " revoke " + std::to_string(v->id);
    if (const auto* r = std::get_if<wire::Returned>(&message)) {
        text += " returned " + std::to_string(r->id);
        demands("running", r->running);
    }
    if (const auto* d = std::get_if<wire::Done>(&message)) {
        for (const auto& l : d->launches) launches("done", {l.launch});
        for (const auto& r : d->ran) launches("ran", {r.demand.launch});
        for (const auto id : d->ended) text += " ended " + std::to_string(id);
    }
    if (const auto* s = std::get_if<wire::Snapshot>(&message)) {
        for (const auto& l : s->launches)
            launches(l.state == wire::LaunchState::ready ? "ready" : "open", {l.demand.launch});
        for (const auto& t : s->tokens) ranges(("token " + std::to_string(t.grant)).c_str(), t.soft);
    }
    if (const auto* x = std::get_if<wire::Pass>(&message)) launches("pass", x->launches);
    if (const auto* x = std::get_if<wire::Suspended>(&message)) launches(x->back ? "back" : "suspended", x->launches);
    logs.push_back(std::move(text));
}

void World::receive(NodeIndex n, std::uint64_t session, const wire::Message& message) {
    Manager& m = managers_[n];
    if (m.session != session || session == 0) return;
    note_message(n, " <- ", message);
    if (const auto* g = std::get_if<wire::Grant>(&message)) {
        for (const auto& s : g->steering) {
            const PortId p = fabric.gpus[fabric.nodes[n].gpus[s.gpu]].ports[s.port];
            m.table[p] =
                s.peer_node == kNone ? kNone : fabric.gpus[fabric.nodes[s.peer_node].gpus[s.peer_gpu]].ports[s.peer_port];
        }
        for (const auto& l : g->firm) {
            const std::size_t r = rank_at(n, l.rank);
            RunLaunch& x = ranks_[r].launches[l.seq];
            if (x.go || x.dead) continue;
            x.grant = g->id;
            check_start(r, l.seq);
            start(r, l.seq, false);
        }
        if (!g->soft.empty()) {
            m.soft[g->id] = g->soft;
            for (auto& [where, r] : rank_of_)
                for (std::size_t l = 0; where.first == n && l < ranks_[r].launches.size(); ++l)
                    if (ranks_[r].launches[l].waits) start_under_run(r, l);
        }
    } else if (const auto* v = std::get_if<wire::Revoke>(&message)) {
        return_runs(n, *v);
    } else if (const auto* p = std::get_if<wire::Pass>(&message)) {
        for (const auto& l : p->launches) {
            const std::size_t r = rank_at(n, l.rank);
            if (!ranks_[r].launches[l.seq].go) start(r, l.seq, true);
        }
    } else if (const auto* s = std::get_if<wire::Suspended>(&message)) {
        for (const auto& l : s->launches) {
            RunLaunch& x = ranks_[rank_at(n, l.rank)].launches[l.seq];
            if (!x.go && !x.done && s->back) violate("a launch that never started is said to be back");
            x.suspended = !s->back;
        }
    } else if (std::holds_alternative<wire::Resync>(message)) {
        drop_node(n);
    }
}

void World::check_start(std::size_t r, std::size_t l) {
    const NodeIndex n = job_.ranks[r].node;
    for (const auto& range : ranks_[r].launches[l].keys) {
        const Transfer& t = transfers_[transfer_of_.at(range.first)];
        if (bereaved(range.first.comm.hi - 0x1000)) continue;
        for (const auto& pair : t.pairs) {
            if (!pair_lit(pair))
                violate(name(r, l) + " starts in the dark: " + fabric.gpus[pair.first].name + " - " +
                        fabric.gpus[pair.second].name);
            for (const auto& [mine, other] : {pair, std::pair{pair.second, pair.first}}) {
                if (fabric.gpus[mine].node != n) continue;
                bool steered = false;
                for (const PortId p : fabric.gpus[mine].ports) {
                    const PortId told = managers_[n].table[p];
                    if (told == kNone || fabric.ports[told].gpu != other) continue;
                    steered = true;
                    if (peer_[p] != told)
                        violate(name(r, l) + " would send by " + fabric.ports[p].name + ", which leads elsewhere");
                }
                if (!steered) violate(name(r, l) + " starts without a way to " + fabric.gpus[other].name);
            }
        }
    }
}

}  // namespace opus::controller::test
