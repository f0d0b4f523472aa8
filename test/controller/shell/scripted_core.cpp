// A core that answers by rote, so that the daemon around it can be tested alone and to the letter: every
// communicator is enforced, every demand is granted at once (but for key number 999, which waits for
// ever, and 666, which cannot be), and circuits are moved by nobody but opus-ctl. Port 0 counts as held by a launch.
#include <algorithm>
#include <map>

#include "controller/core/core.h"
#include "opus/assert.h"

namespace opus::controller {

struct Core::Impl {
    const Fabric& fabric;
    CoreOptions options;
    Counters counters;
    std::map<NodeIndex, std::uint64_t> sessions;
    std::map<NodeIndex, std::vector<wire::RankInfo>> ranks;
    std::map<PortId, PortId> circuits;
    std::vector<Why> waiting;
    std::uint64_t gangs = 0;

    void reply(NodeIndex node, wire::Message message, Actions& out) {
        out.push_back(SendTo{node, sessions[node], std::move(message)});
    }

    void enforce(NodeIndex node, const std::vector<wire::CommMember>& comms, Actions& out) {
        wire::Verdicts verdicts;
        for (const auto& comm : comms) verdicts.comms.push_back({comm.comm, Verdict::enforced});
        if (!comms.empty()) reply(node, verdicts, out);
    }
    void grant(NodeIndex node, const wire::LaunchDemand& demand, TimeNs now, Actions& out) {
        const LaunchId launch{node, demand.launch.rank, demand.launch.seq};
        const Key& key = demand.keys[0].first;
        OPUS_ASSERT(key.n != 666);
        if (key.n == 999) {
            waiting.push_back(
                {launch, key.comm, demand.op, demand.bytes, now, Why::State::missing_member, {"missing n1.g0 (rank 1 of 2): not ready"}});
            return;
        }
        Trace trace;
        trace.kind = Trace::Kind::gang_complete;
        trace.at_ns = now;
        trace.id = ++gangs;
        trace.launch = launch;
        trace.comm = key.comm;
        trace.op = demand.op;
        out.push_back(trace);
        reply(node, wire::Grant{gangs, {demand.launch}, {}, {}}, out);
        trace.kind = Trace::Kind::gang_granted;
        out.push_back(trace);
        ++counters.gangs, ++counters.grants;
    }
    void hear(NodeIndex node, const wire::Message& message, TimeNs now, Actions& out) {
        if (const auto* m = std::get_if<wire::Snapshot>(&message)) {
            ranks[node] = m->ranks;
            enforce(node, m->comms, out);
        } else if (const auto* r = std::get_if<wire::Register>(&message)) {
            ranks[node].insert(ranks[node].end(), r->ranks.begin(), r->ranks.end());
            enforce(node, r->comms, out);
        } else if (const auto* d = std::get_if<wire::Demand>(&message)) {
            for (const auto& demand : d->launches) grant(node, demand, now, out);
        } else if (const auto* done = std::get_if<wire::Done>(&message)) {
            for (const auto& launch : done->launches) {
                Trace trace;
                trace.kind = Trace::Kind::launch_done;
                trace.launch = {node, launch.launch.rank, launch.launch.seq};
                trace.op = OpKind::all_reduce;
                trace.ready_ns = launch.ready_ns, trace.go_ns = launch.go_ns, trace.done_ns = launch.done_ns;
                out.push_back(trace);
                ++counters.launches_done;
            }
        }
    }
    void circuit(PortId a, PortId b, bool up, TimeNs now, Actions& out) {
        Trace trace;
        trace.kind = up ? Trace::Kind::circuit_up : Trace::Kind::circuit_down;
        trace.at_ns = now;
        trace.circuit = make_circuit(a, b);
        out.push_back(trace);
        if (up)
            circuits[a] = b, circuits[b] = a;
        else
            circuits.erase(a), circuits.erase(b);
    }
    void connect(const CtlConnect& c, TimeNs now, Actions& out) {
        if (!c.force && (c.a == 0 || c.b == 0))
            return out.push_back(CtlDone{c.id, false, fabric.ports[0].name + " is held by a launch; --force breaks it"});
        circuit(c.a, c.b, true, now, out);
        out.push_back(CtlDone{c.id, true, "joined"});
    }
    void disconnect(const CtlDisconnect& c, TimeNs now, Actions& out) {
        if (circuits.count(c.port) == 0)
            return out.push_back(CtlDone{c.id, false, fabric.ports[c.port].name + " is dark"});
        circuit(c.port, circuits[c.port], false, now, out);
        out.push_back(CtlDone{c.id, true, "parted"});
    }
};

Core::Core(const Fabric& fabric, CoreOptions options) : impl_(new Impl{fabric, options, {}, {}, {}, {}, {}}) {}
Core::~Core() = default;

void Core::on(const Event& event, TimeNs now, Actions& out) {
    if (const auto* s = std::get_if<NodeSession>(&event))
        impl_->sessions[s->node] = s->session;
    else if (const auto* l = std::get_if<NodeLost>(&event))
        impl_->sessions.erase(l->node);
    else if (const auto* m = std::get_if<NodeMessage>(&event))
        impl_->hear(m->node, m->message, now, out);
    else if (const auto* c = std::get_if<CtlConnect>(&event))
        impl_->connect(*c, now, out);
    else if (const auto* d = std::get_if<CtlDisconnect>(&event))
        impl_->disconnect(*d, now, out);
}

const Counters& Core::counters() const { return impl_->counters; }
std::vector<PortStatus> Core::ports(PortId from, std::size_t most) const {
    std::vector<PortStatus> list;
    for (PortId p = from; p < impl_->fabric.ports.size() && list.size() < most; ++p) {
        const auto at = impl_->circuits.find(p);
        PortStatus port;
        port.port = p;
        port.use = at == impl_->circuits.end() ? PortUse::dark : PortUse::idle;
        port.peer = at == impl_->circuits.end() ? kNone : at->second;
        list.push_back(port);
    }
    return list;
}
std::vector<RankStatus> Core::ranks() const {
    std::vector<RankStatus> list;
    for (const auto& [node, ranks] : impl_->ranks)
        for (const auto& rank : ranks) list.push_back({node, rank, 0, 0});
    return list;
}
std::vector<GroupStatus> Core::groups() const { return {{{1, 2}, 2, 1, Verdict::unknown, "", {{0, {0, 7, 0}}}, "train"}}; }
std::vector<SwitchStatus> Core::switches() const {
    std::vector<SwitchStatus> list(impl_->fabric.switches.size());
    for (SwitchIndex sw = 0; sw < list.size(); ++sw) list[sw].sw = sw;
    return list;
}
std::vector<NodeStatus> Core::nodes() const {
    std::vector<NodeStatus> list;
    for (NodeIndex n = 0; n < impl_->fabric.nodes.size(); ++n)
        list.push_back({n, impl_->sessions.count(n) != 0, false, 0, 0});
    return list;
}
std::vector<Why> Core::why(TimeNs) const { return impl_->waiting; }
WhyPage Core::why(TimeNs, const WhyQuestion& question) const {
    WhyPage page;
    for (const Why& w : impl_->waiting)
        if (!question.of || question.of(w.launch.node, w.launch.rank))
            if (page.all++ >= question.from && page.waiting.size() < question.most) page.waiting.push_back(w);
    return page;
}
std::vector<PortPlan> Core::plan(const std::string&, std::size_t) const { return {}; }
std::vector<JobStatus> Core::jobs() const {
    return {{"train", 1, true, false, false, "on demand: plans have cost it 5000 us; tried again in 2 s", 1,
             250'000'000, 1.02}};
}
std::string Core::check() const { return ""; }

}  // namespace opus::controller
