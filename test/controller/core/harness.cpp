#include "test/controller/core/harness.h"

#include <algorithm>
#include <utility>

namespace opus::controller::test {

CommId comm_id(std::size_t comm) { return {0x1000 + comm, 7}; }

Fabric make_fabric(const Shape& shape) {
    Fabric f;
    f.name = "test";
    for (std::uint32_t g = 0; g < shape.gpus; ++g) {
        Rail rail;
        rail.name = "r" + std::to_string(g);
        for (std::uint32_t plane = 0; plane < shape.planes; ++plane) {
            Switch s;
            s.name = "ocs-r" + std::to_string(g) + (shape.planes > 1 ? "-" + std::to_string(plane) : "");
            s.driver = "model";
            s.ingress = shape.nodes * shape.ports;
            if (shape.two_sided) {
                s.sidedness = Sidedness::two_sided;
                s.egress = s.ingress;
            }
            s.dark_ns = shape.dark_ns;
            rail.switches.push_back(static_cast<SwitchIndex>(f.switches.size()));
            f.switches.push_back(s);
        }
        f.rails.push_back(rail);
    }
    std::vector<std::uint32_t> used_in(f.switches.size(), 0), used_out(f.switches.size(), 0);
    for (std::uint32_t n = 0; n < shape.nodes; ++n) {
        Node node;
        node.name = "n" + std::to_string(n);
        for (std::uint32_t g = 0; g < shape.gpus; ++g) {
            Gpu gpu;
            gpu.name = node.name + ".g" + std::to_string(g);
            gpu.node = n;
            gpu.local = g;
            gpu.rail = g;
            const GpuId id = static_cast<GpuId>(f.gpus.size());
            for (std::uint32_t p = 0; p < shape.ports; ++p) {
                Port port;
                port.name = gpu.name + ".p" + std::to_string(p);
                port.gpu = id;
                port.index = p;
                port.sw = f.rails[g].switches[p % shape.planes];
                const bool out = shape.two_sided && (shape.ports == 1 ? n % 2 == 1 : p % 2 == 1);
                port.sw_port = out ? f.switches[port.sw].ingress + ++used_out[port.sw] : ++used_in[port.sw];
                gpu.ports.push_back(static_cast<PortId>(f.ports.size()));
                f.ports.push_back(port);
            }
            f.rails[g].gpus.push_back(id);
            node.gpus.push_back(id);
            f.gpus.push_back(gpu);
        }
        f.nodes.push_back(node);
    }
    return f;
}

World::World(const Shape& shape, Job job, std::uint64_t seed, CoreOptions options)
    : fabric(make_fabric(shape)),
      job_(std::move(job)),
      options_(options),
      random_(seed),
      peer_(fabric.ports.size(), kNone),
      coming_(fabric.ports.size(), 0),
      blind_(fabric.ports.size(), kNone),
      leaves_(fabric.ports.size(), std::pair<PortId, TimeNs>(kNone, 0)),
      switch_up_(fabric.switches.size(), false) {
    build();
}

namespace {

struct Counters {
    std::map<std::pair<std::size_t, int>, std::uint64_t> coll;                                // comm, rank
    std::map<std::tuple<std::size_t, std::uint32_t, std::uint32_t, int>, std::uint64_t> p2p;  // comm, src, dst, side
};

std::uint32_t rank_in(const Job& job, std::size_t comm, std::size_t rank) {
    const auto& members = job.comms[comm];
    return static_cast<std::uint32_t>(std::find(members.begin(), members.end(), rank) - members.begin());
}

}  // namespace

void World::build() {
    ranks_.resize(job_.ranks.size());
    managers_.resize(fabric.nodes.size());
    for (auto& m : managers_) m.table.assign(fabric.ports.size(), kNone);
    for (std::size_t r = 0; r < ranks_.size(); ++r) rank_of_[{job_.ranks[r].node, static_cast<RankId>(r)}] = r;
    Counters counters;
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
        for (std::size_t l = 0; l < job_.ranks[r].program.size(); ++l) {
            const LaunchSpec& spec = job_.ranks[r].program[l];
            RunLaunch run;
            if (!spec.ops.empty()) run.op = spec.ops.front().op;
            for (const OpSpec& op : spec.ops) {
                Key key;
                key.comm = comm_id(op.comm);
                const std::uint32_t me = rank_in(job_, op.comm, r);
                const bool mesh = op.op == OpKind::all_to_all;
                if (op.what == What::connect) {
                    key.kind = KeyKind::conn;
                } else if (op.what == What::coll) {
                    key.n = counters.coll[{op.comm, static_cast<int>(r)}]++;
                } else {
                    key.kind = KeyKind::p2p;
                    key.src = op.what == What::send ? me : op.peer;
                    key.dst = op.what == What::send ? op.peer : me;
                    key.n = counters.p2p[{op.comm, key.src, key.dst, op.what == What::send}]++;
                }
                run.keys.push_back({key, 1, mesh});
                auto [it, fresh] = transfer_of_.try_emplace(key, transfers_.size());
                if (fresh) {
                    Transfer t;
                    t.key = key;
                    t.pairs = pairs_of(key, mesh);
                    t.left_ns = spec.work_ns;
                    transfers_.push_back(std::move(t));
                }
                transfers_[it->second].members.emplace_back(r, l);
                run.left.insert(it->second);
            }
            ranks_[r].launches.push_back(std::move(run));
        }
    }
}

