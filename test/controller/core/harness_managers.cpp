// The managers: their own cores, which see in their ranks' rings what those do, and hear what the controller says.
#include "test/controller/core/harness.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "test/controller/core/job_ways.h"

namespace opus::controller::test {
namespace {

constexpr TimeNs kRealtime = 1'700'000'000'000'000'000;
constexpr TimeNs kNever = std::numeric_limits<TimeNs>::max();

}  // namespace

// Hosts run ahead: what a program launches is recorded before the first gate is reached. A launch takes one slot.
void World::start_manager(NodeIndex n) {
    manager::CoreOptions options;
    options.controller_silence_ns = 1'000'000'000 * kMs;  // sessions end when a test says so
    managers_[n].core = std::make_unique<manager::Core>(fabric.nodes[n].name, options);
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
        const RankSpec& spec = job_.ranks[r];
        if (spec.node != n) continue;
        const auto id = static_cast<RankId>(r);
        see(n, manager::RankUp{{id, 1, spec.gpu, hold_ms, policy, "job"}});
        for (std::uint32_t c = 0; c < job_.comms.size(); ++c) {
            const std::uint32_t place = rank_in(job_, c, r);
            const auto size = static_cast<std::uint32_t>(job_.comms[c].size());
            if (place == size) continue;
            manager::CommUp up{id, c, c, {comm_id(c), {}, place, size, id, spec.gpu}};
            up.member.creation = CreationState::returned;
            up.member.own_nic = spec.own_nic;
            up.member.own_host = spec.own_host;
            see(n, up);
        }
        for (std::size_t l = 0; l < spec.program.size(); ++l) {
            const LaunchSpec& launch = spec.program[l];
            const auto& keys = ranks_[r].launches[l].keys;
            const bool connects =
                std::any_of(keys.begin(), keys.end(), [](const auto& k) { return is_connection(k.first.kind); });
            manager::Recorded record;
            record.rank = id;
            record.seq = l;
            record.gate = connects || !launch.behind.empty() ? ring::Gate::host : ring::Gate::stream;
            record.flags =
                static_cast<std::uint16_t>((connects ? ring::kLaunchConn : 0) | (launch.mixed ? ring::kLaunchMixed : 0));
            record.stream = static_cast<std::uint64_t>(launch.stream);
            record.ops = ranks_[r].launches[l].ops;
            see(n, record);
        }
    }
}

void World::see(NodeIndex n, const manager::Event& event) {
    Manager& m = managers_[n];
    manager::Actions actions;
    m.core->on(event, now, kRealtime + now, actions);
    while (m.core->flush(now, actions)) perform(n, std::exchange(actions, {}));
    perform(n, std::move(actions));
    if (const std::string fault = m.core->check(); !fault.empty())
        violate("check of " + fabric.nodes[n].name + ": " + fault);
}

void World::perform(NodeIndex n, manager::Actions actions) {
    for (manager::Action& action : actions) {
        if (auto* send = std::get_if<manager::Send>(&action)) {
            to_core(n, std::move(send->message));
        } else if (const auto* go = std::get_if<manager::SetGo>(&action)) {
            let_go(n, go->rank, go->seq);
        } else if (const auto* verdict = std::get_if<manager::SetVerdict>(&action)) {
            ranks_[verdict->rank].verdicts[verdict->index] = verdict->verdict;
        } else if (const auto* steering = std::get_if<manager::Steer>(&action)) {
            steer(n, *steering);
        } else if (const auto* wake = std::get_if<manager::WakeAt>(&action)) {
            wake_at(n, wake->at_ns);
        } else if (std::holds_alternative<manager::EndSession>(action)) {
            drop_node(n);
        } else if (const auto* log = std::get_if<manager::Log>(&action); log != nullptr && keep_log) {
            logs.push_back(std::to_string(now / 1000) + " us: " + fabric.nodes[n].name + ": " + log->text);
        }
    }
}

