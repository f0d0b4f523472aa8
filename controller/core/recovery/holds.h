// Holds: decisions for launches without circuits, since their hold time is over or circuits are impossible.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "controller/core/room.h"

namespace opus::controller {

class Explain;
class Gangs;
class Launches;
class Registration;

class Holds : Room {
public:
    Holds(World& world, Rooms& rooms);

    void hold(Gang& gang, TimeNs at);  // until then
    void end_holds();
    TimeNs asked_hold(const Launch& launch);
    void look_at_hold(NodeIndex node, const wire::CommMember& member);

    void not_routable(Gang& gang);
    void relight();  // a fenced port is back
    Policy policy_of(const std::vector<Launch*>& launches);
    void pass_launches(const std::vector<Launch*>& launches, Policy how, const std::string& why, bool no_light);
    void pass_unheld(Launch& launch);  // that is in no communicator that is held
    void expired(NodeIndex node, const wire::Expired& message);

private:
    SwitchIndex slowest_switch(GpuId gpu) const;
    SwitchIndex slowest_switch(const Gang& gang) const;
    void hold_expired(Gang& gang);
    bool fits_alone(Launch& launch);
    void pass_gang(Gang& gang, const std::string& why);

    TimeNs told_ns_ = -1;          // when a timer looks whose hold is over; -1: none is set
    std::set<std::string> short_;  // jobs whose hold time is too short, and it has been said

    Launches& launches_;
    Gangs& gangs_;
    Registration& registration_;
    Explain& explain_;
};

}  // namespace opus::controller