// Written apart from the core on purpose: it is what the core is held to.
std::vector<std::pair<GpuId, GpuId>> World::pairs_of(const Key& key, bool mesh) const {
    const std::size_t comm = key.comm.hi - 0x1000;
    std::set<std::pair<GpuId, GpuId>> pairs;
    const auto add = [&](NodeIndex from, NodeIndex to, std::uint32_t local) {
        if (from != to) pairs.insert(std::minmax(fabric.nodes[from].gpus[local], fabric.nodes[to].gpus[local]));
    };
    const auto& members = job_.comms[comm];
    if (key.kind == KeyKind::p2p || key.kind == KeyKind::conn_p2p) {
        const RankSpec &src = job_.ranks[members[key.src]], &dst = job_.ranks[members[key.dst]];
        add(src.node, dst.node, dst.gpu);
        return {pairs.begin(), pairs.end()};
    }
    std::vector<NodeIndex> order;
    for (const std::size_t m : members)
        if (std::find(order.begin(), order.end(), job_.ranks[m].node) == order.end())
            order.push_back(job_.ranks[m].node);
    for (std::size_t i = 0; i < order.size(); ++i)
        for (const std::size_t m : members)
            for (std::size_t j = 0; j < order.size(); ++j)
                if (job_.ranks[m].node == order[j] && (mesh || j == (i + 1) % order.size()))
                    add(order[i], order[j], job_.ranks[m].gpu);
    return {pairs.begin(), pairs.end()};
}

TimeNs World::jitter(TimeNs least, TimeNs most) {
    return least + static_cast<TimeNs>(random_() % static_cast<std::uint64_t>(most - least + 1));
}

void World::at(TimeNs when, std::function<void()> what) {
    queue_.push({std::max(when, now), order_++, std::move(what)});
}

void World::violate(const std::string& text) { violations.push_back(std::to_string(now / 1000) + " us: " + text); }

std::string World::name(std::size_t r, std::size_t l) const {
    return "rank " + std::to_string(r) + " launch " + std::to_string(l);
}

PortId World::port(const std::string& name) const {
    for (PortId p = 0; p < fabric.ports.size(); ++p)
        if (fabric.ports[p].name == name) return p;
    return kNone;
}

// --- the core and its wires -----------------------------------------------------------------------

void World::feed(const Event& event) {
    Actions actions;
    core->on(event, now, actions);
    act(actions);
    if (const std::string fault = core->check(); !fault.empty()) violate("check: " + fault);
}

