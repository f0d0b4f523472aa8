// Why does it wait? The missing member, the port, who holds it, and since when.
#include <algorithm>

#include "controller/core/explain.h"
#include "controller/core/gangs/gangs.h"
#include "controller/core/holders.h"

namespace opus::controller {
namespace {

constexpr TimeNs kTellWaiting = 1'000'000'000;  // a gang that has waited so long is told of, again as often
constexpr std::size_t kMaxReasons = 8;
constexpr std::size_t kMaxWaitingTold = 64;  // launches a node

std::string text_of(const Key& key) {
    switch (key.kind) {
        case KeyKind::coll: return "collective " + std::to_string(key.n);
        case KeyKind::p2p:
            return "transfer " + std::to_string(key.n) + " from rank " + std::to_string(key.src) + " to " +
                   std::to_string(key.dst);
        case KeyKind::conn:
        case KeyKind::conn_mesh: return "connecting";
        case KeyKind::put:
            return "one-sided operation " + std::to_string(key.n) + " of rank " + std::to_string(key.src) + " to " +
                   std::to_string(key.dst);
        case KeyKind::conn_p2p: return "connecting rank " + std::to_string(key.src) + " to " + std::to_string(key.dst);
    }
    return "";
}

}  // namespace

// Whom a launch of the key waits for, at most kMaxReasons of them.
std::vector<std::string> Explain::explain_missing(const KeyState& key, bool open) const {
    std::vector<std::string> reasons;
    for (std::uint32_t i = 0; i < key.members.size() && reasons.size() < kMaxReasons; ++i) {
        const KeyMember& m = key.members[i];
        const std::uint32_t slot = slot_of(key.key, i);
        const Member& member = key.comm->members[slot];
        const bool held = open && m.presence == Presence::present && m.launch->stage == Stage::ready;
        if (m.presence != Presence::absent && m.presence != Presence::dead && !held) continue;
        std::string why;
        if (held)
            why = "ready, not granted";
        else if (m.presence == Presence::dead || member.gone)
            why = "it has left";
        else
            why = member.registered ? "not ready" : "not registered";
        reasons.push_back("missing " + name_of_member(*key.comm, slot) + ": " + why + " (" + text_of(key.key) + ")");
    }
    return reasons;
}

void Explain::explain_missing(const Launch& launch, std::vector<std::string>& reasons, Explained& said) const {
    for (const KeyRef& r : launch.keys) {
        if (reasons.size() >= kMaxReasons) return;
        const auto [of_key, fresh] = said.missing.try_emplace({r.key, launch.open()});
        if (fresh) of_key->second = explain_missing(*r.key, launch.open());
        for (const std::string& reason : of_key->second)
            if (reasons.size() < kMaxReasons) reasons.push_back(reason);
    }
}

// What is not of a port. True: ports have nothing to do with it.
bool Explain::explain_state(const Gang& gang, std::vector<std::string>& reasons) const {
    if (gang.state == Gang::State::programming) {
        reasons.push_back("its circuits are being made since " + std::to_string((now_ - gang.placed_ns) / 1'000'000) +
                          " ms");
        return true;
    }
    if (gang.sleep == Gang::Sleep::for_others) {
        for (const Launch* launch : gang.launches)
            if (!launch->open() && !nodes_[launch->id.node].up()) {
                reasons.push_back("the manager of " + fabric_.nodes[launch->id.node].name + " has no session");
                return true;
            }
    }
    if (gang.failures > 0 && now_ < gang.retry_at_ns)
        reasons.push_back("a switch failed; next attempt in " + std::to_string((gang.retry_at_ns - now_) / 1'000'000) +
                          " ms");
    for (SwitchIndex s = 0; s < fabric_.switches.size() && !gang.wanted.empty(); ++s)
        if (const SwitchState& sw = inventory_.sw(s);
            sw.rest_until_ns > now_ && std::any_of(gang.wanted.begin(), gang.wanted.end(),
                                                   [&](const WantedPort& w) { return fabric_.ports[w.port].sw == s; }))
            reasons.push_back(fabric_.switches[s].name + " fails whatever it is told; next attempt in " +
                              std::to_string((sw.rest_until_ns - now_) / 1'000'000) + " ms");
    return false;
}

const PortReasons& Explain::explain_ports(const Gang& gang, Explained& said) const {
    const auto [at, fresh] = said.ports.try_emplace(&gang);
    PortReasons& reasons = at->second;
    if (!fresh || explain_state(gang, reasons.state)) return reasons;
    for (const WantedPort& w : gang.wanted) {
        if (reasons.ports.size() >= kMaxReasons) return reasons;
        const Obstacle obstacle = inventory_.obstacle(w, gang);
        if (obstacle == Obstacle::none) continue;
        const PortState& s = inventory_.port(w.port);
        std::string text = "port " + fabric_.ports[w.port].name + " ";
        if (obstacle == Obstacle::busy)
            text += said.holders.text(s.pair);
        else if (obstacle == Obstacle::reserved)
            for (const Reservation& r : s.reservations) {
                if (r.gang == &gang || !(r.gang->order() < gang.order())) continue;
                text += "reserved by gang " + std::to_string(r.gang->ticket) + " (" +
                        name(r.gang->launches.front()->id) + ")";
                break;
            }
        else
            text += name_of(obstacle);
        reasons.ports.push_back(text);
    }
    return reasons;
}

void Explain::explain_ports(const Gang& gang, std::vector<std::string>& reasons, Explained& said) const {
    const PortReasons& of_gang = explain_ports(gang, said);
    reasons.insert(reasons.end(), of_gang.state.begin(), of_gang.state.end());
    for (const std::string& reason : of_gang.ports)
        if (reasons.size() < kMaxReasons) reasons.push_back(reason);
}

void Explain::watch_waiting() {
    if (gangs_.all().empty() || std::exchange(armed_, true)) return;
    arm(now_ + kTellWaiting, TimerKind::waiting, 0);
}

// Managers hear why their launches wait although all members are there: at most once a second, and of so many.
void Explain::tell_waiting() {
    armed_ = false;
    std::map<NodeIndex, wire::Waiting> told;
    Explained said(world_);
    for (const auto& [id, gang] : gangs_.all()) {
        if (now_ - gang->complete_ns < kTellWaiting) continue;
        std::string misses;
        for (const Launch* launch : gang->launches) {
            wire::Waiting& message = told[launch->id.node];
            if (launch->open() || !nodes_[launch->id.node].up() || message.launches.size() >= kMaxWaitingTold) continue;
            if (misses.empty()) {
                std::vector<std::string> reasons;
                explain_ports(*gang, reasons, said);
                for (const std::string& reason : reasons) misses += (misses.empty() ? "" : "; ") + reason;
                if (misses.empty()) misses = "its turn has not come";
            }
            message.launches.push_back({{launch->id.rank, launch->id.seq}, misses.substr(0, wire::kMaxText)});
        }
    }
    for (auto& [node, message] : told)
        if (!message.launches.empty()) send(node, std::move(message));
}

Why Explain::explain(Launch& launch, Explained& said) {
    Why why;
    why.launch = launch.id;
    why.op = launch.op;
    why.bytes = launch.bytes;
    why.since_ns = launch.since_ns;
    if (!launch.keys.empty()) why.comm = launch.keys.front().key->key.comm;
    Gang* gang = launch.gang;
    if (launch.open()) {
        why.state = launch.passed() ? Why::State::passed : Why::State::suspended;
        why.since_ns = std::max(launch.since_ns, launch.start_ns);
        explain_missing(launch, why.reasons, said);
        if (gang != nullptr) explain_ports(*gang, why.reasons, said);
    } else if (gang == nullptr) {
        why.state = Why::State::missing_member;
        explain_missing(launch, why.reasons, said);
    } else {
        why.state = gang->state == Gang::State::programming ? Why::State::programming : Why::State::queued;
        explain_ports(*gang, why.reasons, said);
    }
    return why;
}

WhyPage Explain::why(TimeNs at, const WhyQuestion& question) {
    world_.now = std::max(now_, at);
    WhyPage page;
    Explained said(world_);
    // Is it to be told here?
    const auto counts = [&](NodeIndex node, RankId rank) {
        if (question.of && !question.of(node, rank)) return false;
        return page.all++ >= question.from && page.waiting.size() < question.most;
    };
    for (NodeState& node : nodes_)
        for (auto& [id, rank] : node.ranks)
            for (auto& [seq, launch] : rank.launches)
                if (launch->stage != Stage::in_flight && counts(launch->id.node, id))
                    page.waiting.push_back(explain(*launch, said));
    return page;
}

}  // namespace opus::controller
