#include "test/sim/network.h"

#include <algorithm>
#include <utility>

#include "opus/wire_codec.h"
#include "test/sim/world.h"

namespace opus::sim {

Network::Network(World& world, const Scenario& scenario)
    : world_(world), s_(scenario), random_(scenario.seed, 0x2e7), links_(scenario.fabric.nodes.size()) {}

void Network::open(NodeIndex node) {
    Link& link = links_[node];
    link.wanted = true;
    link.pause_ns = 10'000'000;
    world_.after(random_.spread(50'000, 2'000'000), Kind::connect, node, ++link.attempt);
}

void Network::close(NodeIndex node) {
    Link& link = links_[node];
    link.wanted = false;
    ++link.attempt;
    if (link.connection == kNone) return;
    connections_[link.connection].below = false;
    cut(link.connection);
    link.connection = kNone;
}

void Network::try_connect(NodeIndex node, std::uint64_t attempt) {
    Link& link = links_[node];
    if (!link.wanted || link.attempt != attempt) return;
    if (!world_.controller.alive() || link.mute > 0 || link.deaf > 0) {
        link.pause_ns = std::min<TimeNs>(2 * link.pause_ns, 200'000'000);
        return world_.after(link.pause_ns, Kind::connect, node, attempt);
    }
    link.connection = static_cast<std::uint32_t>(connections_.size());
    Connection c;
    c.node = node;
    c.controller_life = world_.controller.life();
    connections_.push_back(c);
    if (world_.journal.on)
        world_.journal.add(world_.now, "n" + std::to_string(node) + " connects: " + std::to_string(link.connection));
    world_.managers[node]->connected(random_.next() | 1);
}

// The transport is gone; each end sees it in its own time.
void Network::cut(std::uint32_t id) {
    Connection& c = connections_[id];
    if (!c.carries) return;
    c.carries = false;
    if (c.below) world_.after(random_.spread(20'000, 5'000'000), Kind::broken_below, id);
    if (c.above) world_.after(random_.spread(20'000, 5'000'000), Kind::broken_above, id);
}

void Network::broken_below(std::uint32_t id) {
    Connection& c = connections_[id];
    Link& link = links_[c.node];
    if (!c.below || link.connection != id) return;
    c.below = false;
    link.connection = kNone;
    if (!link.wanted) return;
    world_.managers[c.node]->disconnected();
    if (link.wanted && link.connection == kNone) {
        link.pause_ns = 10'000'000;
        world_.after(random_.spread(1'000'000, 20'000'000), Kind::connect, c.node, ++link.attempt);
    }
}

void Network::broken_above(std::uint32_t id) {
    Connection& c = connections_[id];
    if (!c.above) return;
    c.above = false;
    if (world_.controller.alive() && c.controller_life == world_.controller.life()) world_.controller.closed(id);
}

void Network::controller_died() {
    for (std::uint32_t id = 0; id < connections_.size(); ++id) {
        connections_[id].above = false;
        if (connections_[id].carries) cut(id);
    }
}

std::uint32_t Network::keep(wire::Frame&& frame) {
    if (free_.empty()) {
        frames_.push_back(std::move(frame));
        return static_cast<std::uint32_t>(frames_.size() - 1);
    }
    const std::uint32_t at = free_.back();
    free_.pop_back();
    frames_[at] = std::move(frame);
    return at;
}

void Network::carry(std::uint32_t id, wire::Frame&& frame, bool up) {
    Connection& c = connections_[id];
    const Link& link = links_[c.node];
    if (!c.carries) return;
    if (link.lossy > 0 && random_.chance(100)) {  // a gap, where no transport of ours has any
        return;
    }
    if (world_.options.wire) {
        std::string bytes;
        wire::encode(frame, bytes);
        auto decoded = wire::decode(bytes);
        if (const auto* error = std::get_if<wire::DecodeError>(&decoded))
            return world_.fail("a frame that its receiver refuses: " + error->text);
        frame = std::move(std::get<wire::Frame>(decoded));
    }
    TimeNs& last = up ? c.last_up : c.last_down;
    last = std::max(last + 1, world_.now + delay());
    const Kind kind = up ? Kind::frame_up : Kind::frame_down;
    if (link.duplicates > 0 && random_.chance(300)) {
        world_.calendar.add(last, {kind, id, keep(wire::Frame(frame))});
        last += random_.spread(1'000, 500'000);
    }
    world_.calendar.add(last, {kind, id, keep(std::move(frame))});
}

void Network::send_up(NodeIndex node, wire::Frame&& frame) {
    if (links_[node].connection != kNone) carry(links_[node].connection, std::move(frame), true);
}

bool Network::send_down(std::uint32_t id, wire::Frame&& frame) {
    if (!connections_[id].above) return false;
    carry(id, std::move(frame), false);
    return true;
}

// In order, whatever happens: what arrives while others are stopped waits behind them.
void Network::arrive_up(std::uint32_t id, std::uint64_t frame) {
    if (links_[connections_[id].node].mute > 0 || !connections_[id].stalled_up.empty())
        return connections_[id].stalled_up.push_back(frame);
    take(id, frame, true);
}

void Network::arrive_down(std::uint32_t id, std::uint64_t frame) {
    if (links_[connections_[id].node].deaf > 0 || !connections_[id].stalled_down.empty())
        return connections_[id].stalled_down.push_back(frame);
    take(id, frame, false);
}

void Network::resume(NodeIndex node) {
    for (std::uint32_t id = 0; id < connections_.size(); ++id) {
        if (connections_[id].node != node) continue;
        for (const bool up : {true, false}) {
            if ((up ? links_[node].mute : links_[node].deaf) > 0) continue;
            const auto stalled = std::exchange(up ? connections_[id].stalled_up : connections_[id].stalled_down, {});
            for (const std::uint64_t frame : stalled) take(id, frame, up);
        }
    }
}

void Network::take(std::uint32_t id, std::uint64_t at, bool up) {
    const Connection& c = connections_[id];
    wire::Frame frame = std::move(frames_[at]);
    free_.push_back(static_cast<std::uint32_t>(at));
    if (!c.carries) return;
    if (up) {
        if (c.above && world_.controller.alive() && c.controller_life == world_.controller.life())
            world_.controller.hear(id, frame);
    } else if (links_[c.node].connection == id && world_.managers[c.node]->alive()) {
        world_.managers[c.node]->hear(frame);
    }
}

void Network::begin(const Fault& f) {
    Link& link = links_[f.target];
    switch (f.kind) {
        case FaultKind::link_break:
            if (link.connection != kNone) cut(link.connection);
            break;
        case FaultKind::partition: ++link.mute, ++link.deaf; break;
        case FaultKind::mute: ++link.mute; break;
        case FaultKind::deaf: ++link.deaf; break;
        case FaultKind::lossy: ++link.lossy; break;
        case FaultKind::duplicates: ++link.duplicates; break;
        default: break;
    }
}

void Network::end(const Fault& f) {
    Link& link = links_[f.target];
    switch (f.kind) {
        case FaultKind::partition:
        case FaultKind::mute:
        case FaultKind::deaf:
            if (f.kind != FaultKind::deaf) --link.mute;
            if (f.kind != FaultKind::mute) --link.deaf;
            // Some connections survive it (what was under way comes now), some do not.
            if (f.detail % 2 == 0 && link.connection != kNone) cut(link.connection);
            world_.after(random_.spread(10'000, 1'000'000), Kind::resume, f.target);
            break;
        case FaultKind::lossy: --link.lossy; break;
        case FaultKind::duplicates: --link.duplicates; break;
        default: break;
    }
}

}  // namespace opus::sim