void World::act(const Actions& actions) {
    const std::uint64_t life = core_life_;
    std::set<std::pair<std::size_t, std::size_t>> granted;
    for (const Action& action : actions) note_away(action);
    for (const Action& action : actions) {
        if (const auto* s = std::get_if<SendTo>(&action)) {
            if (const auto* g = std::get_if<wire::Grant>(&s->message))
                for (const auto& l : g->firm) granted.insert({rank_at(s->node, l.rank), l.seq});
            Manager& m = managers_[s->node];
            m.last_out = std::max(m.last_out, now + jitter(message_least_ns, message_most_ns));
            at(m.last_out, [this, s = *s] { receive(s.node, s.session, s.message); });
        } else if (const auto* p = std::get_if<Program>(&action)) {
            apply(*p);
        } else if (const auto* r = std::get_if<ReadMap>(&action)) {
            at(now + jitter(100'000, 2 * kMs), [this, r = *r, life] {
                if (life != core_life_ || !switch_up_[r.sw]) return;
                MapRead answer{r.op, DriverError::none, {}, {}};
                for (PortId p2 = 0; p2 < peer_.size(); ++p2) {
                    const PortId leads = peer_[p2] != kNone ? peer_[p2] : blind_[p2];
                    if (fabric.ports[p2].sw == r.sw && leads != kNone && p2 < leads)
                        answer.circuits.emplace_back(fabric.ports[p2].sw_port, fabric.ports[leads].sw_port);
                }
                feed(SwitchEvent{r.sw, answer});
            });
        } else if (const auto* w = std::get_if<WakeAt>(&action)) {
            wake_ = w->at_ns;
            at(wake_, [this, when = w->at_ns, life] {
                if (life != core_life_ || when != wake_) return;
                wake_ = -1;
                feed(Tick{});
            });
        } else if (const auto* log = std::get_if<Log>(&action)) {
            if (keep_log || log->level >= LogLevel::warn)
                logs.push_back(std::to_string(now / 1000) + " us: " + log->text);
        }
    }
    // A grant of this very step knows what the step's change sets take: its steering says so.
    for (const Action& action : actions) {
        if (const auto* s = std::get_if<SendTo>(&action)) note_sent(*s);
        if (const auto* t = std::get_if<Trace>(&action); t != nullptr && t->kind == Trace::Kind::resume) {
            RunLaunch& x = ranks_[rank_at(t->launch.node, t->launch.rank)].launches[t->launch.seq];
            x.moved_away = false;
            x.granted = true;
        }
    }
    check_whole(granted);
    check_whole_runs(actions);
}

void World::note_sent(const SendTo& s) {
    if (const auto* g = std::get_if<wire::Grant>(&s.message))
        for (const auto& l : g->firm) {
            RunLaunch& x = ranks_[rank_at(s.node, l.rank)].launches[l.seq];
            if (!x.granted) x.granted_ns = now;
            x.granted = true;
        }
}

// Its manager may have no session to hear it by: what counts is what was decided.
void World::note_away(const Action& action) {
    if (const auto* t = std::get_if<Trace>(&action); t != nullptr && t->kind == Trace::Kind::circuit_down)
        for (const auto& [x, y] : {std::pair{t->circuit.a, t->circuit.b}, std::pair{t->circuit.b, t->circuit.a}})
            if (x < leaves_.size()) leaves_[x] = {y, now};
    if (const auto* t = std::get_if<Trace>(&action); t != nullptr && t->kind == Trace::Kind::suspend)
        ranks_[rank_at(t->launch.node, t->launch.rank)].launches[t->launch.seq].moved_away = true;
    const auto* sent = std::get_if<SendTo>(&action);
    if (sent == nullptr) return;
    const SendTo& s = *sent;
    if (const auto* p = std::get_if<wire::Pass>(&s.message))
        for (const auto& l : p->launches) ranks_[rank_at(s.node, l.rank)].launches[l.seq].moved_away = true;
}

void World::check_whole(const std::set<std::pair<std::size_t, std::size_t>>& granted) {
    for (const auto& [r, l] : granted) {
        bool whole = job_.ranks[r].program[l].mixed, needs = false;  // nobody sees whom it meets
        for (const auto& range : ranks_[r].launches[l].keys) {
            const Transfer& t = transfers_[transfer_of_.at(range.first)];
            needs |= !t.pairs.empty();
            const std::size_t comm = range.first.comm.hi - 0x1000;
            whole |= intra(comm) || bereaved(comm);  // nobody sees whom it meets there
            whole |= std::all_of(t.members.begin(), t.members.end(), [&](const auto& m) {
                const RunLaunch& x = ranks_[m.first].launches[m.second];
                // One whose session is gone is told again when it is back.
                return x.granted || x.passed || x.moved_away || x.done || !managers_[job_.ranks[m.first].node].up;
            });
        }
        if (needs && !whole) violate(name(r, l) + " is granted without the others of any of its keys");
    }
}

