// What moving circuits ahead of demand has brought: dark time that nobody waited for, and what was waited for.
#pragma once

#include <string>
#include <vector>

#include "controller/core/room.h"

namespace opus::controller {

class Gangs;

class Hidden : Room {
public:
    Hidden(World& world, Rooms& rooms);

    void begin(PortId p, PortId q);        // they are turned to each other for a plan
    void made(const Op& op, TimeNs took);  // and have light
    void lose(const Circuit& circuit);
    void forget(PortId p) { made_[p] = {}; }
    TimeNs use(const Gang& gang);  // returns what it waited for light

    std::string check() const;  // an invariant, for Core::check()

private:
    struct Made {  // a port that was turned for its plan, until somebody uses its light or turns it
        PortId peer = kNone;
        TimeNs took_ns = -1;  // -1: it is still moving
        TimeNs end_ns = 0;
    };
    std::vector<Made> made_;  // by port

    Gangs& gangs_;
};

}  // namespace opus::controller
