// Invariants of the core's own state, for tests: true after every event, or the first that is not.
#include <algorithm>

#include "controller/core/impl.h"

namespace opus::controller {

std::string Core::Impl::check() {
    for (std::string fault : {check_ports(), check_keys(), check_gangs(), check_ahead(), check_runs()})
        if (!fault.empty()) return fault;
    return {};
}

std::string Core::Impl::check_ports() {
    for (PortId p = 0; p < fabric.ports.size(); ++p) {
        const PortState& s = inventory.port(p);
        const std::string& name = fabric.ports[p].name;
        if (s.peer < fabric.ports.size()) {
            if (inventory.port(s.peer).peer != p)
                return name + " leads to " + fabric.ports[s.peer].name + ", which does not lead back";
            const auto& up = inventory.edge(s.edge).up;
            if (std::count(up.begin(), up.end(), make_circuit(p, s.peer)) != 1)
                return name + ": its circuit is not listed once";
        } else if (s.edge != kNone) {
            return name + " is dark and has a pair";
        }
        if (s.op != 0) {
            const auto it = inventory.ops().find(s.op);
            if (it == inventory.ops().end()) return name + " moves under a change set that is over";
            if (s.peer != kNone) return name + " moves and is lit";
        }
        if (s.leaves != 0 && inventory.ops().count(s.leaves) == 0)
            return name + " leaves under a change set that is over";
        for (const Reservation& r : s.reservations) {
            if (r.gang->state != Gang::State::waiting) return name + " is reserved by a gang that does not wait";
            if (std::none_of(r.gang->wanted.begin(), r.gang->wanted.end(), [&](const WantedPort& w) { return w.port == p; }))
                return name + " is reserved by a gang that does not want it";
        }
    }
    for (EdgeId e = 0; e < inventory.edge_count(); ++e) {
        const Edge& edge = inventory.edge(e);
        const std::string pair = name(edge.a) + " - " + name(edge.b);
        std::uint32_t claims = 0;
        for (const auto& [id, gang] : gangs)
            if (gang->state == Gang::State::programming)
                claims += std::count(gang->edges.begin(), gang->edges.end(), e);
        if (claims != edge.claims) return pair + ": claims do not add up";
        for (const Circuit& c : edge.up)
            if (inventory.port(c.a).peer != c.b) return pair + ": lists a circuit that is not up";
        if (!edge.holders.empty() && edge.up.empty()) return pair + " is held and dark";
    }
    return {};
}

std::string Core::Impl::check_keys() {
    for (const auto& [number, comm] : comms.in_order())
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
            const auto [begin, end] = edges_of(key);
            if (key.in_flight > 0 && begin != end && !key.held) return "a key in flight holds nothing";
            for (const EdgeId* e = begin; e != end; ++e) {
                const auto& holders = inventory.edge(*e).holders;
                if (std::count(holders.begin(), holders.end(), &key) != (key.held ? 1 : 0))
                    return "a pair's holders are wrong";
            }
        }
    return {};
}

std::string Core::Impl::check_gangs() {
    for (const auto& [id, gang] : gangs) {
        const std::string who = "gang " + std::to_string(gang->ticket);
        if (gang->launches.empty() && gang->state == Gang::State::waiting) return who + " is empty";
        for (std::size_t i = 0; i < gang->launches.size(); ++i) {
            const Launch& l = *gang->launches[i];
            if (l.gang != gang.get() || l.gang_pos != i) return who + ": a launch does not know it";
            if (l.waits() != (gang->state == Gang::State::waiting))
                return who + ": " + name(l.id) + " is at another stage";
        }
        if (gang->state == Gang::State::programming && !gang->wanted.empty()) return who + " is placed and reserves";
        if (gang->state == Gang::State::waiting && !gang->blocked && !gang->queued && now > gang->retry_at_ns)
            return who + " waits for nothing";
    }
    for (const NodeState& node : nodes)
        for (const auto& [rid, rank] : node.ranks)
            for (const auto& [seq, l] : rank.launches) {
                const bool full =
                    std::any_of(l->keys.begin(), l->keys.end(), [](const KeyRef& r) { return r.key->full(); });
                if (l->stage == Stage::ready && full && l->gang == nullptr)
                    return name(l->id) + " is complete and in no gang";
                if (l->stage == Stage::suspended && full && asks(*l) && l->gang == nullptr)
                    return name(l->id) + " is suspended and does not queue";
                if (l->stage == Stage::in_flight && l->gang != nullptr) return name(l->id) + " is in flight and queues";
            }
    return {};
}

std::string Core::Impl::check_runs() {
    std::size_t on_edges = 0, on_comms = 0;
    for (const auto& [grant, run] : runs) {
        const std::string who = "run " + std::to_string(grant);
        if (run.nodes.empty()) return who + " is held by nobody";
        on_edges += run.edges.size();
        std::set<CommId> concerned;
        for (const RunSequence& s : run.sequences) {
            concerned.insert(s.sequence.comm);
            const Comm* comm = comms.find(s.sequence.comm);
            if (comm == nullptr) return who + " is of a communicator that is gone";
            if (std::count(comm->runs.begin(), comm->runs.end(), grant) != 1)
                return who + " is not known to its communicator";
        }
        on_comms += concerned.size();
        for (const EdgeId e : run.edges) {
            if (std::count(inventory.edge(e).runs.begin(), inventory.edge(e).runs.end(), grant) != 1)
                return who + " is not known to its circuits";
            if (!run.revoked && inventory.edge(e).up.empty()) return who + " may be used in the dark";
        }
    }
    for (EdgeId e = 0; e < inventory.edge_count(); ++e) on_edges -= inventory.edge(e).runs.size();
    for (const auto& [number, comm] : comms.in_order()) on_comms -= comm->runs.size();
    if (on_edges != 0) return "a circuit is held by a run that is over";
    if (on_comms != 0) return "a communicator lists a run that is over";
    for (const auto& [number, comm] : comms.in_order()) {
        std::uint32_t cuts = 0;
        for (const auto& entry : comm->keys) cuts += entry.second->cut;
        if (cuts != comm->cuts) return "a communicator miscounts the keys of its cuts";
    }
    return {};
}

}  // namespace opus::controller
