#include "tools/sim/columns.h"

#include <algorithm>

#include "tools/sim/job_map.h"

namespace opus::sim {
namespace {

void summarise(replay::DryRun run, std::uint32_t learned, Column& column) {
    const replay::DryRun& r = run;
    column.ended = r.ended;
    if (!r.ended) return;
    const std::vector<std::int64_t> ends = r.ends();
    if (ends.size() <= learned) return;
    column.total_ms = static_cast<double>(ends.back()) / 1e6;
    const auto counted = static_cast<double>(ends.size() - learned);
    const std::int64_t begin = learned == 0 ? 0 : ends[learned - 1];
    column.iteration_ms = static_cast<double>(ends.back() - begin) / 1e6 / counted;
    for (const replay::HeldOperation& h : r.held) {
        if (h.iteration < learned) continue;
        column.held_ms += static_cast<double>(h.begin_ns - h.full_ns) / 1e6 / counted;
        column.held.push_back(h);
        column.names.push_back(h.step->name);
        column.held.back().step = nullptr;  // of the dry run's steps, which go
    }
    column.run = std::move(run);
    for (auto& rank : column.run.ranks)
        for (replay::DryRunLaunch& launch : rank) launch.operations.clear();
    column.run.steps.clear();
    column.run.held.clear();
}

}  // namespace

Column play(const replay::Workload& workload, Rails rails, const ColumnOptions& options) {
    Column column;
    replay::DryRunOptions dry_run_options = options.dry_run;
    dry_run_options.gates = nullptr;
    if (rails == Rails::lit) {
        summarise(dry_run(workload, dry_run_options), options.learned, column);
        return column;
    }
    JobMap map(workload, options.ports, options.dark_ns, options.dry_run.bytes_per_us, options.packet_share);
    RailsOptions how = options.rails;
    how.provision = rails == Rails::provisioned;
    how.runs &= rails == Rails::provisioned;
    SwitchedRails gates(map, how);
    dry_run_options.gates = &gates;
    summarise(dry_run(workload, dry_run_options), options.learned, column);
    column.counters = gates.counters();
    column.frames_up = static_cast<double>(gates.frames_up());
    column.frames_down = static_cast<double>(gates.frames_down());
    column.decided = static_cast<double>(gates.decided());
    column.turns = std::move(gates.turns());
    column.phases = gates.phases();
    column.fault = gates.fault();
    return column;
}

Known play_known(const replay::Workload& workload, const std::vector<const Column*>& columns,
                 const ColumnOptions& options, bool bound, const std::shared_future<Column>& last) {
    const JobMap map(workload, options.ports, options.dark_ns, options.dry_run.bytes_per_us, options.packet_share);
    SearchOptions how = options.search;
    how.learned = options.learned;
    how.sparing = true;
    replay::DryRunOptions dry_run_options = options.dry_run;
    dry_run_options.gates = nullptr;
    std::vector<const replay::DryRun*> orders;
    orders.reserve(columns.size());
    for (const Column* c : columns) orders.push_back(&c->run);
    LaterOrder later;
    if (last.valid()) later = [last] { return &std::shared_future<Column>(last).get().run; };
    Known known;
    known.best = best_found(map, options.ports, options.dark_ns, dry_run_options, orders, later, how);
    if (dry_run_options.jitter == 0 && dry_run_options.uneven == 0 && bound)
        known.least_ms =
            least_iteration_ms(map, options.ports, options.dark_ns, dry_run_options, how.sparing, known.best.iteration_ms);
    return known;
}

double hidden_share(const Column& on_demand, const Column& ahead, double best_ms) {
    const double can = on_demand.iteration_ms - best_ms;
    return can > 0 ? (on_demand.iteration_ms - ahead.iteration_ms) / can : 1;
}

}  // namespace opus::sim
