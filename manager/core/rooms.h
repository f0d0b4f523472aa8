// All rooms of the manager's core.
#pragma once

#include "manager/core/early_releases.h"
#include "manager/core/holds.h"
#include "manager/core/launches.h"
#include "manager/core/members.h"
#include "manager/core/reports.h"
#include "manager/core/runs.h"
#include "manager/core/session.h"

namespace opus::manager {

struct Rooms {
    explicit Rooms(World& world)
        : members(world, *this),
          launches(world, *this),
          runs(world, *this),
          early_releases(world, *this),
          reports(world, *this),
          session(world, *this),
          holds(world, *this) {}

    Members members;
    Launches launches;
    Runs runs;
    EarlyReleases early_releases;
    Reports reports;
    Session session;
    Holds holds;
};

}  // namespace opus::manager
