// opus-sim: what a job would do on photonic rails, in virtual time, by the very cores of manager and controller.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <stdexcept>

#include "tools/opus-sim/commands.h"
#include "tools/opus-sim/cost_command.h"
#include "tools/opus-sim/sweep_command.h"

namespace opus::job {

void read_arguments(CLI::App& app, std::vector<std::string>& paths, ReadOptions& o) {
    app.add_option("FILE", paths, "files of one job, or folders of them; their format is found by what is in them")->required();
    app.add_option("--gpus-per-node", o.gpus_per_node,
                   "GPUs of a node, of traces that do not say; 0: as their groups suggest")
        ->check(CLI::Range(0, 64));
    app.add_flag("--fill", o.fill, "ranks whose files are missing do what those do that are there");
    app.add_option("--gpu-tflops", o.tflops, "what a GPU sustains, where a trace has operations and no times")
        ->check(CLI::Range(0.001, 1e6))
        ->capture_default_str();
    app.add_option("--gpu-memory-gbytes", o.memory_gbytes, "bytes a second of its memory, likewise")
        ->check(CLI::Range(0.001, 1e6))
        ->capture_default_str();
}

void run_arguments(CLI::App& app, RunOptions& o) {
    app.add_option("--dark-ms", o.dark_ms, "dark times of a reconfiguration, such as 1,10,25,100")
        ->delimiter(',')
        ->check(CLI::Range(0.0, 1e6))
        ->capture_default_str();
    app.add_option("--ports", o.ports, "optical ports of a GPU, which share its bandwidth")->check(CLI::Range(1, 64))->capture_default_str();
    app.add_option("--gbits", o.out_gbits, "Gbit/s of a GPU between nodes, all its ports together")
        ->check(CLI::Range(0.001, 1e6))
        ->capture_default_str();
    app.add_option(
           "--packet-gbits", o.packet_gbits,
           "Gbit/s of a GPU on a packet network beside the circuits: what no circuits can serve goes over it, and "
           "what a static split gives none; without it such operations have --gbits")
        ->check(CLI::Range(0.001, 1e6));
    app.add_option("--node-gbytes", o.node_gbytes, "GB/s of a GPU within its node")->check(CLI::Range(0.001, 1e6))->capture_default_str();
    app.add_option("--latency-us", o.out_us, "of each step of an operation between nodes")
        ->check(CLI::Range(0.0, 1e6))
        ->capture_default_str();
    app.add_option("--node-latency-us", o.node_us, "of each step within a node")->check(CLI::Range(0.0, 1e6))->capture_default_str();
    app.add_option("--iterations", o.iterations,
                   "iterations that are played; the second half counts, for a job is learned in the first")
        ->check(CLI::Range(2, 10000))
        ->capture_default_str();
    app.add_flag("--best,!--no-best", o.best, "seek the best schedule and the bound, too (the default)");
    app.add_flag("--split,!--no-split", o.split, "seek the best static split of the ports, too (the default)");
    app.add_option("--trials", o.trials, "schedules that are tried in search of the best; 0: by the size of the job");
    app.add_option("--jitter", o.jitter, "each computation lasts up to so much longer, such as 0.05")->check(CLI::Range(0.0, 10.0));
    app.add_option("--late-us", o.late_us, "each launch is seen up to so much late")->check(CLI::Range(0.0, 1e6));
    app.add_option("--seed", o.seed, "of jitter and lateness")->capture_default_str();
    app.add_flag(
        "--guard,!--no-guard", o.guard,
        "a job that is slower for being provisioned goes back to on demand (the default, as the controller's)");
    app.add_flag_function(
        "--fold,!--no-fold", [&o](std::int64_t times) { o.fold = times > 0; },
        "where the GPUs of a node all do the same, play one rail for all: faster; when a job is provisioned "
        "may differ (the default beyond 64 ranks)");
    app.add_flag("--answers,!--no-answers", o.answers,
                 "look closely at each variant: windows, dark time by phase, the longest way, ports, what to change "
                 "(the default)");
    app.add_option(
           "--try-ports", o.try_ports,
           "numbers of ports that are played as well, to say what to change; 0: none; by default some for small jobs")
        ->delimiter(',')
        ->check(CLI::Range(0, 64));
    app.add_flag("--technologies,!--no-technologies", o.technologies,
                 "play the dark times of the known switch technologies, too (report's default)");
    app.add_option("--seeds", o.seeds, "play so many seeds, from --seed on, and show the spread")->check(CLI::Range(1, 1000));
    app.add_option_function<std::vector<std::string>>(
        "--slow-rank",
        [&o](const std::vector<std::string>& texts) {
            for (const std::string& text : texts) try {
                    o.slow.push_back(slow_rank(text));
                } catch (const std::invalid_argument& error) { throw CLI::ValidationError(error.what()); }
        },
        "RANK=FACTOR: the rank computes for so many times as long, such as 3=1.1; may be said again");
    app.add_option("--at-once", o.at_once, "dark times that are played beside each other")->check(CLI::Range(1, 256))->capture_default_str();
}

void show_arguments(CLI::App& app, ShowOptions& o) {
    app.add_option_function<double>(
           "--accept-percent", [&o](double percent) { o.accept = percent / 100; },
           "what an iteration may be longer than on electrical rails, for a yes; default: 5")
        ->check(CLI::Range(0.0, 1000.0));
    app.add_option("--trace", o.trace,
                   "file for ui.perfetto.dev: what ranks launch and where circuits lead, at the dark time that is "
                   "looked at closely");
    price_arguments(app, o.generation, o.prices);
}

}  // namespace opus::job

