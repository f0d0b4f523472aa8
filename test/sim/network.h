// Between managers and the controller: connections that keep the order of their frames and nothing else.
// Frames of different nodes overtake each other; a connection may break, stall, lose or repeat.
#pragma once

#include <cstdint>
#include <vector>

#include "opus/wire.h"
#include "test/sim/random.h"
#include "test/sim/scenario.h"

namespace opus::sim {

class World;

class Network {
public:
    Network(World& world, const Scenario& scenario);

    // The manager's end.
    void open(NodeIndex node);  // tries until it is there
    void close(NodeIndex node);
    void send_up(NodeIndex node, wire::Frame&& frame);
    // The controller's end. False: no such connection any more.
    bool send_down(std::uint32_t connection, wire::Frame&& frame);
    void controller_died();
    NodeIndex node_of(std::uint32_t connection) const { return connections_[connection].node; }

    // Calendar.
    void try_connect(NodeIndex node, std::uint64_t attempt);
    void arrive_up(std::uint32_t connection, std::uint64_t frame);
    void arrive_down(std::uint32_t connection, std::uint64_t frame);
    void resume(NodeIndex node);
    void broken_below(std::uint32_t connection);
    void broken_above(std::uint32_t connection);

    void begin(const Fault& fault);
    void end(const Fault& fault);

private:
    struct Link {
        std::uint32_t connection = kNone;  // the manager's newest
        std::uint64_t attempt = 0;
        bool wanted = false;
        std::uint32_t mute = 0, deaf = 0, lossy = 0, duplicates = 0;
        TimeNs pause_ns = 0;
    };
    struct Connection {
        NodeIndex node = 0;
        bool below = true, above = true;  // ends that think it stands
        bool carries = true;
        std::uint64_t controller_life = 0;
        TimeNs last_up = 0, last_down = 0;
        std::vector<std::uint64_t> stalled_up, stalled_down;  // frames that a partition has stopped
    };
    TimeNs delay() { return random_.spread(s_.timing.wire_low_ns, s_.timing.wire_high_ns); }
    void cut(std::uint32_t connection);
    void take(std::uint32_t connection, std::uint64_t frame, bool up);
    void carry(std::uint32_t connection, wire::Frame&& frame, bool up);
    std::uint32_t keep(wire::Frame&& frame);

    World& world_;
    const Scenario& s_;
    Random random_;
    std::vector<Link> links_;
    std::vector<Connection> connections_;
    std::vector<wire::Frame> frames_;
    std::vector<std::uint32_t> free_;
};

}  // namespace opus::sim
