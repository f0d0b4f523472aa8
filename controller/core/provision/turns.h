// Turns: ports follow the plan of a job, ahead of demand.
#pragma once

#include <optional>
#include <set>
#include <vector>

#include "controller/core/provision/job.h"
#include "controller/core/room.h"

namespace opus::controller {

class ChangeSets;
class Gangs;
class Hidden;
class Jobs;
class Runs;
class Schedule;
class Suspension;

class Turns : Room {
public:
    Turns(World& world, Rooms& rooms);

    void follow(Job& job, plan::Lap lap, const plan::Order& order);
    void drop_course(Job& job);
    void forget(const Job& job);  // it has ended
    void follow_plans();          // at the end of a step
    void look_at(PortId p) {      // then
        if (course_at_[p] != nullptr) due_.insert(p);
    }

    Job* job_of(const Gang& gang);
    std::optional<plan::Instance> planned_use(const Gang& gang);
    TimeNs turn_of(Gang& gang, const plan::Instance& i);
    void wait_turn(Gang& gang, TimeNs until);
    void begin_use(const Gang& gang);
    void begin_use(Job& job, const Key& key);

    // Of the port, by the plan that it follows.
    void lose_turns(PortId p);
    void lit_for_plan(PortId p);
    bool shares_light(const Job& job, const std::vector<PortId>& ports) const;

private:
    struct User {  // the job that was last granted its light, and when that was last another one
        const Job* job = nullptr;
        TimeNs since_ns = 0;
        bool shared = false;
    };
    void use_port(PortId p, Job* job);
    void keep(Job& job, PortId p);
    void wake(const Job& job, const plan::Instance& i);
    bool is_waiting(const plan::Course& course, const plan::Instance& i, const Job::Waiting& waiting);
    void take_turn(Job& job, PortId p);
    std::optional<plan::Course::Turn> turn_at(const Job& job, PortId p) const;
    bool is_joined(PortId p, PortId q) const;
    bool may_turn_for_plan(PortId p, const Job& job, const plan::Instance& use);

    std::vector<Job*> course_at_;  // by port: whose plan it follows
    std::vector<User> users_;      // by port
    std::set<PortId> due_;         // to be looked at at the end of the step

    Gangs& gangs_;
    Schedule& schedule_;
    ChangeSets& change_sets_;
    Jobs& jobs_;
    Hidden& hidden_;
    Runs& runs_;
    Suspension& suspension_;
};

}  // namespace opus::controller
