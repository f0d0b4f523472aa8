// The core: a world, its rooms, and which event goes to which of them.
#pragma once

#include "controller/core/core.h"
#include "controller/core/rooms.h"
#include "controller/core/world.h"

namespace opus::controller {

struct Core::Impl {
    Impl(const Fabric& fabric, const CoreOptions& options) : world(fabric, options), rooms(world) {}

    void on(const Event& event, TimeNs now, Actions& actions);
    std::string check();

    World world;
    Rooms rooms;

private:
    void handle(const NodeMessage& e);
    void handle(const NodeSession& e) { rooms.node_sessions.handle(e); }
    void handle(const NodeLost& e) { rooms.node_sessions.handle(e); }
    void handle(const SwitchEvent& e) { rooms.switches.handle(e); }
    void handle(const CtlConnect& e) { rooms.requests.handle(e); }
    void handle(const CtlDisconnect& e) { rooms.requests.handle(e); }
    void handle(const CtlFence& e) { rooms.fences.handle(e); }
    void handle(const CtlUnfence& e) { rooms.fences.handle(e); }
    void handle(const Thought& e) { rooms.jobs.handle(e); }
    void handle(const Tick&);

    void hear(NodeIndex node, const wire::Register& m);
    void hear(NodeIndex node, const wire::Retire& m);
    void hear(NodeIndex node, const wire::Demand& m);
    void hear(NodeIndex node, const wire::Done& m);
    void hear(NodeIndex node, const wire::Returned& m) { rooms.runs.hear(node, m); }
    void hear(NodeIndex node, const wire::Expired& m) { rooms.holds.expired(node, m); }
    void hear(NodeIndex node, const wire::Snapshot& m) { rooms.node_sessions.hear(node, m); }
    void hear(NodeIndex, const wire::Heartbeat&) {}
    template <class ControllersOwn>
    void hear(NodeIndex node, const ControllersOwn&) {
        world.out->push_back(
            Log{LogLevel::warn, world.fabric.nodes[node].name + " sent a message that only a controller sends"});
    }

    void begin();
    void fire(const Timers::Timer& timer);
    void finish_step();

    bool started_ = false;
    TimeNs wake_told_ns_ = -1;
};

}  // namespace opus::controller