void World::connect_switch(SwitchIndex s) {
    switch_up_[s] = true;
    feed(SwitchEvent{
        s, SessionUp{{"model", "ocs", std::to_string(s), "1", fabric.switches[s].ingress, fabric.switches[s].egress}}});
}

void World::session_down(SwitchIndex s, TimeNs for_ns) {
    switch_up_[s] = false;
    feed(SwitchEvent{s, SessionDown{"dropped"}});
    at(now + for_ns, [this, s] { connect_switch(s); });
}

// The command breaks circuits at once; the new ones pass light after the dark time.
void World::apply(const Program& p) {
    ++programs;
    if (taken_up_ns == 0) return carry_out(p, now, core_life_);
    at(now + taken_up_ns, [this, p, sent = now, life = core_life_] { carry_out(p, sent, life); });
}

void World::carry_out(const Program& p, TimeNs sent, std::uint64_t life) {
    const SwitchIndex s = p.sw;
    std::vector<std::pair<PortId, PortId>> connect;
    const auto cable = [&](SwitchPort n) {
        for (PortId q = 0; q < fabric.ports.size(); ++q)
            if (fabric.ports[q].sw == s && fabric.ports[q].sw_port == n) return q;
        return kNone;
    };
    for (const auto& [x, y] : p.changes.connect) {
        connect.emplace_back(cable(x), cable(y));
        if (!fabric.can_join(connect.back().first, connect.back().second)) violate("asked to join what no switch can");
    }
    for (const SwitchPort x : p.changes.disconnect) darken(cable(x));
    auto [error, applies] = switch_fault ? switch_fault(p) : std::pair{DriverError::none, connect.size()};
    if (error == DriverError::none) applies = connect.size();
    for (std::size_t i = 0; i < std::min(applies, connect.size()); ++i) {
        darken(connect[i].first);
        darken(connect[i].second);
        ++coming_[connect[i].first];
        ++coming_[connect[i].second];
    }
    update_transfers();
    const TimeNs dark = fabric.switches[s].dark_ns;
    at(now + dark + jitter(0, dark / 4), [=, this, error = error, applies = applies] {
        for (std::size_t i = 0; i < connect.size(); ++i) {
            if (i >= applies) break;
            const auto [a, b] = connect[i];
            darken(a);
            darken(b);
            --coming_[a];
            --coming_[b];
            auto& leads = error == DriverError::no_light ? blind_ : peer_;
            leads[a] = b;
            leads[b] = a;
            leaves_[a] = leaves_[b] = {kNone, 0};
        }
        update_transfers();
        if (life != core_life_ || !switch_up_[s]) return;
        feed(SwitchEvent{s, Applied{p.op, error, error == DriverError::none ? "" : "fault of the test", sent, sent, now}});
    });
}

void World::darken(PortId p) {
    if (const PortId q = blind_[p]; q != kNone) blind_[p] = blind_[q] = kNone;
    const PortId q = peer_[p];
    if (q == kNone) return;
    const auto pair = std::minmax(fabric.ports[p].gpu, fabric.ports[q].gpu);
    check_runs(pair);
    for (std::size_t r = 0; r < ranks_.size(); ++r)
        for (std::size_t l = 0; l < ranks_[r].launches.size(); ++l) {
            const RunLaunch& x = ranks_[r].launches[l];
            if (!x.granted || x.told_done || x.dead) continue;
            // It was granted over another circuit of the pair, while this one was already to be turned away.
            if (core_life_ == 0 && leaves_[p].first == q && x.granted_ns > leaves_[p].second) continue;
            // A new controller knows of a launch when its node has reported; until then it keeps that node's ports.
            const NodeIndex n = job_.ranks[r].node;
            if (core_life_ > 0 && fabric.gpus[pair.first].node != n && fabric.gpus[pair.second].node != n) continue;
            for (const auto& range : x.keys) {
                const Transfer& t = transfers_[transfer_of_.at(range.first)];
                if (bereaved(range.first.comm.hi - 0x1000)) continue;
                if (std::find(t.pairs.begin(), t.pairs.end(), std::pair<GpuId, GpuId>(pair)) == t.pairs.end()) continue;
                if (x.moved_away || x.passed) {
                    ++lost_under_suspended;
                } else if (!t.done || !x.done) {
                    violate("the circuit " + fabric.ports[p].name + " - " + fabric.ports[q].name + " moves under " +
                            name(r, l));
                }
            }
        }
    peer_[p] = peer_[q] = kNone;
}

