#include "tools/sim/variants.h"

#include <algorithm>

#include "tools/sim/job_map.h"

namespace opus::sim {
namespace {

void summarise(replay::DryRun run, std::uint32_t learned, PlayedVariant& variant) {
    const replay::DryRun& r = run;
    variant.ended = r.ended;
    if (!r.ended) return;
    const std::vector<std::int64_t> ends = r.ends();
    if (ends.size() <= learned) return;
    variant.total_ms = static_cast<double>(ends.back()) / 1e6;
    const auto counted = static_cast<double>(ends.size() - learned);
    const std::int64_t begin = learned == 0 ? 0 : ends[learned - 1];
    variant.iteration_ms = static_cast<double>(ends.back() - begin) / 1e6 / counted;
    for (const replay::HeldOperation& h : r.held) {
        if (h.iteration < learned) continue;
        variant.held_ms += static_cast<double>(h.begin_ns - h.full_ns) / 1e6 / counted;
        variant.held.push_back(h);
        variant.names.push_back(h.step->name);
        variant.held.back().step = nullptr;  // of the dry run's steps, which go
    }
    variant.run = std::move(run);
    for (auto& rank : variant.run.ranks)
        for (replay::DryRunLaunch& launch : rank) launch.operations.clear();
    variant.run.steps.clear();
    variant.run.held.clear();
}

}  // namespace

PlayedVariant play(const replay::Workload& workload, Rails rails, const VariantOptions& options) {
    PlayedVariant variant;
    replay::DryRunOptions dry_run_options = options.dry_run;
    dry_run_options.gates = nullptr;
    if (rails == Rails::lit) {
        summarise(dry_run(workload, dry_run_options), options.learned, variant);
        return variant;
    }
    JobMap map(workload, options.ports, options.dark_ns, options.dry_run.bytes_per_us, options.packet_share);
    RailsOptions how = options.rails;
    how.provision = rails == Rails::provisioned;
    how.runs &= rails == Rails::provisioned;
    SwitchedRails gates(map, how);
    dry_run_options.gates = &gates;
    summarise(dry_run(workload, dry_run_options), options.learned, variant);
    variant.counters = gates.counters();
    variant.frames_up = static_cast<double>(gates.frames_up());
    variant.frames_down = static_cast<double>(gates.frames_down());
    variant.decided = static_cast<double>(gates.decided());
    variant.turns = std::move(gates.turns());
    variant.phases = gates.phases();
    variant.fault = gates.fault();
    return variant;
}

Known play_known(const replay::Workload& workload, const std::vector<const PlayedVariant*>& variants,
                 const VariantOptions& options, bool bound, const std::shared_future<PlayedVariant>& last) {
    const JobMap map(workload, options.ports, options.dark_ns, options.dry_run.bytes_per_us, options.packet_share);
    SearchOptions how = options.search;
    how.learned = options.learned;
    how.sparing = true;
    replay::DryRunOptions dry_run_options = options.dry_run;
    dry_run_options.gates = nullptr;
    std::vector<const replay::DryRun*> orders;
    orders.reserve(variants.size());
    for (const PlayedVariant* c : variants) orders.push_back(&c->run);
    LaterOrder later;
    if (last.valid()) later = [last] { return &std::shared_future<PlayedVariant>(last).get().run; };
    Known known;
    known.best = best_found(map, options.ports, options.dark_ns, dry_run_options, orders, later, how);
    if (dry_run_options.jitter == 0 && dry_run_options.uneven == 0 && dry_run_options.slower == 0 && bound)
        known.least_ms =
            least_iteration_ms(map, options.ports, options.dark_ns, dry_run_options, how.sparing, known.best.iteration_ms);
    return known;
}

double hidden_share(const PlayedVariant& on_demand, const PlayedVariant& ahead, double best_ms) {
    const double can = on_demand.iteration_ms - best_ms;
    return can > 0 ? (on_demand.iteration_ms - ahead.iteration_ms) / can : 1;
}

}  // namespace opus::sim
