#include "test/controller/core/harness.h"

#include <algorithm>
#include <utility>

#include "test/controller/core/job_ways.h"

namespace opus::controller::test {

CommId comm_id(std::size_t comm) { return {0x1000 + comm, 7}; }

std::uint32_t rank_in(const Job& job, std::size_t comm, std::size_t rank) {
    const auto& members = job.comms[comm];
    return static_cast<std::uint32_t>(std::find(members.begin(), members.end(), rank) - members.begin());
}

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
        if (shape.domain != 0) node.domain = n / shape.domain * shape.domain;
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
      domain_(shape.domain),
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
    std::map<std::pair<std::size_t, int>, std::uint64_t> mesh;                                // comm, rank
    std::map<std::tuple<std::size_t, std::uint32_t, std::uint32_t>, std::uint64_t> put;       // comm, src, dst
};

}  // namespace

void World::build() {
    ranks_.resize(job_.ranks.size());
    managers_.resize(fabric.nodes.size());
    for (auto& m : managers_) m.table.assign(fabric.ports.size(), kNone);
    for (std::size_t r = 0; r < ranks_.size(); ++r) rank_of_[{job_.ranks[r].node, static_cast<RankId>(r)}] = r;
    Counters counters;
    std::map<std::pair<std::size_t, std::size_t>, std::size_t> last;  // rank, comm: launch
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
        for (std::size_t l = 0; l < job_.ranks[r].program.size(); ++l) {
            const LaunchSpec& spec = job_.ranks[r].program[l];
            RunLaunch run;
            for (const OpSpec& op : spec.ops) {
                Key key;
                key.comm = comm_id(op.comm);
                const std::uint32_t me = rank_in(job_, op.comm, r);
                const bool mesh = op.op == OpKind::all_to_all;
                if (op.what == What::connect) {
                    key.kind = KeyKind::conn;
                } else if (op.what == What::connect_mesh) {
                    key.kind = KeyKind::conn_mesh;
                    key.n = counters.mesh[{op.comm, static_cast<int>(r)}]++;
                } else if (op.what == What::put) {
                    key = {key.comm, KeyKind::put, me, op.peer, counters.put[{op.comm, me, op.peer}]++};
                } else if (op.what == What::coll) {
                    key.n = counters.coll[{op.comm, static_cast<int>(r)}]++;
                } else {
                    key.kind = KeyKind::p2p;
                    key.src = op.what == What::send ? me : op.peer;
                    key.dst = op.what == What::send ? op.peer : me;
                    key.n = counters.p2p[{op.comm, key.src, key.dst, op.what == What::send}]++;
                }
                run.keys.push_back({key, 1, mesh});
                const std::uint32_t flags = op.what == What::connect_mesh ? ring::kOpConnects | ring::kOpMesh : 0;
                run.ops.push_back({static_cast<std::uint8_t>(op.op), 0, static_cast<std::uint16_t>(op.comm),
                                   is_directed(key.kind) ? op.peer : 0, key.n, 1, flags, 1024});
                auto [it, fresh] = transfer_of_.try_emplace(key, transfers_.size());
                if (fresh) {
                    Transfer t;
                    t.key = key;
                    t.pairs = pairs_of(key, mesh);
                    t.left_ns = spec.work_ns;
                    transfers_.push_back(std::move(t));
                }
                const auto before = last.find({r, op.comm});
                transfers_[it->second].members.push_back({r, l, before == last.end() ? l : before->second});
                run.left.insert(it->second);
            }
            for (const OpSpec& op : spec.ops) last[{r, op.comm}] = l;
            ranks_[r].launches.push_back(std::move(run));
        }
    }
}

std::vector<std::pair<GpuId, GpuId>> World::pairs_of(const Key& key, bool mesh) const {
    const std::size_t comm = key.comm.hi - 0x1000;
    const auto& members = job_.comms[comm];
    const JobWays ways{job_, domain_};
    const NicPairs nics = is_directed(key.kind) ? ways.transfer(comm, members[key.src], members[key.dst])
                          : mesh                ? ways.mesh(comm)
                                                : ways.ring(comm);
    std::vector<std::pair<GpuId, GpuId>> pairs;
    for (const auto& [x, y] : nics)
        pairs.push_back(std::minmax(fabric.nodes[x.first].gpus[x.second], fabric.nodes[y.first].gpus[y.second]));
    return pairs;
}

TimeNs World::jitter(TimeNs least, TimeNs most) {
    return least + static_cast<TimeNs>(random_() % static_cast<std::uint64_t>(most - least + 1));
}

void World::at(TimeNs when, std::function<void()> what) { calendar_.add(std::max(when, now), std::move(what)); }

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
            to_manager(*s);
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
        } else if (const auto* think = std::get_if<Think>(&action)) {
            at(now + jitter(1 * kMs, 100 * kMs), [this, think = *think, life] {
                if (life == core_life_) feed(Thought{think.id, plan::find_order(*think.task, fabric)});
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
                const RunLaunch& x = ranks_[m.rank].launches[m.launch];
                // One whose session is gone is told again when it is back.
                return x.granted || x.passed || x.moved_away || x.done || !managers_[job_.ranks[m.rank].node].up;
            });
        }
        if (needs && !whole) violate(name(r, l) + " is granted without the others of any of its keys");
    }
}

// --- time -----------------------------------------------------------------------------------------

bool World::all_done() const {
    for (const RunRank& r : ranks_)
        for (const RunLaunch& l : r.launches)
            if (!l.done && !r.dead) return false;
    return true;
}

bool World::step() {
    if (calendar_.empty()) return false;
    const auto next = calendar_.take();
    now = next.at_ns;
    next.what();
    return true;
}

void World::run_until(TimeNs until) {
    if (!core) {
        core = std::make_unique<Core>(fabric, options_);
        for (SwitchIndex s = 0; s < fabric.switches.size(); ++s) at(jitter(0, kMs), [this, s] { connect_switch(s); });
        for (NodeIndex n = 0; n < fabric.nodes.size(); ++n) {
            start_manager(n);
            at(jitter(0, kMs), [this, n] { connect_node(n); });
            at(1000 * kMs, [this, n] { beat(n); });
        }
        at(2 * kMs, [this] { advance(); });
    }
    while (calendar_.is_due(until) && violations.empty()) step();
    now = std::max(now, until);
}

bool World::dry_run() {
    advance();
    while (step()) {}
    return all_done();
}

bool World::run(TimeNs limit) {
    run_until(0);
    while (calendar_.is_due(limit) && violations.empty() && !all_done()) step();
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
