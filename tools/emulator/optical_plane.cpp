#include "tools/emulator/optical_plane.h"

#include <algorithm>

namespace opus::emulator {

namespace {

constexpr int kSettingsConflict = -221;
constexpr int kOutOfRange = -222;
constexpr double kDarkDbm = -60.0;

// The last fifth of the dark time is tuning: some light, too little to use.
constexpr TimeNs tuning_ns(TimeNs dark_ns) { return dark_ns / 5; }

std::string text(SwitchPort port) { return std::to_string(port); }

}  // namespace

OpticalPlane::OpticalPlane(const OpticalPlaneOptions& options)
    : options_(options), ports_(options.ingress + options.egress + 1) {}

Outcome OpticalPlane::check_ports(std::span<const SwitchPort> ports) const {
    for (SwitchPort p : ports)
        if (p < 1 || p > size()) return {kOutOfRange, "Data out of range; port " + text(p) + " of " + text(size())};
    return {};
}

Outcome OpticalPlane::check_pair(const CrossConnect& pair) const {
    const auto [a, b] = pair;
    const SwitchPort both[] = {a, b};
    if (Outcome o = check_ports(both); o.code) return o;
    if (a == b) return {kSettingsConflict, "Settings conflict; port " + text(a) + " to itself"};
    if (options_.egress && !(a <= options_.ingress && b > options_.ingress))
        return {kSettingsConflict, "Settings conflict; " + text(a) + " to " + text(b) + " is not ingress to egress"};
    for (SwitchPort p : both)
        if (!ports_[p].enabled) return {kSettingsConflict, "Settings conflict; port " + text(p) + " is disabled"};
    if (options_.conflict == Conflict::refuse && !joined(pair))
        for (SwitchPort p : both)
            if (ports_[p].peer) return {kSettingsConflict, "Settings conflict; port " + text(p) + " is in use"};
    return {};
}

Outcome OpticalPlane::connect(std::span<const CrossConnect> batch, bool only, TimeNs now) {
    Outcome refused;
    std::vector<bool> named(ports_.size());
    std::size_t good = 0;
    for (const auto& pair : batch) {
        refused = check_pair(pair);
        if (!refused.code)
            for (SwitchPort p : {pair.first, pair.second}) {
                if (named[p]) refused = {kSettingsConflict, "Settings conflict; port " + text(p) + " twice"};
                named[p] = true;
            }
        if (refused.code) break;
        ++good;
    }
    if (refused.code && !options_.partial) return refused;

    const auto applied = batch.first(good);
    bool changed = false;
    if (only) {
        std::vector<bool> kept(ports_.size());
        for (const auto& pair : applied)
            if (joined(pair)) kept[pair.first] = kept[pair.second] = true;
        for (SwitchPort p = 1; p <= size(); ++p)
            if (!kept[p]) changed |= cut(p);
    }
    for (const auto& pair : applied) {
        if (joined(pair)) continue;
        make(pair, now);
        changed = true;
    }
    reconfigurations_ += changed;
    return refused;
}

Outcome OpticalPlane::disconnect(std::span<const SwitchPort> ports, TimeNs) {
    if (Outcome o = check_ports(ports); o.code) return o;
    bool changed = false;
    for (SwitchPort p : ports) changed |= cut(p);
    reconfigurations_ += changed;
    return {};
}

Outcome OpticalPlane::disconnect_pairs(std::span<const CrossConnect> batch, TimeNs now) {
    std::vector<SwitchPort> firsts;
    for (const auto& [a, b] : batch) {
        const SwitchPort both[] = {a, b};
        if (Outcome o = check_ports(both); o.code) return o;
        if (ports_[a].peer != b)
            return {kSettingsConflict, "Settings conflict; no circuit " + text(a) + " to " + text(b)};
        firsts.push_back(a);
    }
    return disconnect(firsts, now);
}

void OpticalPlane::disconnect_all(TimeNs) {
    bool changed = false;
    for (SwitchPort p = 1; p <= size(); ++p) changed |= cut(p);
    reconfigurations_ += changed;
}

Outcome OpticalPlane::set_enabled(std::span<const SwitchPort> ports, bool on, TimeNs now) {
    if (Outcome o = check_ports(ports); o.code) return o;
    for (SwitchPort p : ports) {
        if (ports_[p].enabled == on) continue;
        ports_[p].enabled = on;
        aim(p, now);
    }
    return {};
}

Outcome OpticalPlane::set_stuck(std::span<const SwitchPort> ports, TimeNs now) {
    if (Outcome o = check_ports(ports); o.code) return o;
    for (SwitchPort p = 1; p <= size(); ++p) {
        const bool stuck = std::ranges::find(ports, p) != ports.end();
        if (ports_[p].stuck == stuck) continue;
        ports_[p].stuck = stuck;
        aim(p, now);
    }
    return {};
}

void OpticalPlane::relight(TimeNs now) {
    for (SwitchPort p = 1; p <= size(); ++p)
        if (ports_[p].first) aim(p, now);
}

std::vector<CrossConnect> OpticalPlane::circuits() const {
    std::vector<CrossConnect> out;
    for (SwitchPort p = 1; p <= size(); ++p)
        if (ports_[p].first) out.emplace_back(p, ports_[p].peer);
    return out;
}

Light OpticalPlane::light(SwitchPort port, TimeNs now) const {
    const Port& p = ports_[port];
    if (!p.peer || p.lit_ns == kNever) return Light::blocked;
    if (now >= p.lit_ns) return Light::tuned;
    return now >= p.lit_ns - tuning_ns(options_.dark_ns) ? Light::tuning : Light::dark;
}

double OpticalPlane::power_dbm(SwitchPort port, TimeNs now) const {
    switch (light(port, now)) {
        case Light::tuned: return -3.0 - 0.01 * (port % 32);  // ports differ a little, as real ones do
        case Light::tuning: {
            const double part =
                1.0 - double(ports_[port].lit_ns - now) / double(std::max<TimeNs>(1, tuning_ns(options_.dark_ns)));
            return -50.0 + 15.0 * part;
        }
        default: return kDarkDbm;
    }
}

void OpticalPlane::make(const CrossConnect& pair, TimeNs now) {
    cut(pair.first);
    cut(pair.second);
    ports_[pair.first].peer = pair.second;
    ports_[pair.first].first = true;
    ports_[pair.second].peer = pair.first;
    aim(pair.first, now);
}

bool OpticalPlane::cut(SwitchPort port) {
    Port& p = ports_[port];
    if (!p.peer) return false;
    Port& q = ports_[p.peer];
    p.peer = q.peer = 0;
    p.first = q.first = false;
    p.lit_ns = q.lit_ns = kNever;
    return true;
}

void OpticalPlane::aim(SwitchPort port, TimeNs now) {
    Port& p = ports_[port];
    if (!p.peer) return;
    Port& q = ports_[p.peer];
    const bool passes = p.enabled && q.enabled && !p.stuck && !q.stuck;
    p.lit_ns = q.lit_ns = passes ? now + options_.dark_ns : kNever;
}

}  // namespace opus::emulator
