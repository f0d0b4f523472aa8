// What is hidden of the dark on jobs that nobody had in mind: drawn ones (opus-replay generate layered), in two halves by
// seed; a row for those that do the same in each iteration, and one for those that do not (evaluation, checkpoints, steps of
// the optimizer now and then). Rules and constants may be looked at on `tune`; what counts is `judge`. In virtual time; a table.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <thread>

#include "tools/replay/generate.h"
#include "tools/replay/layered_shape.h"
#include "tools/sim/variants.h"

namespace {

using namespace opus::sim;

struct Noise {
    const char* name;
    double jitter, late_us;
};
constexpr Noise kNoises[] = {{"quiet", 0, 0}, {"2 %", 0.02, 300}, {"5 %", 0.05, 300}};

struct Options {
    std::uint64_t from = 1, to = 24;
    std::string half = "tune";
    std::vector<double> darks{10, 50};
    std::vector<std::string> noises{"quiet", "5 %"};
    double scale_bytes = 1.0 / 1024;
    unsigned jobs = 2;
    bool each = false, log = false;
    VariantOptions variant;
};

struct Result {
    std::uint64_t seed = 0;
    std::string fault;
    double lit_ms = 0, demand_ms = 0, ahead_ms = 0, best_ms = 0;
    std::uint64_t demands = 0;

