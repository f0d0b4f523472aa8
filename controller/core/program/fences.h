// Fences: which port is at fault, which switch, and what becomes of it.
#pragma once

#include <set>
#include <string>

#include "controller/core/room.h"

namespace opus::controller {

class ChangeSets;
class Gangs;
class Holds;
class Jobs;
class Runs;
class Schedule;

class Fences : Room {
public:
    Fences(World& world, Rooms& rooms);

    void handle(const CtlFence& e);
    void handle(const CtlUnfence& e);

    // What came of a change set.
    void not_carried_out(const Op& op);
    void carried_out(const Op& op);
    void judge_suspects(SwitchIndex s);
    void trust(PortId p);

    TimeNs rests_until(const Plan& plan) const;
    bool is_drained(PairId e) const;  // a port of its circuits is fenced by hand

    void trial_due(PortId p);
    void try_ports();    // at the end of a step
    void drain_ports();  // likewise

private:
    void blame(PortId p, const Suspect& suspect);
    void fence(PortId p, FencedBy by, const std::string& why);
    void unfence(PortId p, const std::string& why);
    void try_later(PortId p, TimeNs not_before = 0);
    bool nobody_runs(GpuId gpu) const;
    bool free_to_try(PortId p) const;

    std::set<PortId> to_try_;   // at the end of this step, if nobody does
    std::set<PortId> by_hand_;  // fenced by an operator

    Gangs& gangs_;
    Schedule& schedule_;
    ChangeSets& change_sets_;
    Runs& runs_;
    Holds& holds_;
    Jobs& jobs_;
};

}  // namespace opus::controller
