#include "tools/opus-sim/run_job.h"

#include <algorithm>
#include <atomic>
#include <future>
#include <set>
#include <stdexcept>
#include <thread>

#include "tools/opus-sim/fold_rails.h"
#include "tools/opus-sim/job_launches.h"
#include "tools/opus-sim/number_text.h"
#include "tools/sim/variants.h"

namespace opus::job {
namespace {

// Beyond so many tasks a schedule takes so long to play that few are, and the bound's arithmetic does not end.
constexpr double kTasksTried = 3e7;
constexpr std::size_t kMostUses = 3000;
// Beyond, the controller's check of all that it knows would take most of the time, and one rail stands for those that are alike.
constexpr std::uint32_t kSmallWorld = 64;

VariantFigures figures_of(const sim::PlayedVariant& c, std::uint32_t iterations, std::uint32_t rails) {
    VariantFigures v;
    v.ended = c.ended, v.iteration_ms = c.iteration_ms, v.held_ms = c.held_ms * rails, v.fault = c.fault;
    v.reconfigurations = static_cast<double>(c.counters.reconfigurations) * rails / iterations;
    const double dark = static_cast<double>(c.counters.dark_hidden_ns + c.counters.dark_exposed_ns);
    v.hidden = dark > 0 ? static_cast<double>(c.counters.dark_hidden_ns) / dark : 0;
    v.crowded = c.counters.crowded * rails, v.unroutable = c.counters.unroutable * rails;
    v.messages = c.frames_up / iterations;
    return v;
}

std::size_t launches_of(const sim::PlayedVariant& variant) {
    std::size_t launches = 0;
    for (const auto& rank : variant.run.ranks) launches += rank.size();
    return launches;
}

Point play_point(const replay::Workload& job, std::uint32_t rails, const sim::VariantOptions& options, const RunOptions& o,
                 const sim::PlayedVariant& lit, const JobLaunches* seen, double split_ms, double dark_ms) {
    sim::VariantOptions c = options;
    c.rails.keep_turns = seen != nullptr;
    c.dark_ns = static_cast<TimeNs>(dark_ms * 1e6);
    Point p;
    p.dark_ms = dark_ms;
    const auto logged = [&](sim::Rails which, const char* name, std::string& log) {
        sim::VariantOptions with = c;
        if (o.log) log = std::string("# ") + name + ", dark time " + std::to_string(dark_ms) + " ms\n";
        if (o.log) with.rails.log = [&log](const std::string& line) { log += line + "\n"; };
        return play(job, which, with);
    };
    const bool both_cores = o.at_once > o.dark_ms.size();
    std::string second;
    const std::shared_future<sim::PlayedVariant> beside =
        std::async(both_cores ? std::launch::async : std::launch::deferred,
                   [&] { return logged(sim::Rails::provisioned, "provisioned", second); });
    const sim::PlayedVariant demand = logged(sim::Rails::on_demand, "on demand", p.log);
    sim::Known known;
    if (o.best && demand.ended) {
        const std::size_t launches = launches_of(lit) / c.dry_run.iterations;
        const double tasks = 4.0 * static_cast<double>(launches) * std::min(5u, c.dry_run.iterations);
        sim::VariantOptions with = c;  // which the other run reads meanwhile
        with.search.both_cores = both_cores;
        with.search.trials =
            o.trials != 0 ? o.trials
                          : static_cast<std::uint32_t>(std::clamp(kTasksTried / std::max(1.0, tasks), 3.0,
                                                                  static_cast<double>(std::max(3u, o.trials_most))));
        known = play_known(job, {&lit, &demand}, with, launches < kMostUses, beside);
    }
    const sim::PlayedVariant& ahead = beside.get();
    p.log += second;
    p.demand = figures_of(demand, c.dry_run.iterations, rails),
    p.provisioned = figures_of(ahead, c.dry_run.iterations, rails);
    if (seen != nullptr) {
        p.demand_answers = answers_of(*seen, c.dry_run, demand, c.learned);
        p.provisioned_answers = answers_of(*seen, c.dry_run, ahead, c.learned);
    }
    if (!o.best || !demand.ended || !ahead.ended) return p;
    // Beside the orders of other runs, which are among those tried, what they took counts.
    p.best_ms = std::min({known.best.iteration_ms, demand.iteration_ms, ahead.iteration_ms});
    if (split_ms > 0) p.best_ms = std::min(p.best_ms, split_ms);
    p.bound_ms = std::min(known.least_ms, p.best_ms);
    return p;
}

std::optional<double> packet_share(const RunOptions& o) {
    if (!o.packet_gbits) return std::nullopt;
    return *o.packet_gbits / o.out_gbits;
}

Unserved unserved_of(const JobLaunches& launches, bool carried) {
    std::set<std::string> names;
    double all = 0, unserved = 0;
    const replay::Workload& w = launches.workload();
    for (std::uint32_t rank = 0; rank < w.world(); ++rank)
        for (const replay::Step& step : launches.steps(launches.role_of(rank))) {
            if (!is_operation(step.kind) || step.kind == replay::StepKind::recv || !launches.crosses(step, rank))
                continue;
            const double bytes = step.first_only ? 0 : launches.sent_bytes(step, rank, 1) / step.every;
            all += bytes;
            if (launches.all_pairs()[launches.pairs(step, rank)].served) continue;
            unserved += bytes;
            names.insert(launches.labels()[launches.label(step, rank)]);
        }
    return {{names.begin(), names.end()}, all > 0 ? unserved / all : 0, carried};
}

std::vector<std::uint32_t> ports_to_try(const RunOptions& o, const Run& run, const sim::PlayedVariant& lit) {
    constexpr std::size_t kFewLaunches = 200'000;  // beyond, only what is asked for
    constexpr std::uint32_t kMostPorts = 8;
    std::set<std::uint32_t> ports(o.try_ports.begin(), o.try_ports.end());
    if (ports.empty()) {
        if (launches_of(lit) > kFewLaunches) return {};
        ports = {1, 2, 4};
        if (run.split.needed_ports <= kMostPorts) ports.insert(run.split.needed_ports);
    }
    ports.erase(0), ports.erase(o.ports);
    return {ports.begin(), ports.end()};
}

void play_alternative(const replay::Workload& job, const sim::VariantOptions& options, const RunOptions& o,
                      bool repeats, Alternative& a) {
    sim::VariantOptions c = options;
    c.ports = a.ports;
    if (o.split && repeats) a.split = best_static_split(job, a.ports, c.dry_run, packet_share(o));
    for (const double dark_ms : o.dark_ms) {
        c.dark_ns = static_cast<TimeNs>(dark_ms * 1e6);
        const sim::PlayedVariant demand = play(job, sim::Rails::on_demand, c),
                                 ahead = play(job, sim::Rails::provisioned, c);
        a.points.push_back({dark_ms, demand.ended ? demand.iteration_ms : 0, ahead.ended ? ahead.iteration_ms : 0});
    }
    a.unserved = unserved_of(JobLaunches(job, a.ports, 1), o.packet_gbits.has_value());
}

// Each of so many, several at once.
template <class F>
void each(std::size_t count, unsigned at_once, F&& what) {
    std::atomic<std::size_t> next = 0;
    const auto work = [&] {
        for (std::size_t i = next++; i < count; i = next++) what(i);
    };
    std::vector<std::thread> others;
    for (unsigned i = 1; i < at_once && i < count; ++i) others.emplace_back(work);
    work();
    for (std::thread& other : others) other.join();
}

// The same job under other noise: only how long it takes.
SeedTimes play_seed(const replay::Workload& job, const sim::VariantOptions& options, const RunOptions& o, std::uint64_t seed) {
    sim::VariantOptions c = options;
    c.dry_run.seed = c.rails.seed = seed;
    SeedTimes times;
    times.seed = seed;
    times.electrical_ms = play(job, sim::Rails::lit, c).iteration_ms;
    for (const double dark_ms : o.dark_ms) {
        c.dark_ns = static_cast<TimeNs>(dark_ms * 1e6);
        times.points.push_back(
            {play(job, sim::Rails::on_demand, c).iteration_ms, play(job, sim::Rails::provisioned, c).iteration_ms});
    }
    return times;
}

}  // namespace

sim::VariantOptions variant_options_of(const JobFile& job, const RunOptions& o) {
    sim::VariantOptions c;
    c.ports = o.ports;
    c.dry_run.iterations = job.repeats ? std::max(o.iterations, 2u) : 1;
    c.learned = c.dry_run.iterations / 2;
    c.dry_run.rings = true;
    c.dry_run.bytes_per_us = o.out_gbits * 1e3 / 8;
    c.dry_run.node_bytes_per_us = o.node_gbytes * 1e3;
    c.dry_run.latency_us = o.out_us, c.dry_run.node_latency_us = o.node_us;
    c.dry_run.jitter = o.jitter, c.dry_run.seed = c.rails.seed = o.seed;
    c.rails.late_ns = static_cast<TimeNs>(o.late_us * 1e3);
    c.rails.guard = o.guard;
    c.packet_share = packet_share(o).value_or(1);
    if (job.workload.world() > kSmallWorld) c.rails.check_every = 4 * job.workload.world();
    return c;
}

Run run_job(const JobFile& file, const RunOptions& o) {
    JobFile slowed;
    if (!o.slow.empty()) slowed = file, slowed.workload = with_slow_ranks(file.workload, o.slow);
    const JobFile& job = o.slow.empty() ? file : slowed;
    if (o.packet_gbits && *o.packet_gbits >= o.out_gbits)
        throw std::invalid_argument("--packet-gbits " + number_text("%g", *o.packet_gbits) +
                                    " is no less than --gbits " + number_text("%g", o.out_gbits) +
                                    ": circuits would be for nothing; give less");
    const sim::VariantOptions c = variant_options_of(job, o);
    Run run;
    run.iterations = c.dry_run.iterations, run.counted = c.dry_run.iterations - c.learned;
    std::optional<replay::Workload> one;
    const bool fold = o.fold.value_or(job.workload.world() > kSmallWorld);
    if (fold && o.jitter == 0 && o.late_us == 0) one = one_rail(job.workload, c.dry_run);
    if (one) run.rails = job.workload.world() / one->world();
    const replay::Workload& played = one ? *one : job.workload;
    const sim::PlayedVariant lit = play(played, sim::Rails::lit, c);
    run.electrical = figures_of(lit, c.dry_run.iterations, run.rails);
    if (!lit.ended) return run;
    if (o.split && job.repeats) run.split = best_static_split(played, o.ports, c.dry_run, packet_share(o));
    run.nodes = job.workload.nodes();
    std::optional<JobLaunches> launches;
    if (o.answers) {
        launches.emplace(played, o.ports, c.dry_run.iterations);
        run.labels = launches->labels();
        run.unserved = unserved_of(*launches, o.packet_gbits.has_value());
        run.windows = windows_of(*launches, lit, c.learned);
        run.lit_answers = answers_of(*launches, c.dry_run, lit, c.learned);
    }
    run.points.resize(o.dark_ms.size());
    each(run.points.size(), o.at_once, [&](std::size_t i) {
        run.points[i] = play_point(played, run.rails, c, o, lit, launches ? &*launches : nullptr,
                                   run.split.iteration_ms, o.dark_ms[i]);
    });
    if (o.answers)
        for (const std::uint32_t ports : ports_to_try(o, run, lit)) run.alternatives.emplace_back().ports = ports;
    each(run.alternatives.size(), o.at_once,
         [&](std::size_t i) { play_alternative(played, c, o, job.repeats, run.alternatives[i]); });
    if (o.seeds > 1) run.seeds.resize(o.seeds);
    each(run.seeds.size(), o.at_once, [&](std::size_t i) { run.seeds[i] = play_seed(played, c, o, o.seed + i); });
    return run;
}

}  // namespace opus::job
