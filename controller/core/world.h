// What all rooms of the core share, and may read and change: the fabric, what is known of it, who is there, and the
// step that is being made. What one room alone needs is in that room.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "controller/core/core.h"
#include "controller/core/membership/comm_table.h"
#include "controller/core/membership/node.h"
#include "controller/core/schedule/inventory.h"
#include "controller/core/schedule/planner.h"
#include "controller/core/timers.h"

namespace opus::controller {

struct World {
    World(const Fabric& fabric, const CoreOptions& options);

    Rank* rank_of(NodeIndex node, RankId rank);
    Launch* launch_of(const LaunchId& id);
    std::string name(GpuId gpu) const { return fabric.gpus[gpu].name; }
    std::string name(const LaunchId& id) const;
    std::string name_of_member(const Comm& comm, std::uint32_t slot) const;

    // Told at the end of the step: verdicts (NodeState::verdicts), where its ports lead.
    void owe(NodeIndex node) { owed.insert(node); }
    void owe_steering(NodeIndex node) {
        nodes[node].tell = true;
        owed.insert(node);
    }

    const Fabric& fabric;
    CoreOptions options;
    TimeNs now = 0;
    std::uint64_t step = 0;  // events so far
    std::uint64_t mark = 0;  // of the last walk over launches, keys or communicators: what bears it has been looked at
    Actions* out = nullptr;  // of this step
    Counters counters;
    Timers timers;
    std::set<NodeIndex> owed;

    Inventory inventory;
    Planner planner;
    CommTable comms;
    std::vector<NodeState> nodes;
};

}  // namespace opus::controller
