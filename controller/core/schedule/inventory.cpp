#include "controller/core/schedule/inventory.h"

#include <algorithm>
#include <limits>

namespace opus::controller {

std::vector<PortId> Op::turned() const {
    std::vector<PortId> ports;
    for (const auto& entry : connect) ports.insert(ports.end(), {entry.second.a, entry.second.b});
    std::sort(ports.begin(), ports.end());
    return ports;
}

Inventory::Inventory(const Fabric& fabric)
    : fabric_(&fabric), ports_(fabric.ports.size()), switches_(fabric.switches.size()) {
    for (SwitchIndex s = 0; s < switches_.size(); ++s) switches_[s].cable.assign(fabric.switches[s].size() + 1, kNone);
    for (PortId p = 0; p < ports_.size(); ++p) {
        auto& cable = switches_[fabric.ports[p].sw].cable;
        if (fabric.ports[p].sw_port < cable.size()) cable[fabric.ports[p].sw_port] = p;
    }
}

EdgeId Inventory::edge_between(GpuId x, GpuId y) {
    if (x > y) std::swap(x, y);
    const auto [it, fresh] = edge_of_.try_emplace((std::uint64_t(x) << 32) | y, static_cast<EdgeId>(edges_.size()));
    if (fresh) {
        edges_.emplace_back();
        edges_.back().a = x;
        edges_.back().b = y;
    }
    return it->second;
}

bool Inventory::known(PortId p) const {
    const PortState& s = ports_[p];
    return s.op == 0 && !s.unknown && switches_[fabric_->ports[p].sw].map_known;
}

const Circuit* Inventory::lit(EdgeId e) const {
    for (const Circuit& c : edges_[e].up)
        if (usable(c)) return &c;
    return nullptr;
}

std::uint32_t Inventory::fewest_circuits(const std::vector<EdgeId>& edges) const {
    std::size_t fewest = edges.empty() ? 0 : std::numeric_limits<std::uint32_t>::max();
    for (const EdgeId e : edges) fewest = std::min(fewest, edge(e).up.size());
    return static_cast<std::uint32_t>(fewest);
}

void Inventory::light(const Circuit& circuit, std::uint64_t step, TimeNs now) {
    const EdgeId e = edge_between(fabric_->ports[circuit.a].gpu, fabric_->ports[circuit.b].gpu);
    edges_[e].up.push_back(circuit);
    for (const PortId p : {circuit.a, circuit.b}) {
        PortState& s = ports_[p];
        s.peer = p == circuit.a ? circuit.b : circuit.a;
        s.edge = e;
        s.changed = step;
        s.since_ns = now;
    }
}

void Inventory::darken(PortId p, std::uint64_t step, TimeNs now) {
    const PortId peer = ports_[p].peer;
    if (peer == kNone) return;
    const EdgeId e = ports_[p].edge;
    if (e != kNone) std::erase(edges_[e].up, make_circuit(p, peer));
    for (const PortId end : {p, peer}) {
        if (end >= ports_.size()) continue;
        end_stay(end, now);
        PortState& s = ports_[end];
        s.peer = kNone;
        s.edge = kNone;
        s.changed = step;
        s.since_ns = now;
    }
}

void Inventory::end_stay(PortId p, TimeNs now) {
    PortState& s = ports_[p];
    s.stay_ns = std::max(s.stay_ns, now - s.since_ns);
}

void Inventory::see(const Circuit& circuit) {
    for (const PortId p : {circuit.a, circuit.b}) {
        ports_[p].no_light = false;
        ports_[p].seen = p == circuit.a ? circuit.b : circuit.a;
    }
}

bool Inventory::reserved_by(const Gang& gang, PortId p) const {
    for (const Reservation& r : ports_[p].reservations)
        if (r.gang == &gang) return true;
    return false;
}

bool Inventory::reserved_by(const Gang& gang, PortId p, EdgeId edge) const {
    for (const Reservation& r : ports_[p].reservations)
        if (r.gang == &gang && r.edge == edge) return true;
    return false;
}

bool Inventory::reserved_earlier(PortId p, const Gang& gang, EdgeId but_for) const {
    for (const Reservation& r : ports_[p].reservations)
        if (r.gang != &gang && r.gang->order() < gang.order() && r.edge != but_for) return true;
    return false;
}

bool Inventory::reserved_by_other(PortId p, const Gang& gang, EdgeId but_for) const {
    for (const Reservation& r : ports_[p].reservations)
        if (r.gang != &gang && r.edge != but_for) return true;
    return false;
}

Obstacle Inventory::obstacle(PortId p, const Gang& gang) const {
    const PortState& s = ports_[p];
    if (s.fenced()) return Obstacle::fenced;
    if (s.op != 0) return Obstacle::moving;
    if (s.unknown || !switches_[fabric_->ports[p].sw].map_known) return Obstacle::unknown;
    if (s.absent && s.peer != kNone) return Obstacle::absent;
    // The other end is turned too: nobody may be waiting for what it will say.
    if (s.peer < ports_.size() && !known(s.peer)) return Obstacle::unknown;
    if (s.peer < ports_.size() && ports_[s.peer].absent) return Obstacle::absent;
    if (s.edge != kNone && edges_[s.edge].claims > 0) return Obstacle::claimed;
    if (s.edge != kNone && edges_[s.edge].held()) return Obstacle::busy;
    return reserved_earlier(p, gang, kNone) ? Obstacle::reserved : Obstacle::none;
}

Obstacle Inventory::obstacle(const WantedPort& wanted, const Gang& gang) const {
    const PortState& s = ports_[wanted.port];
    if (s.edge != wanted.edge || s.peer == kNone) return obstacle(wanted.port, gang);
    if (s.op != 0) return Obstacle::moving;
    if (!known(wanted.port)) return Obstacle::unknown;
    return reserved_earlier(wanted.port, gang, wanted.edge) ? Obstacle::reserved : Obstacle::none;
}

const char* name_of(Obstacle obstacle) {
    switch (obstacle) {
        case Obstacle::none: return "free";
        case Obstacle::fenced: return "fenced";
        case Obstacle::unknown: return "unknown until its switch is read back";
        case Obstacle::moving: return "moving";
        case Obstacle::absent: return "kept for its node, which has not reported";
        case Obstacle::claimed: return "taken by a gang being programmed";
        case Obstacle::busy: return "busy";
        case Obstacle::reserved: return "reserved by an earlier gang";
    }
    return "";
}

}  // namespace opus::controller
