// A workload as tasks that wait for each other: what a rehearsal (tools/replay/rehearsal.h) plays, once and for all.
// An operation between nodes is a use of circuits: it begins when its members are there and its light is.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "tools/replay/rehearsal.h"
#include "tools/sim/job_map.h"

namespace opus::sim {

class TaskGraph {
public:
    static constexpr std::uint32_t kNoUse = 0xffffffffu;

    struct Task {
        std::int64_t ns = 0;
        std::uint32_t use = kNoUse;  // it is the beginning of this use
        std::uint32_t waits = 0;     // tasks before it
        std::vector<std::uint32_t> next;
    };
    struct Need {
        GpuPair pair;
        std::uint32_t circuits = 0;
    };
    // Of each pair of an operation. `all`: what the ports of its GPUs can do. `one`: one, and the operation takes as long as
    // that makes it. `least`: one, at full speed; nothing takes less.
    enum class Circuits : std::uint8_t { all, one, least };
    struct Use {
        std::uint32_t task = 0, iteration = 0;
        std::uint32_t number = 0;  // of its kind; the same in each iteration
        std::int64_t ns = 0;       // the longest of its launches, once begun
        std::vector<Need> needs;
        replay::Gates::Name member;  // one of its launches
    };

    TaskGraph(const JobMap& map, std::uint32_t ports, const replay::RehearsalOptions& options, Circuits circuits);

    const std::vector<Task>& tasks() const { return tasks_; }
    const std::vector<Use>& uses() const { return uses_; }
    std::uint32_t numbers() const { return numbers_; }
    std::uint32_t gpus() const { return gpus_; }
    std::uint32_t ports() const { return ports_; }
    // Tasks with which the iterations of the ranks end.
    const std::vector<std::vector<std::uint32_t>>& ends() const { return ends_; }

private:
    friend class TaskGraphBuilder;

    std::vector<Task> tasks_;
    std::vector<Use> uses_;
    std::vector<std::vector<std::uint32_t>> ends_;
    std::uint32_t numbers_ = 0, gpus_ = 0, ports_ = 0;
};

}  // namespace opus::sim
