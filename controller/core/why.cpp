// Why does it wait? The missing member, the port, who holds it, and since when.
#include <algorithm>

#include "controller/core/impl.h"

namespace opus::controller {
namespace {

constexpr std::size_t kMaxReasons = 8;
constexpr std::size_t kMaxWaitingTold = 64;  // launches a node

std::string text_of(const Key& key) {
    switch (key.kind) {
        case KeyKind::coll: return "collective " + std::to_string(key.n);
        case KeyKind::p2p:
            return "transfer " + std::to_string(key.n) + " from rank " + std::to_string(key.src) + " to " +
                   std::to_string(key.dst);
        case KeyKind::conn: return "connecting";
        case KeyKind::conn_p2p: return "connecting rank " + std::to_string(key.src) + " to " + std::to_string(key.dst);
    }
    return "";
}

}  // namespace

std::string Core::Impl::left_text(const wire::Withheld& w, const NodeState& node) const {
    const TimeNs left = TimeNs(w.left_ms) * 1'000'000 - (now - node.withheld_ns);
    return ", for " + std::to_string(std::max<TimeNs>(0, left) / 1'000'000) + " ms more at most, as things are";
}

void Core::Impl::explain_missing(const Launch& launch, std::vector<std::string>& reasons) const {
    for (const KeyRef& r : launch.keys) {
        const KeyState& key = *r.key;
        for (std::uint32_t i = 0; i < key.members.size() && reasons.size() < kMaxReasons; ++i) {
            const KeyMember& m = key.members[i];
            const std::uint32_t slot = slot_of(key.key, i);
            const std::string who = "missing " + name_of_member(*key.comm, slot) + ": ";
            if (m.presence == Presence::dead || (m.presence == Presence::absent && key.comm->members[slot].gone))
                reasons.push_back(who + "it has left (" + text_of(key.key) + ")");
            else if (const wire::Withheld* w = withheld_at(key.key, key.comm->members[slot]);
                     w != nullptr && m.presence == Presence::absent)
                reasons.push_back(who + "ready, and withheld by its manager" +
                                  left_text(*w, nodes[key.comm->members[slot].node]) + " (" + text_of(key.key) + ")");
            else if (m.presence == Presence::absent)
                reasons.push_back(who + (key.comm->members[slot].registered ? "not ready" : "not registered") + " (" +
                                  text_of(key.key) + ")");
            else if (m.presence == Presence::present && launch.open && m.launch->stage == Stage::ready)
                reasons.push_back(who + "ready, not granted (" + text_of(key.key) + ")");
        }
    }
}

void Core::Impl::explain_ports(Gang& gang, std::vector<std::string>& reasons) {
    if (gang.state == Gang::State::programming) {
        reasons.push_back("its circuits are being made since " + std::to_string((now - gang.placed_ns) / 1'000'000) +
                          " ms");
        return;
    }
    if (gang.offline) {
        for (const Launch* launch : gang.launches)
            if (!launch->open && !nodes[launch->id.node].up()) {
                reasons.push_back("the manager of " + fabric.nodes[launch->id.node].name + " has no session");
                return;
            }
    }
    if (gang.failures > 0 && now < gang.retry_at_ns)
        reasons.push_back("a switch failed; next attempt in " + std::to_string((gang.retry_at_ns - now) / 1'000'000) +
                          " ms");
    for (const Wish& w : gang.wishes) {
        if (reasons.size() >= kMaxReasons) return;
        const Obstacle obstacle = inventory.obstacle(w, gang);
        if (obstacle == Obstacle::none) continue;
        const PortState& s = inventory.port(w.port);
        std::string text = "port " + fabric.ports[w.port].name + " ";
        if (obstacle == Obstacle::busy)
            text += holders_text(s.edge);
        else if (obstacle == Obstacle::reserved)
            for (const Reservation& r : s.reservations) {
                if (r.gang == &gang || !(r.gang->order() < gang.order())) continue;
                text += "reserved by gang " + std::to_string(r.gang->ticket) + " (" +
                        name(r.gang->launches.front()->id) + ")";
                break;
            }
        else
            text += name_of(obstacle);
        reasons.push_back(text);
    }
}

// Managers hear why their launches wait although all members are there: at most once a second, and of so many.
void Core::Impl::tell_waiting() {
    waiting_armed = false;
    std::map<NodeIndex, wire::Waiting> told;
    for (const auto& [id, gang] : gangs) {
        if (now - gang->complete_ns < kTellWaiting) continue;
        std::string misses;
        for (const Launch* launch : gang->launches) {
            wire::Waiting& message = told[launch->id.node];
            if (launch->open || !nodes[launch->id.node].up() || message.launches.size() >= kMaxWaitingTold) continue;
            if (misses.empty()) {
                std::vector<std::string> reasons;
                explain_ports(*gang, reasons);
                for (const std::string& reason : reasons) misses += (misses.empty() ? "" : "; ") + reason;
                if (misses.empty()) misses = "its turn has not come";
            }
            message.launches.push_back({{launch->id.rank, launch->id.seq}, misses.substr(0, wire::kMaxText)});
        }
    }
    for (auto& [node, message] : told)
        if (!message.launches.empty()) send(node, std::move(message));
}

// A receive that nobody has asked for: only its manager knows that it is ready, and has told with its last heartbeat.
Why Core::Impl::explain(NodeIndex node, const wire::Withheld& w) const {
    Why why;
    why.launch = {node, w.launch.rank, w.launch.seq};
    why.comm = w.keys.first.comm;
    why.op = OpKind::recv;
    why.bytes = w.bytes;
    why.since_ns = std::max<TimeNs>(1, nodes[node].withheld_ns - TimeNs(w.waited_ms) * 1'000'000);
    why.state = Why::State::withheld;
    why.reasons.push_back("not asked for yet: what else its rank does next goes first" + left_text(w, nodes[node]) +
                          " (" + text_of(w.keys.first) + ")");
    return why;
}

const wire::Withheld* Core::Impl::withheld_at(const Key& key, const Member& member) const {
    if (!member.registered || member.gone) return nullptr;
    for (const wire::Withheld& w : nodes[member.node].withheld) {
        const Key& first = w.keys.first;
        if (w.launch.rank == member.rank && sequence_of(first) == sequence_of(key) && first.n <= key.n &&
            key.n < first.n + w.keys.count)
            return &w;
    }
    return nullptr;
}

Why Core::Impl::explain(Launch& launch) {
    Why why;
    why.launch = launch.id;
    why.op = launch.op;
    why.bytes = launch.bytes;
    why.since_ns = launch.since_ns;
    if (!launch.keys.empty()) why.comm = launch.keys.front().key->key.comm;
    Gang* gang = launch.gang;
    if (launch.open) {
        why.state = launch.passed ? Why::State::passed : Why::State::suspended;
        why.since_ns = std::max(launch.since_ns, launch.start_ns);
        explain_missing(launch, why.reasons);
        if (gang != nullptr) explain_ports(*gang, why.reasons);
    } else if (gang == nullptr) {
        why.state = Why::State::missing_member;
        explain_missing(launch, why.reasons);
    } else {
        why.state = gang->state == Gang::State::programming ? Why::State::programming : Why::State::queued;
        explain_ports(*gang, why.reasons);
    }
    return why;
}

std::vector<Why> Core::Impl::why(TimeNs at) {
    now = std::max(now, at);
    std::vector<Why> all;
    for (NodeState& node : nodes)
        for (auto& [id, rank] : node.ranks)
            for (auto& [seq, launch] : rank.launches)
                if (launch->stage != Stage::in_flight) all.push_back(explain(*launch));
    for (NodeIndex n = 0; n < nodes.size(); ++n)
        for (const wire::Withheld& w : nodes[n].withheld)
            if (rank_of(n, w.launch.rank) != nullptr) all.push_back(explain(n, w));
    return all;
}

}  // namespace opus::controller
