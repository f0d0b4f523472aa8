// The core: a world, its rooms, and which event goes to which of them.
#pragma once

#include <string>
#include <utility>

#include "manager/core/core.h"
#include "manager/core/rooms.h"
#include "manager/core/world.h"

namespace opus::manager {

struct Core::Impl {
    Impl(std::string node, CoreOptions options) : world(std::move(node), std::move(options)), rooms(world) {}

    bool flush();

    void handle(const RankUp& e) { rooms.members.handle(e); }
    void handle(const RankDown& e) { rooms.members.handle(e); }
    void handle(const CommEntering& e) { rooms.members.handle(e); }
    void handle(const CommUp& e) { rooms.members.handle(e); }
    void handle(const CommCreated& e) { rooms.members.handle(e); }
    void handle(const CommDown& e) { rooms.members.handle(e); }
    void handle(const CommLost& e) { rooms.members.handle(e); }
    void handle(const Recorded& e) { rooms.launches.handle(e); }
    void handle(const Ready& e) { rooms.launches.handle(e); }
    void handle(const DoneSeen& e) { rooms.launches.handle(e); }
    void handle(const GaveUp& e) { rooms.holds.handle(e); }
    void handle(const Retracted& e) { rooms.early_releases.handle(e); }
    void handle(const ControllerUp& e) { rooms.session.handle(e); }
    void handle(const ControllerDown& e) { rooms.session.handle(e); }
    void handle(const FromController& e) { rooms.session.handle(e); }
    void handle(const Tick& e) { rooms.session.handle(e); }

    World world;
    Rooms rooms;
    TimeNs wake_at = -1;  // last WakeAt
};

}  // namespace opus::manager
