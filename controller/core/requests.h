// What an operator does by hand (opus-ctl connect, disconnect).
#pragma once

#include <string>

#include "controller/core/room.h"

namespace opus::controller {

class ChangeSets;
class Suspension;

class Requests : Room {
public:
    Requests(World& world, Rooms& rooms);

    void handle(const CtlConnect& e);
    void handle(const CtlDisconnect& e);

private:
    bool may_turn(PortId p, bool force, std::string& why);
    void clear_port(PortId p);

    ChangeSets& change_sets_;
    Suspension& suspension_;
};

}  // namespace opus::controller