using namespace opus::job;

int main(int argc, char** argv) {
    CLI::App app(
        "What a job would do on photonic rails: plays its communication in virtual time, by the very cores of manager "
        "and controller.",
        "opus-sim");
    app.set_version_flag("--version", OPUS_PROGRAM_VERSION);
    app.require_subcommand(1);
    app.footer(
        "Exit codes: 0 all went well; 1 the job came to a halt; 2 arguments, or a file that cannot be read; 128 and "
        "the "
        "number of a signal: the sweep was stopped by it.");
    std::vector<std::string> paths;
    ReadOptions read;
    RunOptions run, report;
    report.technologies = true, report.trials_most = 30;  // a dozen dark times
    ModelOptions model;
    CostOptions cost;
    SweepOptions sweep;
    ShowOptions show;
    std::string out;
    bool json = false;
    CLI::App* run_it = app.add_subcommand("run", "play a job on electrical and on photonic rails, and print a table");
    read_arguments(*run_it, paths, read);
    run_arguments(*run_it, run);
    show_arguments(*run_it, show);
    run_it->add_flag("--json", show.json, "for programs");
    run_it->add_option("--log", show.log, "write to this file what managers asked for and what switches were told, and when")
        ->type_name("FILE");
    CLI::App* report_it = app.add_subcommand(
        "report", "play a job likewise, and write a page for people: would photonic rails work for it?");
    read_arguments(*report_it, paths, read);
    run_arguments(*report_it, report);
    show_arguments(*report_it, show);
    report_it->add_option("--out", out, "file of HTML that is written; report.html without it");
    report_it->add_flag("--json", show.json, "print the page's figures, for programs");
    CLI::App* read_it = app.add_subcommand("read", "say what is in files: ranks, groups, operations, bytes, times");
    read_arguments(*read_it, paths, read);
    read_it->add_flag("--json", json, "for programs");
    CLI::App* make_it = app.add_subcommand("generate", "write the workload of a model's training");
    model_arguments(*make_it, model);
    make_it->add_option("--out", out, "file; without it: standard output");
    CLI::App* cost_it =
        app.add_subcommand("cost", "what the network costs and draws with packet switches and with circuits");
    cost_arguments(*cost_it, cost);
    cost_it->add_flag("--json", json, "for programs");
    CLI::App* sweep_it =
        app.add_subcommand("sweep", "play a job with each combination of options, and make a table of them");
    sweep_arguments(*sweep_it, sweep);
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) { return app.exit(error) == 0 ? kExitOk : kExitUsage; }
    try {
        if (*run_it) return run_command(paths, read, run, show);
        if (*report_it) return report_command(paths, read, report, show, out.empty() ? "report.html" : out);
        if (*make_it) return generate_command(model, out);
        if (*cost_it) return cost_command(cost, json);
        if (*sweep_it) return sweep_command(sweep);
        return read_command(paths, read, json);
    } catch (const BadFile& error) {
        std::fprintf(stderr, "opus-sim: %s\n", error.what());
    } catch (const std::invalid_argument& error) { std::fprintf(stderr, "opus-sim: %s\n", error.what()); }
    return kExitUsage;
}
