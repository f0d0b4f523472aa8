#include "test/sim/traffic.h"

#include <algorithm>

#include "test/sim/world.h"

namespace opus::sim {

Traffic::Traffic(World& world, const Scenario& scenario)
    : world_(world),
      s_(scenario),
      flows_(scenario.flows.size()),
      on_pair_(scenario.fabric.gpus.size() * scenario.fabric.gpus.size()) {}

bool Traffic::lit(const FlowPlan& plan) const {
    return std::all_of(plan.pairs.begin(), plan.pairs.end(), [this](PairIndex p) { return world_.plane.lit(p); });
}

void Traffic::join(LaunchIndex launch, std::uint32_t kernel, const std::vector<Part>& parts) {
    const LaunchRun& run = world_.launches[launch];
    for (const Part& part : parts) {
        Flow& flow = flows_[part.flow];
        const FlowPlan& plan = s_.flows[part.flow];
        flow.launches.push_back(launch);
        flow.kernels.push_back(kernel);
        flow.free |= run.free() || run.is_unheld(part);
        if (part.sends) flow.sender = launch, flow.sender_kernel = kernel;
        if (part.sends && plan.eager) {  // into a buffer of the proxy's
            flow.sender_through = true;
            world_.after(plan.sender_ns, Kind::part_done, launch, kernel);
        }
        if (flow.launches.size() == plan.members) start(part.flow);
    }
}

void Traffic::start(FlowIndex f) {
    Flow& flow = flows_[f];
    flow.active = true;
    flow.since = world_.now;
    for (const PairIndex p : s_.flows[f].pairs) on_pair_[p].push_back(f);
    update(f);
}

void Traffic::light_changed(PairIndex pair) {
    for (const FlowIndex f : on_pair_[pair]) update(f);
}

// Takes up what has come so far, and says when the next thing happens if all stays as it is.
void Traffic::update(FlowIndex f) {
    Flow& flow = flows_[f];
    const FlowPlan& plan = s_.flows[f];
    if (flow.moving) flow.progress += world_.now - flow.since;
    flow.since = world_.now;
    flow.moving = flow.free || lit(plan);
    ++flow.version;
    if (!flow.moving) return;
    const bool two_ends = flow.sender != kNone && !flow.sender_through;
    const TimeNs next = two_ends && plan.sender_ns < plan.transfer_ns ? plan.sender_ns : plan.transfer_ns;
    world_.after(std::max<TimeNs>(next - flow.progress, 0), Kind::flow, f, flow.version);
}

void Traffic::advance(FlowIndex f, std::uint64_t version) {
    Flow& flow = flows_[f];
    if (flow.version != version || flow.done) return;
    const FlowPlan& plan = s_.flows[f];
    flow.progress += world_.now - flow.since;
    flow.since = world_.now;
    if (flow.sender != kNone && !flow.sender_through && flow.progress >= plan.sender_ns) {
        flow.sender_through = true;
        world_.after(0, Kind::part_done, flow.sender, flow.sender_kernel);
        if (flow.progress < plan.transfer_ns) return update(f);
    }
    flow.done = true;
    flow.active = false;
    for (const PairIndex p : plan.pairs) std::erase(on_pair_[p], f);
    TimeNs later = 0;
    for (std::size_t i = 0; i < flow.launches.size(); ++i) {
        if (flow.launches[i] == flow.sender) continue;
        world_.after(later, Kind::part_done, flow.launches[i], flow.kernels[i]);
        later += 700;
    }
}

}  // namespace opus::sim
