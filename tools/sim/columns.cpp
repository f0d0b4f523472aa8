#include "tools/sim/columns.h"

#include <algorithm>

#include "tools/sim/clairvoyant.h"
#include "tools/sim/job_map.h"

namespace opus::sim {
namespace {

void summarise(const replay::Rehearsal& r, std::uint32_t learned, Column& column) {
    column.ended = r.ended;
    if (!r.ended) return;
    const auto end_of = [&](std::uint32_t iteration) {
        std::int64_t end = 0;
        for (const auto& ends : r.iterations) end = std::max(end, ends[iteration]);
        return end;
    };
    const auto iterations = static_cast<std::uint32_t>(r.iterations.front().size());
    if (iterations <= learned) return;
    column.total_ms = static_cast<double>(end_of(iterations - 1)) / 1e6;
    const double counted = iterations - learned;
    const std::int64_t begin = learned == 0 ? 0 : end_of(learned - 1);
    column.iteration_ms = static_cast<double>(end_of(iterations - 1) - begin) / 1e6 / counted;
    for (const replay::HeldOperation& h : r.held) {
        if (h.iteration < learned) continue;
        column.held_ms += static_cast<double>(h.begin_ns - h.full_ns) / 1e6 / counted;
        column.held.push_back(h);
        column.names.push_back(h.step->name);
        column.held.back().step = nullptr;  // of the rehearsal, which goes
    }
}

}  // namespace

Column play(const replay::Workload& workload, Rails rails, const ColumnOptions& options) {
    Column column;
    replay::RehearsalOptions rehearsal = options.rehearsal;
    rehearsal.gates = nullptr;
    if (rails == Rails::lit) {
        summarise(rehearse(workload, rehearsal), options.learned, column);
        return column;
    }
    JobMap map(workload, options.ports, options.dark_ns);
    const double iterations = rehearsal.iterations ? rehearsal.iterations : workload.iterations;
    if (rails == Rails::clairvoyant) {
        Clairvoyant gates(map, rehearse(workload, rehearsal), options.dark_ns);
        rehearsal.gates = &gates;
        summarise(rehearse(workload, rehearsal), options.learned, column);
        column.moves = static_cast<double>(gates.moves()) / iterations;
        return column;
    }
    RailsOptions how = options.rails;
    how.provision = rails == Rails::provisioned;
    how.runs &= rails == Rails::provisioned;
    SwitchedRails gates(map, how);
    rehearsal.gates = &gates;
    summarise(rehearse(workload, rehearsal), options.learned, column);
    column.counters = gates.counters();
    column.moves = static_cast<double>(column.counters.circuits_moved) / iterations;
    column.frames = static_cast<double>(gates.frames()) / iterations;
    column.frames_up = static_cast<double>(gates.frames_up());
    column.phases = gates.phases();
    column.fault = gates.fault();
    return column;
}

}  // namespace opus::sim
