// Where the dark goes: jobs in virtual time, by the very cores of managers and controller (tools/sim). Prints a
// table of always lit, on demand, provisioned, the best schedule that is found by somebody who knows the future,
// and a bound that none can go below; and, where asked for, every operation that was held.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <fstream>

#include "test/bench/kinds.h"
#include "tools/replay/generate.h"
#include "tools/replay/recorded.h"
#include "tools/sim/variants.h"

namespace {

using namespace opus::sim;

// How long each iteration lasts: what a job loses while its order is learned.
void print_each(const opus::replay::Workload& w, VariantOptions o, const PlayedVariant& lit) {
    const std::vector<std::int64_t> bright = lit.run.ends();
    const auto row = [&](const char* name, const PlayedVariant& c) {
        const std::vector<std::int64_t> ends = c.run.ends();
        std::printf("| %s | %g | %s |", w.name.c_str(), static_cast<double>(o.dark_ns) / 1e6, name);
        for (std::size_t i = 1; i < ends.size(); ++i)
            std::printf(
                " %.2f",
                100.0 * (static_cast<double>(ends[i] - ends[i - 1]) / static_cast<double>(bright[i] - bright[i - 1]) - 1));
        std::printf(" |%s\n", c.fault.c_str());
        std::fflush(stdout);
    };
    row("on demand", play(w, Rails::on_demand, o));
    o.rails.runs = false;
    row("provisioned", play(w, Rails::provisioned, o));
    o.rails.runs = true;
    row("with runs", play(w, Rails::provisioned, o));
}

}  // namespace

