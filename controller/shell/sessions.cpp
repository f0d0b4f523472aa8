#include "controller/shell/sessions.h"

namespace opus::controller {

Session* Sessions::of_peer(const std::string& peer) {
    const auto at = sessions_.find(peer);
    return at == sessions_.end() ? nullptr : &at->second;
}

Session* Sessions::of_node(NodeIndex node) {
    return node < peers_.size() && !peers_[node].empty() ? of_peer(peers_[node]) : nullptr;
}

Session& Sessions::open(const std::string& peer, NodeIndex node, const wire::Frame& hello_frame, std::uint64_t id,
                        TimeNs now) {
    if (const Session* before = of_peer(peer)) close(before->node);
    close(node);
    peers_[node] = peer;
    Session& session = sessions_[peer];
    session = {peer, node, id, hello_frame.sequence, 0, now};
    return session;
}

void Sessions::close(NodeIndex node) {
    if (node >= peers_.size() || peers_[node].empty()) return;
    sessions_.erase(peers_[node]);
    peers_[node].clear();
}

Sessions::Judgement Sessions::judge(const std::string& peer, const wire::Frame& frame, std::uint64_t epoch, TimeNs now) {
    Session* session = of_peer(peer);
    if (!session) return Judgement::stranger;
    if (frame.epoch != epoch || frame.session != session->id || frame.sequence <= session->received)
        return Judgement::stale;
    if (frame.sequence != session->received + 1) return Judgement::gap;
    session->received = frame.sequence;
    session->last_seen_ns = now;
    return Judgement::take;
}

std::vector<NodeIndex> Sessions::silent(TimeNs now, TimeNs silence_ns) const {
    std::vector<NodeIndex> nodes;
    for (const auto& [peer, session] : sessions_)
        if (now - session.last_seen_ns > silence_ns) nodes.push_back(session.node);
    return nodes;
}

}  // namespace opus::controller