void World::move_circuit(PortId a, PortId b) {
    for (const PortId p : {a, b})
        if (const PortId q = blind_[p]; q != kNone) blind_[p] = blind_[q] = kNone;
    for (const PortId p : {a, b})
        if (peer_[p] != kNone) {
            peer_[peer_[p]] = kNone;
            peer_[p] = kNone;
        }
    if (a != b) {
        peer_[a] = b;
        peer_[b] = a;
    }
    update_transfers();
}

// --- managers -------------------------------------------------------------------------------------

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
    if (expects && !ranks_[r].launches[l].go) d.run = run_after(r, l);
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

bool World::intra(std::size_t comm) const {
    const auto& members = job_.comms[comm];
    return std::all_of(members.begin(), members.end(),
                       [&](std::size_t m) { return job_.ranks[m].node == job_.ranks[members.front()].node; });
}

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
    for (const auto& [grant, ranges] : managers_[n].soft) s.tokens.push_back({grant, {}, ranges, false});
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
                x.told_done = x.told_done || x.done;
                x.under_run = x.under_run && x.done;  // the snapshot tells
            }
    m.untold.launches.clear();
    to_core(n, snapshot(n));
    if (!m.untold.ran.empty()) to_core(n, std::exchange(m.untold, {}));
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
            for (const auto& x : d->launches) ranks_[rank_at(n, x.launch.rank)].launches[x.launch.seq].told_done = true;
            for (const auto& x : d->ran)
                ranks_[rank_at(n, x.done.launch.rank)].launches[x.done.launch.seq].told_done = true;
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
            ranges("run", d.run);
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

// --- runs -----------------------------------------------------------------------------------------

// What the rank's program has next, as far as it is expected to be like this launch, and more that never comes.
std::vector<wire::KeyRange> World::run_after(std::size_t r, std::size_t l) const {
    std::map<Key, wire::KeyRange> ranges;
    const auto& launches = ranks_[r].launches;
    const std::uint32_t count = expects(r, l);
    for (std::size_t i = l; i < std::min<std::size_t>(launches.size(), l + count + 1); ++i)
        for (const auto& range : launches[i].keys) {
            if (range.first.kind == KeyKind::conn) continue;
            auto [it, fresh] = ranges.try_emplace(sequence_of(range.first), wire::KeyRange{range.first, 0, range.mesh});
            it->second.mesh |= range.mesh;
            if (i == l)
                it->second.first.n = range.first.n + 1;
            else
                ++it->second.count;
        }
    std::vector<wire::KeyRange> run;
    for (auto& [sequence, range] : ranges)
        if ((range.count += overshoot) > 0) run.push_back(range);
    return run;
}

bool World::covered(NodeIndex n, const wire::KeyRange& range, std::uint64_t& grant) const {
    for (const auto& [id, ranges] : managers_[n].soft)
        for (const auto& r : ranges) {
            Key first = r.first;
            first.n = range.first.n;
            if (first != range.first || first.n < r.first.n || first.n >= r.first.n + r.count || (range.mesh && !r.mesh))
                continue;
            grant = id;
            return true;
        }
    return false;
}

bool World::start_under_run(std::size_t r, std::size_t l) {
    RunLaunch& x = ranks_[r].launches[l];
    const NodeIndex n = job_.ranks[r].node;
    if (x.go || x.dead || managers_[n].soft.empty()) return false;
    std::uint64_t grant = 0;
    for (const auto& range : x.keys)
        if (!intra(range.first.comm.hi - 0x1000) && !covered(n, range, grant)) return false;
    check_start(r, l);
    x.granted = x.under_run = true;
    x.grant = grant;
    ++run_starts;
    start(r, l, false);
    return true;
}

