// In which order the uses of a lap are to have their circuits, so that it is short: found by playing orders. Each use
// takes light that is there, or turns ports as soon as their last use before it is over, however long before it begins
// itself. Of ports that are free about as soon it takes the one whose present circuit is needed again latest. Two
// choices are a part of what is sought: whether a port that is free earlier is better than one that is free in time,
// and how many circuits the pairs of a use get (with more of them its bytes take less, and more ports are turned).
//
// Pure, deterministic. What a search takes by the size of the job: bench_planning, and
// docs/decisions/053-planning-two-thousand-gpus.md and 054. It needs a bit for each pair of uses.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "controller/plan/lap.h"
#include "opus/fabric.h"

namespace opus::controller::plan {

struct Order {
    std::vector<std::uint32_t> place;  // of each use
    std::vector<std::vector<std::pair<PortId, PortId>>> ports;  // of each use: to be joined
    std::vector<TimeNs> wait;          // how long it is to wait for its circuits once its members are ready
    TimeNs lap_ns = 0;                 // what a lap is to take
    std::vector<std::uint32_t> circuits = {};  // of each use: of each of its pairs, at least
    bool first_free = false;                   // how its ports were chosen (Way)
    // Of each use: when it is to begin, from the first of the lap on, and how long it is to last. For people.
    std::vector<TimeNs> begin_ns = {}, lasts_ns = {};

    bool does_as(const Order& other) const { return place == other.place && ports == other.ports; }
};

struct Task {
    Lap lap;
    std::vector<bool> usable;  // by port: it may be turned
    std::uint32_t trials = 0;  // after so many that find no shorter lap the search ends
    std::uint32_t most_trials = 0;  // and after so many in any case; 0: after `trials`
    Order from = {};                // that is followed now; no places: there is none
    TimeNs gains_ns = 0;            // by so much another one's lap is to be shorter than its, at least
};

// No ports where they do not suffice, or where uses of the lap wait for each other.
Order find_order(const Task& task, const Fabric& fabric);

}  // namespace opus::controller::plan
