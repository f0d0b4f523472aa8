// What every room of the manager's core may look at: its ranks with their communicators and launches, and the call being served.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "manager/core/core.h"
#include "manager/core/rank.h"

namespace opus::manager {

struct World {
    World(std::string node_name, CoreOptions core_options)
        : node(std::move(node_name)), options(std::move(core_options)) {}

    std::string node;
    CoreOptions options;
    Counters counters;
    std::map<RankId, Rank> ranks;

    TimeNs now = 0;
    std::int64_t realtime = 0;
    Actions* out = nullptr;
};

std::string name_of(const wire::LocalLaunch& launch);

}  // namespace opus::manager
