// Cuts: what some members have started or finished without asking, and others have not yet.
#pragma once

#include "controller/core/leases/run.h"
#include "controller/core/room.h"

namespace opus::controller {

class Gangs;
class Jobs;
class Launches;
class Runs;
class Schedule;
class Suspension;

class Cuts : Room {
public:
    Cuts(World& world, Rooms& rooms);

    void cut(const Run& run);
    void mark_cut(KeyState& key);
    bool involves_laggard(const Gang& gang);

    // What was done, and not reported before.
    void hear_ran(NodeIndex n, const wire::LaunchRan& ran);
    void mark_done(KeyState& key, std::uint32_t place);
    void imply_done(Comm& comm, const Key& key, std::uint32_t slot);
    void tell_finished(Comm& comm, std::uint32_t slot);

private:
    void did_unreported(const Membership& membership, const wire::KeyRange& range);
    void did_unreported(KeyState& key, std::uint32_t place);

    Launches& launches_;
    Gangs& gangs_;
    Schedule& schedule_;
    Jobs& jobs_;
    Runs& runs_;
    Suspension& suspension_;
};

}  // namespace opus::controller