int main(int argc, char** argv) {
    std::vector<std::string> kinds{"llama3-8b"};
    std::vector<double> darks{0, 10, 25, 100};
    std::string file;
    double scale_bytes = 1.0 / 1024, jitter = 0, late_us = 0;
    std::uint32_t iterations = 12, every = 0;
    bool recorded = false, held = false, log = false, each = false;
    VariantOptions o;
    o.rails.guard = true;
    opus::replay::GenerateOptions g;
    CLI::App app{"jobs on photonic rails, in virtual time"};
    opus::bench::add_kinds(app, kinds);
    app.add_option("--file", file, "a workload file instead");
    app.add_flag("--recorded", recorded, "it is a recording");
    app.add_option("--dark-ms", darks, "dark times");
    app.add_option("--iterations", iterations);
    app.add_option("--learned", o.learned, "iterations that do not count");
    app.add_option("--ports", o.ports);
    app.add_option("--gpus", g.gpus);
    app.add_option("--nodes", g.nodes);
    app.add_option("--micro-batches", g.micro_batches);
    app.add_option("--optimizer-every", every);
    app.add_option("--scale-bytes", scale_bytes);
    app.add_option("--jitter", jitter, "computation lasts up to so much longer");
    app.add_option("--late-us", late_us, "launches are seen to be reached up to so much later, each by itself");
    app.add_option("--seed", o.dry_run.seed, "of jitter and lateness");
    app.add_option("--trials", o.search.trials, "schedules that are tried in search of the best");
    app.add_flag("--runs,!--no-runs", o.rails.runs, "provisioned grants cover the rest of a phase, or do not");
    app.add_flag("--guard,!--no-guard", o.rails.guard, "a job that is slower for it is not provisioned, or is");
    app.add_flag("--held", held, "every operation that was held in the last iteration");
    app.add_flag("--each", each,
                 "every iteration from the second on, over always lit, in percent, instead of the table");
    app.add_flag("--log", log, "what the cores say, of provisioned");
    CLI11_PARSE(app, argc, argv);
    if (every != 0) g.optimizer_every = every;
    o.dry_run.iterations = iterations;
    o.dry_run.jitter = jitter;
    o.rails.late_ns = static_cast<opus::TimeNs>(late_us * 1e3);
    o.rails.seed = o.dry_run.seed;
    o.dry_run.bytes_per_us /= scale_bytes;
    if (!each)
        std::printf(
            "| job | dark ms | lit ms | on demand | provisioned | best found | bound | hidden of time | hidden of dark "
            "| held ms: demand, provisioned, best found | speculations, used, wrong |\n");
    if (!each) std::printf("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n");
    bool good = true;
    for (const std::string& kind : kinds) {
        opus::replay::Workload w;
        if (!file.empty()) {
            std::ifstream in(file);
            std::vector<opus::replay::WorkloadError> errors;
            w = recorded ? opus::replay::read_recording(in, errors) : opus::replay::read_workload(in, errors);
            for (const auto& e : errors) std::fprintf(stderr, "%s:%u: %s\n", file.c_str(), e.line, e.text.c_str());
            if (!errors.empty()) return 2;
        } else {
            w = opus::replay::generate(kind, g);
        }
        const PlayedVariant lit = play(w, Rails::lit, o);
        if (each) {
            for (const double dark : darks) {
                o.dark_ns = static_cast<opus::TimeNs>(dark * 1e6);
                print_each(w, o, lit);
            }
            continue;
        }
        o.dark_ns = 0;
        o.rails.log = nullptr;
        const PlayedVariant bright_demand = play(w, Rails::on_demand, o), bright_ahead = play(w, Rails::provisioned, o);
        for (const double dark : darks) {
            o.dark_ns = static_cast<opus::TimeNs>(dark * 1e6);
            o.rails.log = nullptr;
            const PlayedVariant demand = play(w, Rails::on_demand, o);
            if (log) o.rails.log = [](const std::string& line) { std::printf("  %s\n", line.c_str()); };
            const PlayedVariant ahead = play(w, Rails::provisioned, o);
            const Known known = play_known(w, {&lit, &demand, &ahead}, o);
            const auto over = [&](double ms) { return std::max(0.0, 100 * (ms / lit.iteration_ms - 1)); };
            const double can = demand.iteration_ms - known.best.iteration_ms,
                         of_time = demand.iteration_ms - ahead.iteration_ms;
            const double control = bright_demand.iteration_ms - lit.iteration_ms;
            const auto share = [&](double part, double whole) {  // "-": too little that could be
                char text[32] = "-";
                if (whole > 0.001 * lit.iteration_ms) std::snprintf(text, sizeof text, "%.1f %%", 100 * part / whole);
                return std::string(text);
            };
            const std::string hidden = share(of_time, can);
            const std::string of_dark =
                share(of_time - (bright_demand.iteration_ms - bright_ahead.iteration_ms), can - control);
            std::printf(
                "| %s | %g | %.1f | +%.2f %% | +%.2f %% | +%.2f %% | +%.2f %% | %s | %s | %.0f, %.0f, %.0f | %llu, "
                "%llu, "
                "%llu |\n",
                w.name.c_str(), dark, lit.iteration_ms, over(demand.iteration_ms), over(ahead.iteration_ms),
                over(known.best.iteration_ms), over(known.least_ms), hidden.c_str(), of_dark.c_str(), demand.held_ms,
                ahead.held_ms, known.best.held_ms, static_cast<unsigned long long>(ahead.counters.speculations),
                static_cast<unsigned long long>(ahead.counters.speculations_used),
                static_cast<unsigned long long>(ahead.counters.speculations_wrong));
            std::fflush(stdout);
            for (const PlayedVariant* c : {&lit, &demand, &ahead}) {
                good &= c->ended && c->fault.empty();
                if (!c->fault.empty()) std::printf("  check: %s\n", c->fault.c_str());
            }
            if (!held) continue;
            const auto list = [&](const char* who, const auto& of) {
                for (std::size_t i = 0; i < of.held.size(); ++i) {
                    const auto& h = of.held[i];
                    if (h.iteration + 1 != iterations || h.begin_ns - h.full_ns < 1'000'000) continue;
                    std::printf("  %s r%u %s: full at %.1f ms, held %.1f ms\n", who, h.rank, of.names[i].c_str(),
                                static_cast<double>(h.full_ns) / 1e6, static_cast<double>(h.begin_ns - h.full_ns) / 1e6);
                }
            };
            list("demand", demand);
            list("provisioned", ahead);
            list("best found", known.best);
        }
    }
    return good ? 0 : 1;
}