    double hidden() const { return demand_ms > best_ms ? 100 * (demand_ms - ahead_ms) / (demand_ms - best_ms) : 100; }
    // Where the best schedule saves next to nothing, a share of it says nothing.
    bool counts() const { return fault.empty() && demand_ms - best_ms > 0.005 * demand_ms; }
    double over(double ms) const { return 100 * (ms / lit_ms - 1); }
};

Result play_one(std::uint64_t seed, VariantOptions variant, bool log) {
    Result r;
    r.seed = seed;
    opus::replay::GenerateOptions g;
    g.seed = seed;
    const opus::replay::Workload job = opus::replay::generate("layered", g);
    const PlayedVariant lit = play(job, Rails::lit, variant), demand = play(job, Rails::on_demand, variant);
    if (log) variant.rails.log = [](const std::string& line) { std::printf("    %s\n", line.c_str()); };
    const PlayedVariant ahead = play(job, Rails::provisioned, variant);
    variant.rails.log = nullptr;
    for (const PlayedVariant* c : {&lit, &demand, &ahead})
        if (!c->ended || !c->fault.empty()) r.fault = c->ended ? c->fault : "came to a halt";
    if (!r.fault.empty()) return r;
    r.lit_ms = lit.iteration_ms, r.demand_ms = demand.iteration_ms, r.ahead_ms = ahead.iteration_ms;
    r.demands = ahead.counters.demands;
    r.best_ms = std::min({play_known(job, {&demand, &ahead}, variant).best.iteration_ms, r.demand_ms, r.ahead_ms});
    return r;
}

double at(std::vector<double> values, double part) {
    if (values.empty()) return 0;
    std::sort(values.begin(), values.end());
    return values[static_cast<std::size_t>(part * static_cast<double>(values.size() - 1))];
}

bool is_fixed(std::uint64_t seed) {
    const auto shape = opus::replay::draw_layered(seed);
    return shape.optimizer_every == 1 && shape.evaluate_every == 0 && shape.checkpoint_every == 0;
}

std::vector<Result> play_all(const Options& o, const Noise& noise, double dark_ms) {
    VariantOptions variant = o.variant;
    variant.dry_run.bytes_per_us /= o.scale_bytes;
    variant.dry_run.jitter = noise.jitter;
    variant.rails.late_ns = static_cast<opus::TimeNs>(noise.late_us * 1e3);
    variant.rails.seed = variant.dry_run.seed;
    variant.dark_ns = static_cast<opus::TimeNs>(dark_ms * 1e6);
    std::vector<Result> results;
    for (std::uint64_t s = o.from; s <= o.to; ++s)
        if (o.half == "all" || (s % 2 == 0) == (o.half == "tune")) results.emplace_back().seed = s;
    std::atomic<std::size_t> next = 0;
    const auto work = [&] {
        for (std::size_t i = next++; i < results.size(); i = next++)
            results[i] = play_one(results[i].seed, variant, o.log);
    };
    std::vector<std::thread> others;
    for (unsigned i = 1; i < o.jobs; ++i) others.emplace_back(work);
    work();
    for (std::thread& other : others) other.join();
    return results;
}

void print_row(const Options& o, const Noise& noise, double dark_ms, bool fixed, const std::vector<Result>& all) {
    std::vector<Result> results;
    std::ranges::copy_if(all, std::back_inserter(results), [&](const Result& r) { return is_fixed(r.seed) == fixed; });
    if (results.empty()) return;
    std::vector<double> hidden, demand, ahead, best;
    std::size_t slower = 0, faults = 0;
    for (const Result& r : results) {
        faults += !r.fault.empty();
        if (o.each)
            std::printf("  %llu: lit %.1f ms, on demand %+.1f %%, provisioned %+.1f %%, best found %+.1f %%: %.0f %% hidden, %llu asked for %s\n",
                        static_cast<unsigned long long>(r.seed), r.lit_ms, r.over(r.demand_ms), r.over(r.ahead_ms),
                        r.over(r.best_ms), r.hidden(), static_cast<unsigned long long>(r.demands), r.fault.c_str());
        if (!r.fault.empty()) continue;
        slower += r.ahead_ms > 1.005 * r.demand_ms;
        demand.push_back(r.over(r.demand_ms)), ahead.push_back(r.over(r.ahead_ms)), best.push_back(r.over(r.best_ms));
        if (r.counts()) hidden.push_back(r.hidden());
    }
    double mean = 0;
    for (const double h : hidden) mean += h / static_cast<double>(hidden.size());
    std::printf("| %s | %g | %s | %zu of %zu | %.0f | %.0f, %.0f, %.0f, %.0f | %.1f, %.1f, %.1f | %zu |%s\n",
                noise.name, dark_ms, fixed ? "fixed" : "changing", hidden.size(), results.size(), mean, at(hidden, 0.5),
                at(hidden, 0.25), at(hidden, 0.1), at(hidden, 0), at(demand, 0.5), at(ahead, 0.5), at(best, 0.5),
                slower, faults != 0 ? (" " + std::to_string(faults) + " at fault").c_str() : "");
    std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
    Options o;
    o.variant.learned = 10;
    o.variant.dry_run.iterations = 20;
    o.variant.rails.guard = true;
    CLI::App app{"What is hidden of the dark on drawn jobs, of what the best schedule that is found hides."};
    app.add_option("--half", o.half, "even seeds, odd seeds")->check(CLI::IsMember({"tune", "judge", "all"}));
    app.add_option("--from", o.from, "seed of the first job");
    app.add_option("--to", o.to, "seed of the last job");
    app.add_option("--dark-ms", o.darks, "dark times");
    app.add_option("--noise", o.noises, "computation up to so much longer, and launches seen up to 0.3 ms late")
        ->check(CLI::IsMember({"quiet", "2 %", "5 %"}));
    app.add_option("--iterations", o.variant.dry_run.iterations);
    app.add_option("--learned", o.variant.learned, "iterations that do not count");
    app.add_option("--slower", o.variant.dry_run.slower, "computation lasts longer by such a part of it, from --slower-from on");
    app.add_option("--slower-from", o.variant.dry_run.slower_from, "iteration, counted from 0");
    app.add_option("--scale-bytes", o.scale_bytes);
    app.add_option("--ports", o.variant.ports);
    app.add_option("--trials", o.variant.search.trials, "schedules that are played in search of the best");
    app.add_option("--seed", o.variant.dry_run.seed, "of the noise");
    app.add_option("--jobs", o.jobs, "at one time");
    app.add_flag("--guard,!--no-guard", o.variant.rails.guard);
    app.add_flag("--runs,!--no-runs", o.variant.rails.runs,
                 "launches start unasked as far as the plan keeps their light");
    app.add_flag("--log", o.log, "what the cores say, of provisioned");
    app.add_flag("--each", o.each, "a line for each job");
    CLI11_PARSE(app, argc, argv);
    if (o.variant.dry_run.iterations <= o.variant.learned) {
        std::fprintf(stderr, "bench_hidden: --iterations %u: more than --learned %u are needed\n",
                     o.variant.dry_run.iterations, o.variant.learned);
        return 2;
    }
    std::printf("Half %s, seeds %llu to %llu, %u ports.\n\n", o.half.c_str(), static_cast<unsigned long long>(o.from),
                static_cast<unsigned long long>(o.to), o.variant.ports);
    std::printf(
        "| noise | dark, ms | structure | jobs with something to hide | hidden of the best found: mean, %% | median, "
        "quarter, tenth, worst "
        "| over lit, median: on demand, provisioned, best found, %% | slower than on demand |\n");
    std::printf("| --- | ---: | --- | ---: | ---: | ---: | ---: | ---: |\n");
    for (const Noise& noise : kNoises)
        for (const double dark : o.darks)
            if (std::find(o.noises.begin(), o.noises.end(), noise.name) != o.noises.end()) {
                const auto results = play_all(o, noise, dark);
                for (const bool fixed : {true, false}) print_row(o, noise, dark, fixed, results);
            }
    return 0;
}
