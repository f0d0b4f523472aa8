// Change sets: what switches are told. All that one step decides for a switch goes in one of them.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "controller/core/room.h"

namespace opus::controller {

class Fences;
class Gangs;
class Grants;
class Hidden;
class Launches;
class Schedule;
class Switches;
class Turns;

class ChangeSets : Room {
public:
    ChangeSets(World& world, Rooms& rooms);

    void program(Gang& gang, const Plan& plan);  // its circuits are made, then it is granted
    void unclaim(Gang& gang);

    Op& open(SwitchIndex sw, bool alone);
    void connect(Op& op, PairId pair, const Circuit& circuit);
    void turn_dark(Op& op, PortId p);
    void emit();  // those of this step

    void settle(Op& op, const Applied& applied);
    void fail(Op& op, DriverError error, const std::string& text);
    OpId next_id() { return next_++; }

    std::string check();  // an invariant, for Core::check()

private:
    void fail_gang(Gang& gang);

    std::map<std::pair<SwitchIndex, bool>, OpId> open_;  // of this step
    std::vector<OpId> new_;                              // to be sent at its end
    OpId next_ = 1;

    Launches& launches_;
    Gangs& gangs_;
    Schedule& schedule_;
    Grants& grants_;
    Switches& switches_;
    Fences& fences_;
    Turns& turns_;
    Hidden& hidden_;
};

}  // namespace opus::controller