void World::tell_done(std::size_t r, std::size_t l) {
    RunLaunch& x = ranks_[r].launches[l];
    Manager& m = managers_[job_.ranks[r].node];
    const wire::LaunchDone done{{static_cast<RankId>(r), l}, 0, 0, 0, x.passed};
    if (x.under_run) {
        m.untold.ran.push_back({demand_of(r, l), done});
        return;
    }
    if (!m.up) return;
    const auto run = m.soft.find(x.grant);
    const bool goes_on = run != m.soft.end() && std::all_of(x.keys.begin(), x.keys.end(), [&](const auto& key) {
                             return std::any_of(run->second.begin(), run->second.end(), [&](const auto& range) {
                                 Key first = range.first;
                                 first.n = key.first.n;
                                 return first == key.first && key.first.n < range.first.n + range.count;
                             });
                         });
    m.untold.launches.push_back(done);
    if (!goes_on) to_core(job_.ranks[r].node, std::exchange(m.untold, {}));
}

// What all members here have finished is used up.
void World::end_runs(NodeIndex n) {
    Manager& m = managers_[n];
    for (auto it = m.soft.begin(); it != m.soft.end();) {
        bool over = true;
        for (const auto& range : it->second)
            for (const std::size_t r : job_.comms[range.first.comm.hi - 0x1000]) {
                const std::uint32_t slot = rank_in(job_, range.first.comm.hi - 0x1000, r);
                if (job_.ranks[r].node != n || ranks_[r].dead) continue;
                if (range.first.kind == KeyKind::p2p && slot != range.first.src && slot != range.first.dst) continue;
                Key last = range.first;
                last.n += range.count - 1;
                over &= std::any_of(ranks_[r].launches.begin(), ranks_[r].launches.end(), [&](const RunLaunch& x) {
                    return x.done &&
                           std::any_of(x.keys.begin(), x.keys.end(), [&](const auto& k) { return k.first == last; });
                });
            }
        if (!over) {
            ++it;
            continue;
        }
        if (m.up) m.untold.ended.push_back(it->first);
        it = m.soft.erase(it);
    }
    if (!m.untold.ended.empty()) to_core(n, std::exchange(m.untold, {}));
}

void World::return_runs(NodeIndex n, const wire::Revoke& revoke) {
    Manager& m = managers_[n];
    for (const std::uint64_t grant : revoke.grants) m.soft.erase(grant);
    if (!m.untold.launches.empty() || !m.untold.ran.empty()) to_core(n, std::exchange(m.untold, {}));
    wire::Returned answer;
    answer.id = revoke.id;
    for (auto& [where, r] : rank_of_)
        for (std::size_t l = 0; where.first == n && l < ranks_[r].launches.size(); ++l) {
            RunLaunch& x = ranks_[r].launches[l];
            if (!x.under_run || x.done || x.dead) continue;
            x.under_run = false;
            answer.running.push_back(demand_of(r, l));
        }
    to_core(n, std::move(answer));
}

// No circuit moves on which a manager may let a launch start.
void World::check_runs(const std::pair<GpuId, GpuId>& pair) {
    for (NodeIndex n = 0; n < managers_.size(); ++n) {
        const Manager& m = managers_[n];
        if (!m.up && now - m.down_ns >= options_.node_grace_ns) continue;  // given up
        if (core_life_ > 0 && fabric.gpus[pair.first].node != n && fabric.gpus[pair.second].node != n) continue;
        for (const auto& [grant, ranges] : m.soft)
            for (const auto& range : ranges) {
                const auto pairs = pairs_of(range.first, range.mesh);
                if (std::find(pairs.begin(), pairs.end(), pair) != pairs.end())
                    violate(fabric.gpus[pair.first].name + " - " + fabric.gpus[pair.second].name + " moves under run " +
                            std::to_string(grant) + ", which n" + std::to_string(n) + " has not returned");
            }
    }
}

