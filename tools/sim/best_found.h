// The best schedule of circuits that is found by trying, for somebody who knows the whole job, with one circuit a pair
// of GPUs or as many as their ports allow; and a time that no schedule can be shorter than. Deterministic.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tools/sim/serial_schedule.h"
#include "tools/sim/task_graph.h"

namespace opus::sim {

struct SearchOptions {
    std::uint32_t learned = 2;   // iterations that do not count
    std::uint32_t trials = 600;  // schedules that are played while better ones are looked for
    std::uint32_t horizon = 5;   // iterations that are played meanwhile
    bool sparing = false;        // one circuit a pair will do, where that is better than all that ports allow
    bool both_cores = false;     // both are looked for beside each other
};

struct FoundSchedule {
    double iteration_ms = 0, held_ms = 0;  // of an iteration
    std::vector<SerialSchedule::Begun> uses;
    std::vector<replay::HeldOperation> held;  // in iterations that count; without their steps, which are
    std::vector<std::string> names;           // these
};

// A run that is being played beside the search: waits for it.
using LaterOrder = std::function<const replay::DryRun*()>;

// `orders`: when the launches of other runs of the job began, by rank; the search begins with each of them, and with
// `last` behind them, which any thread may call.
FoundSchedule best_found(const JobMap& map, std::uint32_t ports, std::int64_t dark_ns,
                         const replay::DryRunOptions& dry_run_options, const std::vector<const replay::DryRun*>& orders,
                         const LaterOrder& last, const SearchOptions& options);

// What an iteration lasts at least: by the moments that come after each other, with the dark time between any two uses
// of a GPU for different circuits. Between meetings of all ranks; 0 where a job has none.
double least_iteration_ms(const JobMap& map, std::uint32_t ports, std::int64_t dark_ns,
                          const replay::DryRunOptions& dry_run_options, bool sparing, double at_most_ms);

}  // namespace opus::sim
