// All rooms of the core. Constructors are in rooms.cpp: there is said who knows whom.
#pragma once

#include "controller/core/explain.h"
#include "controller/core/gangs/gangs.h"
#include "controller/core/gangs/launches.h"
#include "controller/core/leases/cuts.h"
#include "controller/core/leases/runs.h"
#include "controller/core/membership/creation.h"
#include "controller/core/membership/joined.h"
#include "controller/core/membership/node_sessions.h"
#include "controller/core/membership/registration.h"
#include "controller/core/program/change_sets.h"
#include "controller/core/program/fences.h"
#include "controller/core/program/grants.h"
#include "controller/core/program/switches.h"
#include "controller/core/provision/hidden.h"
#include "controller/core/provision/jobs.h"
#include "controller/core/provision/turns.h"
#include "controller/core/recovery/adoption.h"
#include "controller/core/recovery/holds.h"
#include "controller/core/recovery/suspension.h"
#include "controller/core/requests.h"
#include "controller/core/schedule/schedule.h"

namespace opus::controller {

struct Rooms {
    explicit Rooms(World& world);

    // Who is there.
    NodeSessions node_sessions;
    Registration registration;
    Creation creation;
    Joined joined;
    // What a launch goes through.
    Launches launches;
    Gangs gangs;
    Schedule schedule;
    ChangeSets change_sets;
    Switches switches;
    Grants grants;
    // What nobody has asked for yet.
    Jobs jobs;
    Turns turns;
    Hidden hidden;
    Runs runs;
    Cuts cuts;
    // What goes wrong.
    Suspension suspension;
    Holds holds;
    Adoption adoption;
    Fences fences;
    // What people do and ask.
    Requests requests;
    Explain explain;
};

}  // namespace opus::controller
