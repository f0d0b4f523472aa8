// The schedule: which gang gets its ports next. What waits sleeps until something that it waits for has changed.
#pragma once

#include <set>
#include <utility>
#include <vector>

#include "controller/core/room.h"

namespace opus::controller {

class ChangeSets;
class Cuts;
class Fences;
class Gangs;
class Grants;
class Holds;
class Runs;
class Suspension;
class Turns;

class Schedule : Room {
public:
    Schedule(World& world, Rooms& rooms);

    void schedule();  // every gang that is queued
    void queue(Gang& gang, bool whole);
    void queue_all();
    void dequeue(Gang& gang);

    void wake(GpuId gpu);  // something has changed at its ports
    void wake_pair(PairId e);
    void watch_gpu(Gang& gang, GpuId gpu);
    void unwatch(Gang& gang);
    void set_wanted(Gang& gang, std::vector<WantedPort> wanted);

private:
    void attempt(Gang& gang);
    bool still_blocked(Gang& gang);
    bool all_lit(const Gang& gang, bool& reserved) const;
    bool lies_lit(const Gang& gang) const;
    bool joins_flight(const Gang& gang) const;
    bool may_pass(const Gang& gang) const;
    bool reachable(const Gang& gang);
    bool suspended_now(const Gang& gang) const;
    void back_off(Gang& gang);
    bool meets_committed(const Gang& gang);
    bool is_routable(Gang& gang);
    void block(Gang& gang);
    void reserve(Gang& gang);
    bool want_more(Gang& gang, const std::vector<PairId>& added);
    void watch(Gang& gang);

    std::set<std::pair<Gang::Order, Gang*>> queued_;  // to be attempted
    std::vector<std::vector<Gang*>> watchers_;        // by GPU
    std::set<Gang::Order> watching_all_;

    Gangs& gangs_;
    ChangeSets& change_sets_;
    Grants& grants_;
    Fences& fences_;
    Turns& turns_;
    Runs& runs_;
    Cuts& cuts_;
    Suspension& suspension_;
    Holds& holds_;
};

}  // namespace opus::controller