// A run is granted to all members of its sequences or to none.
void World::check_whole_runs(const Actions& actions) {
    std::map<std::pair<std::uint64_t, Key>, std::set<NodeIndex>> given;
    std::map<std::pair<std::uint64_t, Key>, std::uint32_t> counts;
    for (const Action& action : actions)
        if (const auto* s = std::get_if<SendTo>(&action))
            if (const auto* g = std::get_if<wire::Grant>(&s->message))
                for (const auto& range : g->soft) {
                    given[{g->id, range.first}].insert(s->node);
                    auto& count = counts[{g->id, range.first}];
                    if (count != 0 && count != range.count) violate("members are granted runs of different lengths");
                    count = range.count;
                }
    for (const auto& [which, nodes_given] : given) {
        const Key& key = which.second;
        const auto& members = job_.comms[key.comm.hi - 0x1000];
        for (std::uint32_t slot = 0; slot < members.size(); ++slot)
            if ((key.kind == KeyKind::coll || slot == key.src || slot == key.dst) &&
                nodes_given.count(job_.ranks[members[slot]].node) == 0)
                violate("a run is granted to some of its members only");
    }
}

// --- ranks ----------------------------------------------------------------------------------------

void World::advance() {
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
        if (ranks_[r].dead) continue;
        const auto& program = job_.ranks[r].program;
        for (std::size_t l = 0; l < program.size(); ++l) {
            RunLaunch& x = ranks_[r].launches[l];
            if (x.reached) continue;
            bool ready = true;
            for (std::size_t e = 0; e < l && ready; ++e) {
                if (ranks_[r].launches[e].done) continue;
                bool before = program[e].stream == program[l].stream;
                for (const OpSpec& a : program[e].ops)
                    for (const OpSpec& b : program[l].ops) before |= ready_in_order && a.comm == b.comm;
                if (before) ready = false;
            }
            for (const std::size_t e : program[l].after) ready &= ranks_[r].launches[e].done;
            if (!ready) continue;
            x.reached = true;
            const NodeIndex n = job_.ranks[r].node;
            at(now + program[l].delay_ns + jitter(0, 100'000), [this, n, r, l] {
                if (!core) return start(r, l, false);
                RunLaunch& mine = ranks_[r].launches[l];
                if (mine.dead || mine.go) return;
                if (demand_of(r, l).keys.empty()) return start(r, l, false);
                mine.waits = true;
                if (start_under_run(r, l)) return;
                if (mine.asked) return;  // by a snapshot
                if (!managers_[n].up) return;
                mine.asked = true;
                Manager& m = managers_[n];
                if (!m.untold.ran.empty() || !m.untold.launches.empty()) to_core(n, std::exchange(m.untold, {}));
                to_core(n, wire::Demand{{demand_of(r, l)}});
            });
        }
    }
}

void World::start(std::size_t r, std::size_t l, bool passed) {
    RunLaunch& x = ranks_[r].launches[l];
    if (x.dead || x.go) return;
    x.go = true;
    x.waits = false;
    x.go_ns = now;
    x.passed = passed;
    if (x.keys.empty()) finish_launch(r, l);
    update_transfers();
}

bool World::runs(const std::pair<std::size_t, std::size_t>& launch) const {
    const auto [r, l] = launch;
    if (!ranks_[r].launches[l].go || ranks_[r].launches[l].dead) return false;
    const auto& behind = job_.ranks[r].program[l].behind;
    return std::all_of(behind.begin(), behind.end(),
                       [&](const auto& b) { return ranks_[b.first].launches[b.second].done; });
}

bool World::pair_lit(const std::pair<GpuId, GpuId>& pair) const {
    for (const PortId p : fabric.gpus[pair.first].ports)
        if (peer_[p] != kNone && fabric.ports[peer_[p]].gpu == pair.second) return true;
    return false;
}

