// A room of the core: it owns some of the core's state, which no other room sees, and does to it what its public
// functions say. It reads and changes the world, says what is to be done (actions), and calls the rooms that its header names.
#pragma once

#include <algorithm>
#include <string>
#include <utility>

#include "controller/core/world.h"

namespace opus::controller {

struct Rooms;

class Room {
public:
    Room(const Room&) = delete;
    Room& operator=(const Room&) = delete;

protected:
    explicit Room(World& world)
        : world_(world),
          fabric_(world.fabric),
          options_(world.options),
          now_(world.now),
          step_(world.step),
          inventory_(world.inventory),
          planner_(world.planner),
          comms_(world.comms),
          nodes_(world.nodes),
          counters_(world.counters) {}
    ~Room() = default;

    void act(Action&& action) const { world_.out->push_back(std::move(action)); }
    void log(LogLevel level, std::string text) const { act(Log{level, std::move(text)}); }
    void trace(const Trace& t) const { std::get<Trace>(world_.out->emplace_back(t)).at_ns = now_; }
    void send(NodeIndex node, wire::Message&& message) const {
        if (nodes_[node].session != 0) act(SendTo{node, nodes_[node].session, std::move(message)});
    }
    void arm(TimeNs at, TimerKind kind, std::uint64_t id) const { world_.timers.arm(std::max(at, now_), kind, id); }
    std::uint64_t next_mark() const { return ++world_.mark; }

    Rank* rank_of(NodeIndex node, RankId rank) const { return world_.rank_of(node, rank); }
    Launch* launch_of(const LaunchId& id) const { return world_.launch_of(id); }
    std::string name(GpuId gpu) const { return world_.name(gpu); }
    std::string name(const LaunchId& id) const { return world_.name(id); }
    std::string name_of_member(const Comm& comm, std::uint32_t slot) const { return world_.name_of_member(comm, slot); }

    World& world_;
    const Fabric& fabric_;
    const CoreOptions& options_;
    const TimeNs& now_;
    const std::uint64_t& step_;
    Inventory& inventory_;
    Planner& planner_;
    CommTable& comms_;
    std::vector<NodeState>& nodes_;
    Counters& counters_;
};

}  // namespace opus::controller
