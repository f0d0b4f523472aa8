// Switches: what they say is read back at every session and after every error, and believed.
#include <algorithm>
#include <utility>

#include "controller/core/program/change_sets.h"
#include "controller/core/program/fences.h"
#include "controller/core/program/switches.h"
#include "controller/core/recovery/adoption.h"
#include "controller/core/recovery/suspension.h"
#include "controller/core/schedule/schedule.h"
#include "opus/assert.h"

namespace opus::controller {
namespace {

constexpr std::size_t kMaxDifferences = 16;
constexpr TimeNs kCommandMarginNs = 50'000'000;
constexpr TimeNs kAgainSlackNs = 2'000'000'000;

const char* name_of(DriverError error) {
    switch (error) {
        case DriverError::none: return "no error";
        case DriverError::unreachable: return "unreachable";
        case DriverError::refused: return "refused";
        case DriverError::timeout: return "timeout";
        case DriverError::cancelled: return "cancelled";
        case DriverError::garbage: return "answered garbage";
        case DriverError::no_light: return "no light";
    }
    return "";
}

std::string text_of(DriverError error, const std::string& text) {
    return text.empty() ? name_of(error) : std::string(name_of(error)) + ": " + text;
}

}  // namespace

void Switches::handle(const SwitchEvent& e) {
    if (e.sw >= fabric_.switches.size()) return;
    std::visit([&](const auto& event) { answer(e.sw, event); }, e.event);
}

TimeNs Switches::switch_timeout(SwitchIndex sw) const {
    return options_.switch_timeout_ns > 0 ? options_.switch_timeout_ns : 4 * fabric_.switches[sw].dark_ns + 1'000'000'000;
}

// How long a command whose session is gone may still be at work in the switch.
TimeNs Switches::command_time(SwitchIndex sw) const { return 4 * fabric_.switches[sw].dark_ns + kCommandMarginNs; }

// Before this controller there may have been another: what it had ordered last shows in the map before there is
// light, and perhaps not yet.
void Switches::doubt_all() {
    for (PortId p = 0; p < fabric_.ports.size(); ++p) {
        const SwitchIndex s = fabric_.ports[p].sw;
        inventory_.port(p).doubt_until_ns = now_ + (options_.first ? command_time(s) : switch_timeout(s));
    }
}

void Switches::answer(SwitchIndex s, const SessionUp& e) {
    if (inventory_.sw(s).session) answer(s, SessionDown{"a new session began"});
    SwitchState& sw = inventory_.sw(s);
    sw.session = true;
    sw.read_failures = 0;
    sw.identity = e.identity.vendor + " " + e.identity.model + " " + e.identity.serial + " " + e.identity.firmware;
    log(LogLevel::info, fabric_.switches[s].name + ": session with " + sw.identity);
    if (e.identity.ingress + e.identity.egress != 0 && e.identity.ingress + e.identity.egress != fabric_.switches[s].size()) {
        sw.differed_ns = now_;
        sw.differences = {"it has " + std::to_string(e.identity.ingress + e.identity.egress) +
                          " ports, the fabric file says " + std::to_string(fabric_.switches[s].size())};
        log(LogLevel::error, fabric_.switches[s].name + ": " + sw.differences.front());
    }
    read_map(s);
}

// Light goes on; what the switch has made of commands under way is unknown. Other rails go on.
void Switches::answer(SwitchIndex s, const SessionDown& e) {
    SwitchState& sw = inventory_.sw(s);
    if (!sw.session) return;
    sw.session = sw.map_known = false;
    sw.reading = 0;
    sw.last_error = e.reason;
    log(LogLevel::warn, fabric_.switches[s].name + ": session lost: " + e.reason);
    std::vector<OpId> lost;
    for (const auto& [id, op] : inventory_.ops())
        if (op.sw == s) lost.push_back(id);
    for (const OpId id : lost)
        change_sets_.fail(must_find(inventory_.ops(), id), DriverError::unreachable, "session lost: " + e.reason);
}

void Switches::read_map(SwitchIndex s) {
    SwitchState& sw = inventory_.sw(s);
    if (!sw.session || sw.reading != 0) return;
    sw.reading = change_sets_.next_id();
    sw.read_step = step_;
    sw.read_ns = now_;
    act(ReadMap{s, sw.reading, switch_timeout(s)});
}

// Another client of a switch may move circuits, and nothing tells of it: the maps of switches at rest are read
// again now and then. Looked at on any event, so that it happens beside heartbeats; the timer is for when
// there are none.
void Switches::read_maps_again() {
    world_.timers.disarm(read_again_ns_ + kAgainSlackNs, TimerKind::switches_again, 0);
    std::set<SwitchIndex> at_work;
    for (const auto& [id, op] : inventory_.ops()) at_work.insert(op.sw);
    TimeNs next = now_ + options_.map_period_ns;
    for (SwitchIndex s = 0; s < fabric_.switches.size(); ++s) {
        const SwitchState& sw = inventory_.sw(s);
        if (!sw.session || !sw.map_known || sw.reading != 0) continue;
        const TimeNs due = sw.read_ns + options_.map_period_ns;
        if (now_ < due)
            next = std::min(next, due);
        else if (at_work.count(s) != 0)
            next = std::min(next, now_ + options_.map_period_ns / 8 + 1);
        else
            read_map(s);
    }
    read_again_ns_ = next;
    arm(read_again_ns_ + kAgainSlackNs, TimerKind::switches_again, 0);
}

void Switches::answer(SwitchIndex s, const MapRead& e) {
    SwitchState& sw = inventory_.sw(s);
    if (e.op != sw.reading || sw.reading == 0) return;
    sw.reading = 0;
    if (e.error != DriverError::none) {
        ++counters_.switch_errors;
        sw.last_error = text_of(e.error, e.text);
        log(LogLevel::error, fabric_.switches[s].name + ": cannot read its map: " + sw.last_error);
        const TimeNs pause = TimeNs(250'000'000) << std::min(sw.read_failures++, 4u);
        return arm(now_ + pause, TimerKind::switch_read, s);
    }
    sw.read_failures = 0;
    adopt_map(s, e);
}

// I5: what another hand has done is shown, by the names of the ports.
void Switches::notice(PortId p, PortId believed, PortId found, std::vector<std::string>& differences) {
    const auto name_of = [this](PortId peer) {
        return peer == kNone ? "nothing" : peer == kForeign ? "a port of no NIC" : fabric_.ports[peer].name;
    };
    ++counters_.differences;
    differences.push_back(fabric_.ports[p].name + " leads to " + name_of(found) + ", was thought to lead to " +
                          name_of(believed));
    inventory_.port(p).note = "turned by another hand: it led to " + name_of(believed);
    if (believed >= fabric_.ports.size()) return;
    trace({.kind = Trace::Kind::circuit_lost, .circuit = make_circuit(p, believed)});
}

// A map that was asked for before the last change of a port says nothing about it.
std::set<PortId> Switches::changed_since_asked(const SwitchState& sw) const {
    std::set<PortId> changed;
    for (const PortId p : sw.cable) {
        if (p == kNone) continue;
        const PortState& port = inventory_.port(p);
        if (port.op != 0 || port.leaves != 0 || port.changed >= sw.read_step || sw.read_ns < port.doubt_until_ns)
            changed.insert(p);
    }
    return changed;
}

// The map says how the mirrors are set. Where nobody here has seen the light (an older controller made it, or another
// hand, or the switch got stuck) the circuit is made again before it is used.
void Switches::adopt_circuit(const Circuit& circuit) {
    PortState &a = inventory_.port(circuit.a), &b = inventory_.port(circuit.b);
    if (a.peer != kNone || b.peer != kNone) return;
    const bool seen = a.seen == circuit.b && b.seen == circuit.a;
    inventory_.light(circuit, step_, now_);
    a.no_light = b.no_light = !seen;
    trace({.kind = Trace::Kind::circuit_up, .circuit = circuit});
}

void Switches::show_differences(SwitchIndex s, std::vector<std::string> differences) {
    if (differences.empty()) return;
    for (const std::string& d : differences) log(LogLevel::warn, fabric_.switches[s].name + ": " + d);
    differences.resize(std::min(differences.size(), kMaxDifferences));
    inventory_.sw(s).differences = std::move(differences);
    inventory_.sw(s).differed_ns = now_;
}

void Switches::adopt_map(SwitchIndex s, const MapRead& e) {
    SwitchState& sw = inventory_.sw(s);
    std::map<SwitchPort, SwitchPort> says;
    for (const auto& [x, y] : e.circuits) {
        says[x] = y;
        says[y] = x;
    }
    // Judged before anything is adopted: to darken one end of a circuit changes the other.
    const std::set<PortId> changed = changed_since_asked(sw);
    const auto stale = [&](PortId p) { return changed.count(p) != 0; };
    TimeNs again = now_;
    std::vector<std::string> differences;
    std::vector<PairId> lost;
    std::vector<std::pair<PortId, PortId>> found;
    bool doubt = false;
    for (const PortId p : sw.cable) {
        if (p == kNone) continue;
        PortState& port = inventory_.port(p);
        const auto it = says.find(fabric_.ports[p].sw_port);
        PortId peer = kNone;
        if (it != says.end())
            peer = it->second < sw.cable.size() && sw.cable[it->second] != kNone ? sw.cable[it->second] : kForeign;
        if (stale(p) || (peer < kForeign && stale(peer))) {
            doubt |= port.unknown;
            if (port.unknown) again = std::max(again, port.doubt_until_ns);
            continue;
        }
        const bool believed = !port.unknown;
        port.unknown = false;
        if (port.peer != peer) {
            if (believed) notice(p, port.peer, peer, differences);
            if (port.pair != kNone) lost.push_back(port.pair);
            inventory_.darken(p, step_, now_);
            if (peer == kForeign) port.peer = kForeign;
            found.emplace_back(p, peer);
        }
        world_.owe_steering(fabric_.gpus[fabric_.ports[p].gpu].node);
    }
    for (const auto& [p, peer] : found)
        if (peer < kForeign) adopt_circuit(make_circuit(p, peer));
    show_differences(s, std::move(differences));
    if (!std::exchange(sw.map_known, true))
        log(LogLevel::info, fabric_.switches[s].name + ": map read, " + std::to_string(e.circuits.size()) + " circuits");
    fences_.judge_suspects(s);
    std::sort(lost.begin(), lost.end());
    lost.erase(std::unique(lost.begin(), lost.end()), lost.end());
    for (const PairId pair : lost)
        if (inventory_.lit(pair) == nullptr)
            suspension_.lost_light(pair, fabric_.switches[s].name + " no longer joins " +
                                             name(inventory_.pair(pair).a) + " and " + name(inventory_.pair(pair).b));
    adoption_.look_again();
    adoption_.look_due();
    for (const PortId p : sw.cable)
        if (p != kNone) schedule_.wake(fabric_.ports[p].gpu);
    if (doubt) arm(again, TimerKind::switch_read, s);
}

void Switches::answer(SwitchIndex s, const Applied& e) {
    const auto it = inventory_.ops().find(e.op);
    if (it == inventory_.ops().end() || it->second.sw != s) return;
    trace({.kind = Trace::Kind::program_end, .id = e.op, .ready_ns = e.sent_ns, .go_ns = e.acked_ns, .done_ns = e.settled_ns});
    if (e.error == DriverError::none) return change_sets_.settle(it->second, e);
    const std::string text = text_of(e.error, e.text);
    inventory_.sw(s).last_error = text;
    change_sets_.fail(it->second, e.error, text);
}

}  // namespace opus::controller
