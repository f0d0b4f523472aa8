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

PairId Inventory::pair_between(GpuId x, GpuId y) {
    if (x > y) std::swap(x, y);
    const auto [it, fresh] = pair_of_.try_emplace((std::uint64_t(x) << 32) | y, static_cast<PairId>(pairs_.size()));
    if (fresh) {
        pairs_.emplace_back();
        pairs_.back().a = x;
        pairs_.back().b = y;
    }
    return it->second;
}

bool Inventory::known(PortId p) const {
    const PortState& s = ports_[p];
    return s.op == 0 && !s.unknown && switches_[fabric_->ports[p].sw].map_known;
}

const Circuit* Inventory::lit(PairId e) const {
    for (const Circuit& c : pairs_[e].up)
        if (usable(c)) return &c;
    return nullptr;
}

std::uint32_t Inventory::fewest_circuits(const std::vector<PairId>& pairs) const {
    std::size_t fewest = pairs.empty() ? 0 : std::numeric_limits<std::uint32_t>::max();
    for (const PairId e : pairs) fewest = std::min(fewest, pair(e).up.size());
    return static_cast<std::uint32_t>(fewest);
}

void Inventory::light(const Circuit& circuit, std::uint64_t step, TimeNs now) {
    const PairId e = pair_between(fabric_->ports[circuit.a].gpu, fabric_->ports[circuit.b].gpu);
    pairs_[e].up.push_back(circuit);
    for (const PortId p : {circuit.a, circuit.b}) {
        PortState& s = ports_[p];
        s.peer = p == circuit.a ? circuit.b : circuit.a;
        s.pair = e;
        s.changed = step;
        s.since_ns = now;
    }
}

void Inventory::darken(PortId p, std::uint64_t step, TimeNs now) {
    const PortId peer = ports_[p].peer;
    if (peer == kNone) return;
    const PairId e = ports_[p].pair;
    if (e != kNone) std::erase(pairs_[e].up, make_circuit(p, peer));
    for (const PortId end : {p, peer}) {
        if (end >= ports_.size()) continue;
        end_stay(end, now);
        PortState& s = ports_[end];
        s.peer = kNone;
        s.pair = kNone;
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

bool Inventory::reserved_by(const Gang& gang, PortId p, PairId pair) const {
    for (const Reservation& r : ports_[p].reservations)
        if (r.gang == &gang && r.pair == pair) return true;
    return false;
}

bool Inventory::reserved_earlier(PortId p, const Gang& gang, PairId but_for) const {
    for (const Reservation& r : ports_[p].reservations)
        if (r.gang != &gang && r.gang->order() < gang.order() && r.pair != but_for) return true;
    return false;
}

bool Inventory::reserved_by_other(PortId p, const Gang& gang, PairId but_for) const {
    for (const Reservation& r : ports_[p].reservations)
        if (r.gang != &gang && r.pair != but_for) return true;
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
    if (s.pair != kNone && pairs_[s.pair].claims > 0) return Obstacle::claimed;
    if (s.pair != kNone && pairs_[s.pair].held()) return Obstacle::busy;
    return reserved_earlier(p, gang, kNone) ? Obstacle::reserved : Obstacle::none;
}

Obstacle Inventory::obstacle(const WantedPort& wanted, const Gang& gang) const {
    const PortState& s = ports_[wanted.port];
    if (s.pair != wanted.pair || s.peer == kNone) return obstacle(wanted.port, gang);
    if (s.op != 0) return Obstacle::moving;
    if (!known(wanted.port)) return Obstacle::unknown;
    return reserved_earlier(wanted.port, gang, wanted.pair) ? Obstacle::reserved : Obstacle::none;
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
