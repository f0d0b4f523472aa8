// Bytes on their way: a flow moves on only while light passes on every circuit it needs, and resends what
// it lost in the dark, so darkness costs it time and nothing else.
#pragma once

#include <cstdint>
#include <vector>

#include "test/sim/launch_run.h"
#include "test/sim/scenario.h"

namespace opus::sim {

class World;

class Traffic {
public:
    Traffic(World& world, const Scenario& scenario);
    // Parts of a launch that start together: one kernel of its rank's, or connections (kNone).
    void join(LaunchIndex launch, std::uint32_t kernel, const std::vector<Part>& parts);
    void light_changed(PairIndex pair);
    void advance(FlowIndex flow, std::uint64_t version);  // calendar
    bool has_arrived(FlowIndex flow) const { return flows_[flow].done; }
    // Members at the flow so far, for the inspector and for people.
    const std::vector<LaunchIndex>& members(FlowIndex flow) const { return flows_[flow].launches; }
    bool complete(FlowIndex flow) const { return flows_[flow].launches.size() >= s_.flows[flow].members; }

private:
    struct Flow {
        std::vector<LaunchIndex> launches;
        std::vector<std::uint32_t> kernels;  // of these
        LaunchIndex sender = kNone;
        std::uint32_t sender_kernel = kNone;
        TimeNs progress = 0, since = 0;
        std::uint32_t version = 0;
        bool active = false, moving = false, sender_through = false, done = false, free = false;
    };
    void start(FlowIndex f);
    void update(FlowIndex f);
    bool lit(const FlowPlan& plan) const;

    World& world_;
    const Scenario& s_;
    std::vector<Flow> flows_;
    std::vector<std::vector<FlowIndex>> on_pair_;
};

}  // namespace opus::sim