void World::steer(NodeIndex n, const manager::Steer& a) {
    for (const wire::PortSteering& s : a.ports) {
        const PortId p = fabric.gpus[fabric.nodes[n].gpus[s.gpu]].ports[s.port];
        managers_[n].table[p] =
            s.peer_node == kNone ? kNone : fabric.gpus[fabric.nodes[s.peer_node].gpus[s.peer_gpu]].ports[s.peer_port];
    }
}

void World::wake_at(NodeIndex n, TimeNs at_ns) {
    const std::uint64_t number = ++managers_[n].tick;
    if (at_ns == kNever) return;
    at(at_ns, [this, n, number] {
        if (number == managers_[n].tick) see(n, manager::Tick{});
    });
}

// By a grant, by a run, or without circuits: because the controller says so, or because its communicators are not held.
void World::let_go(NodeIndex n, std::size_t r, std::size_t l) {
    RunLaunch& x = ranks_[r].launches[l];
    if (x.go || x.dead) return;
    if (!x.waits) {
        x.let_go = true;
        return;
    }
    if (x.firm) {
        check_start(r, l);
    } else if (!x.passes && is_held(r, l)) {
        if (!is_covered(n, r, l)) violate(name(r, l) + " starts, and nobody has let it");
        check_start(r, l);
        x.granted = true;
        ++run_starts;
    } else {
        const auto& ops = job_.ranks[r].program[l].ops;
        x.passed = !std::all_of(ops.begin(), ops.end(), [this](const OpSpec& op) { return intra(op.comm); });
        x.unseen = x.passed && !x.passes && !x.asked;
        unasked += x.unseen;
    }
    start(r, l);
}

bool World::is_held(std::size_t r, std::size_t l) const {
    const auto& ops = job_.ranks[r].program[l].ops;
    return std::any_of(ops.begin(), ops.end(), [&](const OpSpec& op) {
        const auto verdict = ranks_[r].verdicts.find(op.comm);
        return verdict != ranks_[r].verdicts.end() && verdict->second == Verdict::enforced;
    });
}

void World::open_gates(std::size_t r) {
    for (RunLaunch& x : ranks_[r].launches) x.passes |= x.waits;
    see(job_.ranks[r].node, manager::GaveUp{static_cast<RankId>(r)});
}

bool World::intra(std::size_t comm) const { return JobWays{job_, domain_}.intra(comm); }

// Some member is dead, and the core knows: what is left of it passes.
bool World::bereaved(std::size_t comm) const {
    const auto& members = job_.comms[comm];
    if (std::none_of(members.begin(), members.end(), [this](std::size_t member) { return ranks_[member].dead; }))
        return false;
    for (const GroupStatus& group : core->groups())
        if (group.comm == comm_id(comm)) return group.verdict == Verdict::passes || group.verdict == Verdict::degraded;
    return true;
}

// --- sessions -------------------------------------------------------------------------------------

// As the controller's shell answers a hello.
void World::connect_node(NodeIndex n) {
    Manager& m = managers_[n];
    m.session = next_session_++;
    m.up = true;
    feed(NodeSession{n, m.session});
    see(n, manager::ControllerUp{m.session});
    wire::Welcome welcome;
    welcome.session = m.session;
    welcome.epoch = options_.epoch;
    welcome.node = n;
    welcome.grace_ms = static_cast<std::uint32_t>(options_.node_grace_ns / kMs);
    see(n, manager::FromController{options_.epoch, m.session, welcome});
}

void World::drop_node(NodeIndex n, bool back) {
    Manager& m = managers_[n];
    if (!m.up) return;
    m.up = false;
    m.down_ns = now;
    feed(NodeLost{n, m.session});
    m.session = 0;
    see(n, manager::ControllerDown{});
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
    for (RunRank& rank : ranks_)  // what the old one sent and nobody got is as if it had never been said
        for (RunLaunch& x : rank.launches) {
            x.granted = x.granted && x.go;
            x.moved_away = x.suspended || x.passed;
        }
    for (NodeIndex n = 0; n < fabric.nodes.size(); ++n) {
        managers_[n].session = 0;
        if (std::exchange(managers_[n].up, false)) see(n, manager::ControllerDown{});
    }
    for (SwitchIndex s = 0; s < fabric.switches.size(); ++s)
        at(now + jitter(1 * kMs, 50 * kMs), [this, s] { connect_switch(s); });
    for (NodeIndex n = 0; n < fabric.nodes.size(); ++n)
        at(now + jitter(1 * kMs, 300 * kMs), [this, n] {
            if (!managers_[n].up) connect_node(n);
        });
}

