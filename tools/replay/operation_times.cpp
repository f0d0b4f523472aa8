#include <algorithm>

#include "tools/replay/dry_run.h"

namespace opus::replay {
namespace {

// Of a ring of n members: the steps one after the other, and how often the bytes of a step pass each link. The bytes of
// a Step are what each gives (all_gather, gather), else the whole.
struct RingCost {
    double steps = 1, passes = 1;
};

RingCost ring_cost(StepKind kind, double n) {
    switch (kind) {
        case StepKind::all_reduce: return {2 * (n - 1), 2 * (n - 1) / n};
        case StepKind::all_gather:
        case StepKind::gather: return {n - 1, n - 1};
        case StepKind::reduce_scatter:
        case StepKind::all_to_all:
        case StepKind::scatter: return {n - 1, (n - 1) / n};
        case StepKind::reduce:
        case StepKind::broadcast: return {n - 1, 1};
        default: return {};
    }
}

}  // namespace

double ring_passes(StepKind kind, double members) { return ring_cost(kind, members).passes; }

OperationTimes::OperationTimes(const Workload& workload, const DryRunOptions& options)
    : workload_(workload), options_(options) {
    if (!options.rings && options.node_bytes_per_us == 0) return;
    for (const Comm& comm : workload.comms) {
        std::vector<Group>& groups = groups_.emplace_back();
        std::vector<std::uint32_t>& of = group_of_.emplace_back(workload.world(), kNobody);
        for (const std::vector<std::uint32_t>& ranks : comm.groups) {
            const std::uint32_t node = workload.places[ranks.front()].node;
            const bool crosses =
                std::any_of(ranks.begin(), ranks.end(), [&](std::uint32_t r) { return workload.places[r].node != node; });
            for (const std::uint32_t r : ranks) of[r] = static_cast<std::uint32_t>(groups.size());
            groups.push_back({static_cast<std::uint32_t>(ranks.size()) * comm.gpus_each, crosses});
        }
    }
}

std::int64_t OperationTimes::ns(const Step& step, std::uint32_t rank, double length, double share) const {
    double bytes = static_cast<double>(step.bytes) * length, latency_us = options_.latency_us;
    double bytes_per_us = options_.bytes_per_us * share;
    if (!groups_.empty()) {
        const std::uint32_t number = group_of_[step.comm][rank];
        const Group& group = groups_[step.comm][number];
        const bool transfer = step.kind == StepKind::send || step.kind == StepKind::recv;
        const bool crosses = transfer ? workload_.places[workload_.comms[step.comm].groups[number][step.peer]].node !=
                                            workload_.places[rank].node
                                      : group.crosses;
        if (!crosses && options_.node_bytes_per_us != 0)
            bytes_per_us = options_.node_bytes_per_us, latency_us = options_.node_latency_us;
        if (options_.rings && !transfer) {
            const RingCost cost = ring_cost(step.kind, group.members);
            bytes *= cost.passes, latency_us *= cost.steps;
        }
    }
    return static_cast<std::int64_t>((latency_us + bytes / bytes_per_us) * 1e3);
}

}  // namespace opus::replay
