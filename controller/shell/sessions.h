// Who speaks for which node. One session a node; a session is one connection (peer) and one number drawn
// by the manager; frames count from 1 in each direction. Pure: no socket, no clock.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "opus/types.h"
#include "opus/wire.h"

namespace opus::controller {

// A manager, as far as can be told from outside.
struct Speaker {
    std::string address;     // that its connection comes from; empty: not known
    std::string where;       // what it says of itself, for people
    std::uint64_t seat = 0;  // wire::Hello

    // The same process, or the next one in its place: two never hold one seat at a time. An older manager tells none.
    bool replaces(const Speaker& other) const {
        return seat != 0 && other.seat != 0 ? seat == other.seat : address == other.address;
    }
    std::string name() const;
};

struct Session {
    std::string peer;  // routing id of the connection
    NodeIndex node = kNone;
    std::uint64_t id = 0;
    std::uint64_t received = 0;  // last frame's sequence
    std::uint64_t sent = 0;
    TimeNs last_seen_ns = 0;
};

class Sessions {
public:
    explicit Sessions(std::size_t nodes) : sessions_(nodes), claims_(nodes) {}

    Session* of_peer(const std::string& peer);
    Session* of_node(NodeIndex node);
    std::size_t count() const { return nodes_.size(); }

    // Who else speaks for the node: it was heard of within `silence_ns`, in a session that goes on or in one that has
    // ended, since it may be about to begin another. Null: `speaker` may.
    const Speaker* other_than(const Speaker& speaker, NodeIndex node, TimeNs now, TimeNs silence_ns) const;
    // Replaces the node's session and whatever the peer had before.
    Session& open(const std::string& peer, NodeIndex node, const wire::Frame& hello_frame, std::uint64_t id, TimeNs now,
                  Speaker speaker = {});
    void close(NodeIndex node);

    enum class Judgement {
        take,
        stale,     // another epoch or session, or a frame again: drop it
        stranger,  // a peer without a session: tell it to begin one
        gap,       // frames are missing: the session is over
    };
    // A frame that has no Hello. `take` counts it and notes the time.
    Judgement judge(const std::string& peer, const wire::Frame& frame, std::uint64_t epoch, TimeNs now);

    // Nodes not heard of since `silence_ns`.
    std::vector<NodeIndex> silent(TimeNs now, TimeNs silence_ns) const;
    template <class F>
    void each(F&& f) {
        for (const auto& [peer, node] : nodes_) f(sessions_[node]);
    }

private:
    struct Claim {
        Speaker speaker;
        TimeNs heard_ns = 0;
        bool any = false;
    };
    std::vector<Session> sessions_;                     // by node; one without a session has no node
    std::vector<Claim> claims_;                         // by node; outlives the session
    std::unordered_map<std::string, NodeIndex> nodes_;  // by peer
};

}  // namespace opus::controller