// As the controller's shell does once a second.
void World::beat(NodeIndex n) {
    if (managers_[n].up) to_manager({n, managers_[n].session, wire::Heartbeat{1}});
    at(now + 1000 * kMs, [this, n] { beat(n); });
}

void World::kill_rank(std::size_t r) {
    if (ranks_[r].dead) return;
    ranks_[r].dead = true;
    for (RunLaunch& l : ranks_[r].launches) l.dead = true;
    see(job_.ranks[r].node, manager::RankDown{static_cast<RankId>(r)});
    update_transfers();
}

// --- messages -------------------------------------------------------------------------------------

void World::to_core(NodeIndex n, wire::Message message) {
    Manager& m = managers_[n];
    if (!m.up || std::holds_alternative<wire::Hello>(message)) return;
    note_said(n, message);
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

void World::note_said(NodeIndex n, const wire::Message& message) {
    Manager& m = managers_[n];
    const auto ask = [&](const wire::LaunchDemand& d) { ranks_[d.launch.rank].launches[d.launch.seq].asked = true; };
    if (const auto* d = std::get_if<wire::Demand>(&message))
        for (const auto& demand : d->launches) ask(demand);
    if (const auto* r = std::get_if<wire::Returned>(&message))
        for (const auto& demand : r->running) ask(demand);
    if (const auto* d = std::get_if<wire::Done>(&message))
        for (const std::uint64_t grant : d->ended) m.soft.erase(grant);
    const auto* s = std::get_if<wire::Snapshot>(&message);
    if (s == nullptr) return;
    m.soft.clear();
    for (const auto& token : s->tokens)
        if (!token.soft.empty()) m.soft[token.grant] = token.soft;
    for (const auto& launch : s->launches) ask(launch.demand);
    for (const auto& rank : s->ranks)
        for (RunLaunch& x : ranks_[rank.rank].launches) x.reported_done |= x.done;
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

void World::to_manager(const SendTo& s) {
    Manager& m = managers_[s.node];
    m.last_out = std::max(m.last_out, now + jitter(message_least_ns, message_most_ns));
    at(m.last_out, [this, s] { receive(s.node, s.session, s.message); });
}

void World::receive(NodeIndex n, std::uint64_t session, const wire::Message& message) {
    Manager& m = managers_[n];
    if (m.session != session || session == 0) return;
    note_message(n, " <- ", message);
    const auto launch = [&](const wire::LocalLaunch& l) -> RunLaunch& {
        return ranks_[rank_at(n, l.rank)].launches[l.seq];
    };
    if (const auto* g = std::get_if<wire::Grant>(&message)) {
        for (const auto& l : g->firm) launch(l).firm = true;
        if (!g->soft.empty()) m.soft[g->id] = g->soft;
    } else if (const auto* p = std::get_if<wire::Pass>(&message)) {
        for (const auto& l : p->launches) launch(l).passes |= !launch(l).go;
    } else if (const auto* s = std::get_if<wire::Suspended>(&message)) {
        for (const auto& l : s->launches) {
            RunLaunch& x = launch(l);
            if (!x.go && !x.done && s->back) violate("a launch that never started is said to be back");
            x.suspended = !s->back;
        }
    }
    see(n, manager::FromController{options_.epoch, session, message});
    if (const auto* v = std::get_if<wire::Revoke>(&message)) {
        for (const std::uint64_t grant : v->grants) m.soft.erase(grant);
        if (v->grants.empty()) m.soft.clear();
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
