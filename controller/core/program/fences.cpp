// Who is at fault when a change set fails: a port, or its switch? And what becomes of a port that is.
//
// Only a change set of one circuit blames its two ports: a larger one is tried again circuit by circuit.
// While change sets fail and no port is in all of them, the switch is at fault: it is left alone for a pause that
// grows, and no port is fenced. It was at fault, too, where all ports that are in all of them are in what it carries
// out next. What its ports have failed meanwhile is forgotten then. A port is fenced after so many failures, if its
// switch has carried out something that it was told no earlier than the first of them, or said itself that the circuit
// has no light.
// A port that has failed is tried again after a pause that grows: by whoever needs it, else with a port that nobody
// wants. One that works is trusted again. A fence by hand stays until it is taken away by hand.
#include <algorithm>
#include <utility>

#include "controller/core/gangs/gangs.h"
#include "controller/core/holders.h"
#include "controller/core/leases/runs.h"
#include "controller/core/program/change_sets.h"
#include "controller/core/program/fences.h"
#include "controller/core/provision/jobs.h"
#include "controller/core/recovery/holds.h"
#include "controller/core/schedule/schedule.h"

namespace opus::controller {
namespace {

constexpr TimeNs kFirstRestNs = 200'000'000, kLongestRestNs = 5'000'000'000;
constexpr std::uint32_t kMostPauses = 5;
constexpr TimeNs kTrialShare = 8;  // a trial that goes wrong takes four dark times
constexpr TimeNs kDrainAgainNs = 1'000'000'000;

std::string ms_text(TimeNs ns) { return std::to_string(ns / 1'000'000) + " ms"; }

std::vector<PortId> turned_ports(const Op& op) {
    std::vector<PortId> ports = op.turned();
    if (ports.empty()) ports = op.dark;
    std::sort(ports.begin(), ports.end());
    return ports;
}

}  // namespace

// --- the switch -----------------------------------------------------------------------------------

void Fences::not_carried_out(const Op& op) {
    const std::vector<PortId> ports = turned_ports(op);
    // That a port fails which is known to do so says nothing new.
    for (const PortId p : ports)
        if (op.tries != kNone || inventory_.port(p).fenced_by != FencedBy::nobody) return;
    SwitchState& sw = inventory_.sw(op.sw);
    if (sw.failed++ == 0) {
        sw.failing_ns = op.begun_ns;
        sw.common = ports;
    } else {
        std::erase_if(sw.common, [&](PortId p) { return !std::binary_search(ports.begin(), ports.end(), p); });
    }
    if (!sw.common.empty() || now_ < sw.rest_until_ns) return;
    const TimeNs rest = std::min(kFirstRestNs << std::min(sw.rests++, kMostPauses), kLongestRestNs);
    sw.rest_until_ns = now_ + rest;
    if (!std::exchange(sw.at_fault, true))
        log(LogLevel::error, fabric_.switches[op.sw].name + " fails whatever it is told (" + std::to_string(sw.failed) +
                                 " change sets in " + ms_text(now_ - sw.failing_ns) +
                                 "): no port is blamed, and it is left alone for " + ms_text(rest) +
                                 ", then longer; see to the switch");
}

void Fences::carried_out(const Op& op) {
    SwitchState& sw = inventory_.sw(op.sw);
    sw.carried_out_ns = std::max(sw.carried_out_ns, op.begun_ns);
    if (sw.failed == 0 || op.begun_ns < sw.failing_ns) return;  // what it was told before says nothing
    const std::uint32_t failed = std::exchange(sw.failed, 0);
    const TimeNs since = sw.failing_ns;
    // A port that all of them turned, and this one does not, may be at fault still.
    const std::vector<PortId> ports = turned_ports(op);
    std::erase_if(sw.common, [&](PortId p) { return std::binary_search(ports.begin(), ports.end(), p); });
    const bool by_switch = std::exchange(sw.common, {}).empty();
    sw.rests = 0;
    sw.rest_until_ns = 0;
    if (std::exchange(sw.at_fault, false))
        log(LogLevel::warn, fabric_.switches[op.sw].name + " carries out change sets again, after " +
                                ms_text(now_ - since) + " and " + std::to_string(failed) + " that failed");
    if (!by_switch) return;
    for (const PortId p : sw.cable) {
        if (p == kNone) continue;
        PortState& port = inventory_.port(p);
        if (port.fenced_by == FencedBy::nobody && port.failing_ns >= since) port.failures = port.trials = 0;
        schedule_.wake(fabric_.ports[p].gpu);
    }
    for (auto& [id, gang] : gangs_.all()) gang->retry_at_ns = std::min(gang->retry_at_ns, now_);
    schedule_.queue_all();
}

// When a switch that this plan needs may be told something again; 0: now.
TimeNs Fences::rests_until(const Plan& plan) const {
    TimeNs until = 0;
    for (const auto& [pair, circuit] : plan.fresh)
        until = std::max(until, inventory_.sw(fabric_.ports[circuit.a].sw).rest_until_ns);
    return until;
}

// --- ports that fail ------------------------------------------------------------------------------

// A failed change set: which of its circuits are not there?
void Fences::judge_suspects(SwitchIndex s) {
    const std::vector<Suspect> suspects = std::move(inventory_.sw(s).suspects);
    inventory_.sw(s).suspects.clear();
    for (const Suspect& suspect : suspects) {
        const auto [a, b] = suspect.circuit;
        if (inventory_.port(a).op != 0 || inventory_.port(b).op != 0) continue;
        if (inventory_.port(a).unknown || inventory_.port(b).unknown) {  // this answer says nothing about them
            inventory_.sw(s).suspects.push_back(suspect);
            continue;
        }
        const bool joined = inventory_.port(a).peer == b;
        // The map says how the mirrors are set, not that light passes (yet): such a circuit is made again before
        // it is used.
        if (joined) {
            inventory_.port(a).no_light = inventory_.port(b).no_light = true;
            inventory_.port(a).seen = inventory_.port(b).seen = kNone;
        }
        if (joined && !suspect.no_light) continue;
        if (!suspect.counts) continue;
        for (const PortId p : {a, b})
            if (suspect.tried == kNone || suspect.tried == p) blame(p, suspect);
    }
}

void Fences::blame(PortId p, const Suspect& suspect) {
    PortState& port = inventory_.port(p);
    if (port.failures++ == 0) port.failing_ns = suspect.begun_ns;
    if (suspect.tried == p || port.on_trial) ++port.trials;
    try_later(p);
    if (port.fenced_by != FencedBy::nobody) {
        if (!std::exchange(port.on_trial, false)) return;
        log(LogLevel::info, fabric_.ports[p].name + " still fails (" + port.note + "): it is tried again in " +
                                ms_text(port.trial_ns - now_));
        ++inventory_.fence_generation;
        return schedule_.queue_all();
    }
    const SwitchState& sw = inventory_.sw(fabric_.ports[p].sw);
    if (port.failures < options_.port_failures_to_fence || sw.at_fault) return;
    if (!suspect.no_light && sw.carried_out_ns < port.failing_ns) return;  // or is it the switch?
    fence(p, FencedBy::controller, std::to_string(port.failures) + " change sets failed on it, the last: " + port.note);
}

// A circuit of it was made, and has light.
void Fences::trust(PortId p) {
    PortState& port = inventory_.port(p);
    port.failures = port.trials = 0;
    port.note.clear();
    if (port.fenced_by == FencedBy::controller)
        unfence(p, " works again, after " + ms_text(now_ - port.fenced_ns) + ": taken back");
}

void Fences::fence(PortId p, FencedBy by, const std::string& why) {
    PortState& port = inventory_.port(p);
    port.fenced_by = by;
    port.fenced_ns = now_;
    port.fenced_why = why;
    port.on_trial = false;
    ++inventory_.fence_generation;
    const bool hand = by == FencedBy::hand;
    log(hand ? LogLevel::warn : LogLevel::error,
        "fenced " + fabric_.ports[p].name + " (" + fabric_.switch_of(p).name + " port " +
            std::to_string(fabric_.ports[p].sw_port) + ")" + (hand ? " by hand" : "") + (why.empty() ? "" : ": ") +
            why + (hand ? "" : "; check cable and switch; it is tried again in " + ms_text(port.trial_ns - now_)));
    trace({.kind = Trace::Kind::port_fenced, .circuit = {p, kNone}});
    jobs_.port_changed(p);
    schedule_.queue_all();
}

void Fences::unfence(PortId p, const std::string& why) {
    PortState& port = inventory_.port(p);
    port.fenced_by = FencedBy::nobody;
    port.on_trial = false;
    port.failures = port.trials = 0;
    port.dark_by_fault = true;
    by_hand_.erase(p);
    ++inventory_.fence_generation;
    log(LogLevel::warn, fabric_.ports[p].name + " (" + fabric_.switch_of(p).name + " port " +
                            std::to_string(fabric_.ports[p].sw_port) + ")" + why);
    trace({.kind = Trace::Kind::port_unfenced, .circuit = {p, kNone}});
    jobs_.port_changed(p);
    // What needs not ask would never have it.
    runs_.revoke_endless_at(fabric_.ports[p].gpu, fabric_.ports[p].name + " is back");
    holds_.relight();
    schedule_.queue_all();
}

// --- trials ---------------------------------------------------------------------------------------

void Fences::try_later(PortId p, TimeNs not_before) {
    PortState& port = inventory_.port(p);
    const TimeNs least = std::max(options_.port_trial_ns, kTrialShare * fabric_.switch_of(p).dark_ns);
    port.trial_ns = std::max(now_ + (least << std::min(port.trials, kMostPauses)), not_before);
    arm(port.trial_ns, TimerKind::port_trial, p);
}

// Those who cannot do without it may try it now; if nobody does, it is tried at the end of the step.
void Fences::trial_due(PortId p) {
    PortState& port = inventory_.port(p);
    if (port.failures == 0 || port.fenced_by == FencedBy::hand || now_ < port.trial_ns) return;
    if (port.fenced_by == FencedBy::controller && !std::exchange(port.on_trial, true)) {
        ++inventory_.fence_generation;
        holds_.relight();
        schedule_.queue_all();
    }
    to_try_.insert(p);
}

bool Fences::nobody_runs(GpuId gpu) const {
    for (const auto& [id, rank] : nodes_[fabric_.gpus[gpu].node].ranks)
        for (const auto& [comm, membership] : rank.comms)
            for (const std::uint32_t slot : membership.slots)
                if (membership.comm->members[slot].gpu == gpu) return false;
    return true;
}

// At rest, and nobody wants it: dark, or its light is between GPUs that nobody uses.
bool Fences::free_to_try(PortId p) const {
    const auto rests = [this](PortId end) {
        const PortState& s = inventory_.port(end);
        return s.fenced_by != FencedBy::hand && inventory_.known(end) && s.leaves == 0 && s.reservations.empty();
    };
    const PortState& s = inventory_.port(p);
    if (!rests(p) || s.peer == kForeign) return false;
    if (s.peer == kNone) return true;
    if (!rests(s.peer) || s.absent || inventory_.port(s.peer).absent || inventory_.pair(s.pair).busy()) return false;
    return s.no_light || (nobody_runs(fabric_.ports[p].gpu) && nobody_runs(fabric_.ports[s.peer].gpu));
}

void Fences::try_ports() {
    for (const PortId p : std::exchange(to_try_, {})) {
        const PortState& port = inventory_.port(p);
        const SwitchIndex s = fabric_.ports[p].sw;
        if (port.failures == 0) continue;
        try_later(p, inventory_.sw(s).rest_until_ns);  // unless somebody knows before
        if (!free_to_try(p) || now_ < inventory_.sw(s).rest_until_ns) continue;
        std::vector<PortId> others;
        for (const PortId q : inventory_.sw(s).cable)
            if (q != kNone && fabric_.ports[q].gpu != fabric_.ports[p].gpu && fabric_.can_join(p, q) && free_to_try(q))
                others.push_back(q);
        if (others.empty()) continue;
        const PortId other = others[port.trials % others.size()];
        Op& op = change_sets_.open(s, true);
        op.tries = p;
        change_sets_.connect(op, inventory_.pair_between(fabric_.ports[p].gpu, fabric_.ports[other].gpu),
                             make_circuit(p, other));
    }
}

// --- fences by hand -------------------------------------------------------------------------------

bool Fences::is_drained(PairId e) const {
    const auto& up = inventory_.pair(e).up;
    return std::any_of(up.begin(), up.end(), [this](const Circuit& c) {
        return inventory_.port(c.a).fenced_by == FencedBy::hand || inventory_.port(c.b).fenced_by == FencedBy::hand;
    });
}

// Their circuits go as soon as nothing is on them, before anybody else can take them.
void Fences::drain_ports() {
    for (const PortId p : by_hand_) {
        PortState& port = inventory_.port(p);
        if (port.peer >= fabric_.ports.size() || port.leaves != 0 || !inventory_.known(p) || !inventory_.known(port.peer))
            continue;
        if (port.absent || inventory_.port(port.peer).absent || inventory_.pair(port.pair).busy()) continue;
        if (now_ < port.trial_ns) continue;
        port.trial_ns = now_ + kDrainAgainNs;  // should it fail
        arm(port.trial_ns, TimerKind::port_trial, p);
        Op& op = change_sets_.open(fabric_.ports[p].sw, true);
        op.disconnect.push_back(p);
        change_sets_.turn_dark(op, p);
    }
}

void Fences::handle(const CtlFence& e) {
    if (e.port >= fabric_.ports.size()) return act(CtlDone{e.id, false, "no such port"});
    PortState& port = inventory_.port(e.port);
    port.trial_ns = 0;
    by_hand_.insert(e.port);
    fence(e.port, FencedBy::hand, e.why);
    std::string text = "fenced";
    if (const PairId pair = port.pair; pair != kNone) {
        runs_.revoke_on(pair, fabric_.ports[e.port].name + " is fenced by hand");
        HolderTable table(world_);
        if (inventory_.pair(pair).busy()) text += "; its circuit stays until nothing is on it: " + table.text(pair);
    }
    act(CtlDone{e.id, true, text});
}

void Fences::handle(const CtlUnfence& e) {
    if (e.port >= fabric_.ports.size()) return act(CtlDone{e.id, false, "no such port"});
    if (inventory_.port(e.port).fenced_by == FencedBy::nobody) return act(CtlDone{e.id, true, "not fenced"});
    unfence(e.port, " is not fenced any more, by hand");
    act(CtlDone{e.id, true, "not fenced any more"});
}

}  // namespace opus::controller
