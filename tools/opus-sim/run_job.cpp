#include "tools/opus-sim/run_job.h"

#include <algorithm>
#include <atomic>
#include <thread>

#include "tools/opus-sim/fold_rails.h"
#include "tools/sim/columns.h"

namespace opus::job {
namespace {

// Beyond so many tasks a schedule takes so long to play that few are, and the bound's arithmetic does not end.
constexpr double kTasksTried = 3e7;
constexpr std::size_t kMostUses = 3000;
constexpr std::uint32_t kSmallWorld = 64;  // beyond, the controller's check of all that it knows would take most of the time

sim::ColumnOptions columns_of(const JobFile& job, const RunOptions& o) {
    sim::ColumnOptions c;
    c.ports = o.ports;
    c.rehearsal.iterations = job.repeats ? std::max(o.iterations, 2u) : 1;
    c.learned = c.rehearsal.iterations / 2;
    c.rehearsal.rings = true;
    c.rehearsal.bytes_per_us = o.out_gbits * 1e3 / 8;
    c.rehearsal.node_bytes_per_us = o.node_gbytes * 1e3;
    c.rehearsal.latency_us = o.out_us, c.rehearsal.node_latency_us = o.node_us;
    c.rehearsal.jitter = o.jitter, c.rehearsal.seed = c.rails.seed = o.seed;
    c.rails.late_ns = static_cast<TimeNs>(o.late_us * 1e3);
    c.rails.guard = o.guard;
    if (job.workload.world() > kSmallWorld) c.rails.check_every = 256;
    return c;
}

Variant variant_of(const sim::Column& c, std::uint32_t iterations, std::uint32_t rails) {
    Variant v;
    v.ended = c.ended, v.iteration_ms = c.iteration_ms, v.held_ms = c.held_ms * rails, v.fault = c.fault;
    v.reconfigurations = static_cast<double>(c.counters.reconfigurations) * rails / iterations;
    const double dark = static_cast<double>(c.counters.dark_hidden_ns + c.counters.dark_exposed_ns);
    v.hidden = dark > 0 ? static_cast<double>(c.counters.dark_hidden_ns) / dark : 0;
    v.crowded = c.counters.crowded * rails, v.unroutable = c.counters.unroutable * rails;
    v.messages = c.frames_up / iterations;
    return v;
}

Point play_point(const replay::Workload& job, std::uint32_t rails, const sim::ColumnOptions& options,
                 const RunOptions& o, const sim::Column& lit, double dark_ms) {
    sim::ColumnOptions c = options;
    c.dark_ns = static_cast<TimeNs>(dark_ms * 1e6);
    Point p;
    p.dark_ms = dark_ms;
    if (o.log) c.rails.log = [&p](const std::string& line) { p.log += line + "\n"; };
    const auto logged = [&](sim::Rails rails, const char* name) {
        if (o.log) p.log += std::string("# ") + name + ", dark time " + std::to_string(dark_ms) + " ms\n";
        return play(job, rails, c);
    };
    const sim::Column demand = logged(sim::Rails::on_demand, "on demand"),
                      ahead = logged(sim::Rails::provisioned, "provisioned");
    p.demand = variant_of(demand, c.rehearsal.iterations, rails),
    p.provisioned = variant_of(ahead, c.rehearsal.iterations, rails);
    if (!o.best || !demand.ended || !ahead.ended) return p;
    std::size_t launches = 0;
    for (const auto& rank : lit.run.ranks) launches += rank.size();
    launches /= c.rehearsal.iterations;
    const double tasks = 4.0 * static_cast<double>(launches) * std::min(5u, c.rehearsal.iterations);
    c.oracle.trials =
        o.trials != 0 ? o.trials : static_cast<std::uint32_t>(std::clamp(kTasksTried / std::max(1.0, tasks), 3.0, 600.0));
    // Beside the orders of other runs, which are among those tried, what they took counts.
    const sim::Known known = play_known(job, {&lit, &demand, &ahead}, c, launches < kMostUses);
    p.best_ms = std::min({known.best.iteration_ms, demand.iteration_ms, ahead.iteration_ms});
    p.bound_ms = std::min(known.least_ms, p.best_ms);
    return p;
}

}  // namespace

Run run_job(const JobFile& job, const RunOptions& o) {
    const sim::ColumnOptions c = columns_of(job, o);
    Run run;
    run.iterations = c.rehearsal.iterations, run.counted = c.rehearsal.iterations - c.learned;
    std::optional<replay::Workload> one;
    if (o.fold && o.jitter == 0 && o.late_us == 0) one = one_rail(job.workload, c.rehearsal);
    if (one) run.rails = job.workload.world() / one->world();
    const replay::Workload& played = one ? *one : job.workload;
    const sim::Column lit = play(played, sim::Rails::lit, c);
    run.electrical = variant_of(lit, c.rehearsal.iterations, run.rails);
    if (!lit.ended) return run;
    if (o.split && job.repeats) run.split = best_static_split(played, o.ports, c.rehearsal);
    run.points.resize(o.dark_ms.size());
    std::atomic<std::size_t> next = 0;
    const auto work = [&] {
        for (std::size_t i = next++; i < run.points.size(); i = next++)
            run.points[i] = play_point(played, run.rails, c, o, lit, o.dark_ms[i]);
    };
    std::vector<std::thread> others;
    for (unsigned i = 1; i < o.at_once && i < run.points.size(); ++i) others.emplace_back(work);
    work();
    for (std::thread& other : others) other.join();
    return run;
}

}  // namespace opus::job
