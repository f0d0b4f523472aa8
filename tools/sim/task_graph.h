// A workload as moments that come so long after each other: what a dry run (tools/replay/dry_run.h) plays, once and for all.
// An operation between nodes is a use of circuits: it begins when its members are there and its light is. What lies between uses
// (computation, events, operations within a node) is in the lengths of edges, but for moments in which several things meet.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "tools/replay/dry_run.h"
#include "tools/sim/job_map.h"

namespace opus::sim {

class TaskGraph {
public:
    static constexpr std::uint32_t kNoUse = 0xffffffffu;

    struct Edge {
        std::uint32_t to = 0;
        std::int64_t ns = 0;  // later at least
    };
    struct Moment {
        std::uint32_t use = kNoUse;  // it is the beginning of this use
        std::uint32_t waits = 0;     // edges that lead to it
        std::uint32_t first_edge = 0, edges = 0;
    };
    struct Need {
        GpuPair pair;
        std::uint32_t circuits = 0;
    };
    // Of each pair of an operation. `all`: what the ports of its GPUs can do. `one`: one, and the operation takes as long as
    // that makes it. `least`: one, at full speed; nothing takes less.
    enum class Circuits : std::uint8_t { all, one, least };
    struct Use {
        std::uint32_t moment = 0, iteration = 0;
        std::uint32_t number = 0;  // of its kind; the same in each iteration
        std::int64_t ns = 0;       // the longest of its launches, once begun
        std::vector<Need> needs;
        replay::Gates::Name member;  // one of its launches
        const replay::Step* step = nullptr;  // the first of that one; lasts as long as the graph
    };

    TaskGraph(const JobMap& map, std::uint32_t ports, const replay::DryRunOptions& options, Circuits circuits);
    TaskGraph(const TaskGraph&) = delete;
    TaskGraph& operator=(const TaskGraph&) = delete;

    const std::vector<Moment>& moments() const { return moments_; }
    std::span<const Edge> edges(std::uint32_t moment) const {
        return {edges_.data() + moments_[moment].first_edge, moments_[moment].edges};
    }
    // Each after those before it.
    std::vector<std::uint32_t> in_order() const;
    const std::vector<Use>& uses() const { return uses_; }
    std::uint32_t numbers() const { return numbers_; }
    std::uint32_t gpus() const { return gpus_; }
    std::uint32_t ports() const { return ports_; }
    // Moments with which the iterations of the ranks end.
    const std::vector<std::vector<std::uint32_t>>& ends() const { return ends_; }

private:
    friend class TaskGraphBuilder;

    std::vector<Moment> moments_;
    std::vector<Edge> edges_;
    std::vector<Use> uses_;
    std::vector<std::vector<std::uint32_t>> ends_;
    std::vector<std::vector<replay::Step>> steps_;  // of each role
    std::uint32_t numbers_ = 0, gpus_ = 0, ports_ = 0;
};

}  // namespace opus::sim
