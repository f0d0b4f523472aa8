// A job: its ranks, what is learned of it, and the plan that it follows. A plain record.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string_view>

#include "controller/plan/course.h"
#include "controller/plan/learner.h"

namespace opus::controller {

using plan::RankName;

struct Job {
    std::string_view name;  // by which Jobs keeps it
    std::set<RankName> ranks;
    std::unique_ptr<plan::Follower> follower;
    std::unique_ptr<plan::Learner> learner;           // what it does, and which plan it is to follow
    std::uint64_t thought = 0;                        // the last Think for it
    std::unique_ptr<plan::Course> course;             // the plan that is followed; none: it goes by demand
    struct Waiting {                                  // a complete gang, for its turn
        std::uint64_t gang = 0;
        TimeNs until = 0;  // then it goes by demand
    };
    std::map<plan::Instance, Waiting> waiting;
    std::map<std::size_t, Key> unrested;  // by plan::Lap::tied: of which light was not at rest when it was looked at last
};

}  // namespace opus::controller