void World::update_transfers() {
    for (std::size_t i = 0; i < transfers_.size(); ++i) {
        Transfer& t = transfers_[i];
        if (t.done) continue;
        const std::size_t want = t.key.kind == KeyKind::p2p ? 2 : job_.comms[t.key.comm.hi - 0x1000].size();
        bool moving = t.members.size() >= want;
        for (const auto& member : t.members) moving &= runs(member);
        if (core)
            for (const auto& pair : t.pairs) moving &= pair_lit(pair);
        if (moving == (t.since_ns >= 0)) continue;
        ++t.version;
        if (!moving) {
            t.left_ns -= now - t.since_ns;
            t.since_ns = -1;
            continue;
        }
        t.since_ns = now;
        at(now + std::max<TimeNs>(t.left_ns, 0), [this, i, v = t.version] {
            if (transfers_[i].version == v && !transfers_[i].done) finish_transfer(i);
        });
    }
}

// Senders may end before receivers.
void World::finish_transfer(std::size_t i) {
    Transfer& t = transfers_[i];
    t.done = true;
    for (const auto& member : t.members) {
        const TimeNs late = jitter(0, 3 * kMs);
        at(now + late, [this, i, member] {
            RunLaunch& x = ranks_[member.first].launches[member.second];
            x.left.erase(i);
            if (x.left.empty() && !x.done) finish_launch(member.first, member.second);
        });
    }
}

void World::finish_launch(std::size_t r, std::size_t l) {
    RunLaunch& x = ranks_[r].launches[l];
    if (x.dead) return;
    x.done = true;
    const NodeIndex n = job_.ranks[r].node;
    if (core) tell_done(r, l);
    if (core) end_runs(n);
    advance();
    update_transfers();
}

// --- time -----------------------------------------------------------------------------------------

bool World::all_done() const {
    for (const RunRank& r : ranks_)
        for (const RunLaunch& l : r.launches)
            if (!l.done && !r.dead) return false;
    return true;
}

bool World::step() {
    if (queue_.empty()) return false;
    const Timed next = queue_.top();
    queue_.pop();
    now = std::max(now, next.at);
    next.what();
    return true;
}

void World::run_until(TimeNs until) {
    if (!core) {
        core = std::make_unique<Core>(fabric, options_);
        for (SwitchIndex s = 0; s < fabric.switches.size(); ++s) at(jitter(0, kMs), [this, s] { connect_switch(s); });
        for (NodeIndex n = 0; n < fabric.nodes.size(); ++n) at(jitter(0, kMs), [this, n] { connect_node(n); });
        // Managers say that they live.
        for (NodeIndex n = 0; n < fabric.nodes.size(); ++n)
            for (TimeNs t = 1000 * kMs; t < 700'000 * kMs; t += 1000 * kMs)
                at(t, [this, n] { to_core(n, wire::Heartbeat{1}); });
        at(2 * kMs, [this] { advance(); });
    }
    while (!queue_.empty() && queue_.top().at <= until && violations.empty()) step();
    now = std::max(now, until);
}

bool World::dry_run() {
    advance();
    while (step()) {}
    return all_done();
}

bool World::run(TimeNs limit) {
    run_until(0);
    while (!queue_.empty() && queue_.top().at <= limit && violations.empty() && !all_done()) step();
    return all_done();
}

std::string World::stuck() const {
    std::string text;
    for (std::size_t r = 0; r < ranks_.size(); ++r)
        for (std::size_t l = 0; l < ranks_[r].launches.size(); ++l) {
            const RunLaunch& x = ranks_[r].launches[l];
            if (x.done) continue;
            text += name(r, l) +
                    (x.go        ? " runs"
                     : x.reached ? " is ready"
                                 : " is not reached") +
                    (x.passed ? ", passed" : "") + (x.suspended ? ", suspended" : "") + "\n";
        }
    for (const Why& w : core->why(now)) {
        text += "why n" + std::to_string(w.launch.node) + ".r" + std::to_string(w.launch.rank) + " launch " +
                std::to_string(w.launch.seq) + ":";
        for (const auto& reason : w.reasons) text += " [" + reason + "]";
        text += "\n";
    }
    return text;
}

bool ends_without_opus(const Job& job) {
    Shape shape;
    for (const RankSpec& r : job.ranks) {
        shape.nodes = std::max(shape.nodes, r.node + 1);
        shape.gpus = std::max(shape.gpus, r.gpu + 1);
    }
    World world(shape, job);
    return world.dry_run();
}

}  // namespace opus::controller::test
