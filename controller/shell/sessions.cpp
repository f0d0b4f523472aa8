#include "controller/shell/sessions.h"

#include <utility>

namespace opus::controller {

std::string Speaker::name() const {
    if (address.empty() || where.empty()) return where.empty() ? address : where;
    return address + " (" + where + ")";
}

const Speaker* Sessions::other_than(const Speaker& speaker, NodeIndex node, TimeNs now, TimeNs silence_ns) const {
    const Claim& claim = claims_[node];
    const bool lives = claim.any && now - claim.heard_ns <= silence_ns;
    return lives && !speaker.replaces(claim.speaker) ? &claim.speaker : nullptr;
}

Session* Sessions::of_peer(const std::string& peer) {
    const auto at = nodes_.find(peer);
    return at == nodes_.end() ? nullptr : &sessions_[at->second];
}

Session* Sessions::of_node(NodeIndex node) {
    return node < sessions_.size() && sessions_[node].node != kNone ? &sessions_[node] : nullptr;
}

Session& Sessions::open(const std::string& peer, NodeIndex node, const wire::Frame& hello_frame, std::uint64_t id,
                        TimeNs now, Speaker speaker) {
    if (const Session* before = of_peer(peer)) close(before->node);
    close(node);
    nodes_[peer] = node;
    sessions_[node] = {peer, node, id, hello_frame.sequence, 0, now};
    claims_[node] = {std::move(speaker), now, true};
    return sessions_[node];
}

void Sessions::close(NodeIndex node) {
    if (of_node(node) == nullptr) return;
    nodes_.erase(sessions_[node].peer);
    sessions_[node] = {};
}

Sessions::Judgement Sessions::judge(const std::string& peer, const wire::Frame& frame, std::uint64_t epoch, TimeNs now) {
    Session* session = of_peer(peer);
    if (!session) return Judgement::stranger;
    if (frame.epoch != epoch || frame.session != session->id || frame.sequence <= session->received)
        return Judgement::stale;
    if (frame.sequence != session->received + 1) return Judgement::gap;
    session->received = frame.sequence;
    session->last_seen_ns = claims_[session->node].heard_ns = now;
    return Judgement::take;
}

std::vector<NodeIndex> Sessions::silent(TimeNs now, TimeNs silence_ns) const {
    std::vector<NodeIndex> nodes;
    for (const auto& [peer, node] : nodes_)
        if (now - sessions_[node].last_seen_ns > silence_ns) nodes.push_back(node);
    return nodes;
}

}  // namespace opus::controller
