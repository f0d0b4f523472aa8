// opus-replay: an ordinary NCCL program that plays a workload file and checks every result. There is no
// Opus in it. `generate` and `check` need no NCCL.
#include <dlfcn.h>
#include <unistd.h>

#include <climits>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <stdexcept>
#include <string>

#include <CLI/CLI.hpp>

#include "tools/replay/generate.h"
#include "tools/replay/player.h"
#include "tools/replay/recorded.h"

using namespace opus::replay;

namespace {

// "0.25" or "1/256".
double ratio(const std::string& text) {
    std::size_t end = 0, after = 0;
    double value = 0, divisor = 1;
    try {
        value = std::stod(text, &end);
        if (end < text.size() && text[end] == '/') {
            divisor = std::stod(text.substr(end + 1), &after);
            end += 1 + after;
        }
    } catch (const std::exception&) { end = 0; }
    if (end != text.size() || text.empty() || !(value > 0) || !(divisor > 0))
        throw CLI::ValidationError(text, "must be a positive number, or a fraction such as 1/256");
    return value / divisor;
}

std::string own_folder() {
    char path[PATH_MAX];
    const ssize_t n = readlink("/proc/self/exe", path, sizeof path);
    const std::string self(path, n > 0 ? static_cast<std::size_t>(n) : 0);
    return self.substr(0, self.rfind('/'));
}

int play(const PlayOptions& options) {
    std::string tried;
    for (const char* at : {"/opus_replay_player.so", OPUS_PLAYER_INSTALLED}) {
        if (void* module = dlopen((own_folder() + at).c_str(), RTLD_NOW | RTLD_LOCAL)) {
            auto* function = reinterpret_cast<PlayFunction*>(dlsym(module, "opus_replay_play"));
            if (function) return function(&options);
        }
        if (const char* why = dlerror()) tried += std::string("\n  ") + why;
    }
    std::fprintf(stderr, "opus-replay: cannot load the player; it needs libnccl.so.2 and libcudart.so.12:%s\n",
                 tried.c_str());
    return kExitNccl;
}

int generate(const std::string& kind, const GenerateOptions& options, const std::string& out) {
    try {
        const Workload w = opus::replay::generate(kind, options);
        if (out.empty()) return write_workload(w, std::cout), kExitOk;
        std::ofstream file(out);
        write_workload(w, file);
        if (file) return kExitOk;
        std::fprintf(stderr, "opus-replay: cannot write %s\n", out.c_str());
    } catch (const std::invalid_argument& error) {
        std::fprintf(stderr, "opus-replay: generate %s: %s\n", kind.c_str(), error.what());
    }
    return kExitUsage;
}

int from_recording(const std::string& path, const std::string& out) {
    std::ifstream in(path);
    if (!in) return std::fprintf(stderr, "opus-replay: cannot read %s\n", path.c_str()), kExitUsage;
    std::vector<WorkloadError> errors;
    const Workload w = opus::replay::read_recording(in, errors);
    for (const WorkloadError& e : errors) std::fprintf(stderr, "%s:%u: %s\n", path.c_str(), e.line, e.text.c_str());
    if (!errors.empty()) return kExitUsage;
    if (out.empty()) return write_workload(w, std::cout), kExitOk;
    std::ofstream file(out);
    write_workload(w, file);
    if (file) return kExitOk;
    return std::fprintf(stderr, "opus-replay: cannot write %s\n", out.c_str()), kExitUsage;
}

// Every mistake of a file, or what the file asks of each role in one iteration.
int check(const std::string& path) {
    std::ifstream in(path);
    if (!in) return std::fprintf(stderr, "opus-replay: cannot read %s\n", path.c_str()), kExitUsage;
    std::vector<WorkloadError> errors;
    const Workload w = read_workload(in, errors);
    for (const WorkloadError& e : errors) std::fprintf(stderr, "%s:%u: %s\n", path.c_str(), e.line, e.text.c_str());
    if (!errors.empty()) return kExitUsage;
    std::printf("%s: %u ranks, %zu communicators, %u iterations\n", w.name.c_str(), w.world(), w.comms.size(), w.iterations);
    if (!w.source.empty()) std::printf("  %s\n", w.source.c_str());
    std::printf("%-10s %-8s %-15s %8s %12s\n", "role", "comm", "operation", "calls", "MiB a rank");
    for (const Role& r : w.roles) {
        const std::vector<Step> steps = unrolled(r.steps);
        for (std::uint32_t c = 0; c < w.comms.size(); ++c)
            for (int k = 0; k <= static_cast<int>(StepKind::recv); ++k) {
                std::uint64_t calls = 0, bytes = 0;
                for (const Step& s : steps)
                    if (s.comm == c && static_cast<int>(s.kind) == k && !s.first_only) ++calls, bytes += s.bytes;
                if (calls != 0)
                    std::printf("%-10s %-8s %-15s %8llu %12.1f\n", r.name.c_str(), w.comms[c].name.c_str(),
                                name_of(static_cast<StepKind>(k)), static_cast<unsigned long long>(calls),
                                static_cast<double>(bytes) / (1 << 20));
            }
    }
    return kExitOk;
}

void generate_arguments(CLI::App& app, std::string& kind, GenerateOptions& g, std::string& out) {
    std::vector<std::string> kinds;
    std::string help = "one of";
    for (const Generator& one : generators())
        kinds.push_back(one.name), help += std::string("\n  ") + one.name + ": " + one.help;
    app.add_option("kind", kind, help)->required()->check(CLI::IsMember(kinds));
    app.add_option("--out", out, "file; without it: standard output");
    app.add_option("--nodes", g.nodes, "nodes")->check(CLI::Range(1, 4096));
    app.add_option("--gpus", g.gpus, "GPUs a node")->check(CLI::Range(1, 16));
    app.add_option("--layers", g.layers, "layers of a stage")->check(CLI::Range(1, 1000));
    app.add_option("--micro-batches", g.micro_batches, "micro-batches of an iteration")->check(CLI::Range(1, 1000));
    app.add_option("--iterations", g.iterations, "iterations");
    app.add_option("--layer-bytes", g.layer_bytes, "a rank's shard of one layer");
    app.add_option("--activation-bytes", g.activation_bytes, "what a stage sends for a micro-batch");
    app.add_option("--forward-us", g.forward_us, "forward pass of one layer");
    app.add_option("--backward-us", g.backward_us, "backward pass of one layer");
    app.add_option("--pipeline", g.pipeline, "stages; 0: as the kind has it")->check(CLI::Range(0, 4096));
    app.add_option("--context", g.context, "nodes of a ring-attention group; 0: as the kind has it")->check(CLI::Range(0, 4096));
    app.add_option("--expert", g.expert, "nodes of an expert group; 0: as the kind has it")->check(CLI::Range(0, 4096));
    app.add_option("--chunks", g.chunks, "model chunks of a stage, where they are interleaved")->check(CLI::Range(1, 64));
    app.add_option("--optimizer-every", g.optimizer_every, "iterations from one optimizer step to the next")
        ->check(CLI::Range(1, 1 << 20));
    app.add_option("--evaluate-every", g.evaluate_every, "iterations from one evaluation to the next; 0: none")
        ->check(CLI::Range(0, 1 << 20));
    app.add_option("--checkpoint-every", g.checkpoint_every, "iterations from one checkpoint to the next; 0: none")
        ->check(CLI::Range(0, 1 << 20));
    app.add_option("--lengths", g.lengths, "sequence lengths as factors, such as 1,0.5,2; one is drawn an iteration")
        ->delimiter(',')
        ->check(CLI::Range(0.001, 1000.0));
    app.add_option("--seed", g.seed, "of a job that is drawn (layered, random)");
}

void play_arguments(CLI::App& app, PlayOptions& o, std::string& bytes, std::string& time) {
    app.add_option("workload", o.workload, "the workload file (docs/workloads.md)")->required();
    app.add_option("--rank", o.rank, "which rank this process is")->required();
    app.add_option("--world", o.world, "number of ranks; must be the workload's");
    app.add_option("--rendezvous", o.rendezvous, "where unique ids pass: file:DIR, or tcp:HOST:PORT (rank 0 listens)")->required();
    app.add_option("--iterations", o.iterations, "iterations to play; 0: as the workload says");
    app.add_option("--scale-bytes", bytes, "factor of every size, such as 1/256");
    app.add_option("--scale-time", time, "factor of every compute gap");
    app.add_option("--seed", o.seed, "of the jitter that a workload may ask for");
    app.add_flag("--check,!--no-check", o.check, "compare every result bit for bit (the default)");
    app.add_flag("--graph", o.graph,
                 "the second iteration is captured into a CUDA graph, and what the later ones replay");
    app.add_flag("--progress", o.progress, "one line an iteration");
    app.add_option("--device", o.device, "CUDA device of this rank, as the process sees them (default: its place's GPU)");
    app.add_option("--timeout", o.timeout_s, "seconds without progress after which the rank ends with code 4; 0: never");
    app.add_option("--out", o.out, "iteration times and counts as JSON");
    app.add_option("--trace", o.trace, "what ran when, as Chrome trace events, one a line");
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App app("Plays a workload with NCCL and checks every result.", "opus-replay");
    app.set_version_flag("--version", OPUS_VERSION);
    app.require_subcommand(1);
    app.footer(
        "Exit codes: 0 all results right, 1 a wrong result, 2 arguments or workload, 3 NCCL or CUDA, 4 no progress.");

    PlayOptions options;
    std::string bytes = "1", time = "1";
    CLI::App* play_command = app.add_subcommand("play", "play one rank of a workload");
    play_arguments(*play_command, options, bytes, time);

    GenerateOptions g;
    std::string kind, out, file;
    CLI::App* generate_command = app.add_subcommand("generate", "write a workload file");
    generate_arguments(*generate_command, kind, g, out);

    CLI::App* check_command = app.add_subcommand("check", "find every mistake of a workload file, or sum it up");
    check_command->add_option("workload", file, "the workload file")->required();

    CLI::App* recorded_command =
        app.add_subcommand("from-recording", "write what a recorded job did as a workload file");
    recorded_command->add_option("recording", file, "of opus-ctl record")->required();
    recorded_command->add_option("--out", out, "file; without it: standard output");

    try {
        app.parse(argc, argv);
        options.scale_bytes = ratio(bytes);
        options.scale_time = ratio(time);
    } catch (const CLI::ParseError& error) { return app.exit(error) == 0 ? kExitOk : kExitUsage; }
    if (*play_command) return play(options);
    if (*generate_command) return generate(kind, g, out);
    if (*recorded_command) return from_recording(file, out);
    return check(file);
}
