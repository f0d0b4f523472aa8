#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tools/ctl/table.h"
#include "tools/opus-sim/commands.h"
#include "tools/opus-sim/json_out.h"
#include "tools/opus-sim/number_text.h"
#include "tools/opus-sim/run_json.h"

namespace opus::job {
namespace {

using nlohmann::json;

std::string groups_text(const Figures& f) {
    std::string text;
    for (const auto& [name, count] : f.groups) text += (text.empty() ? "" : ", ") + name;
    return text.empty() ? "none" : text;
}

void print_text(const JobFile& job) {
    const Figures& f = job.figures;
    std::printf("%s: %s, %u file%s, %llu entries\n", job.workload.name.c_str(), job.format.c_str(), f.files,
                f.files == 1 ? "" : "s", static_cast<unsigned long long>(f.entries));
    if (!job.workload.source.empty()) std::printf("  source: %s\n", job.workload.source.c_str());
    const std::uint32_t nodes = job.workload.nodes();
    std::printf("  ranks: %u of %u, on %u node%s\n  groups (how many, of how many ranks): %s\n", f.ranks, f.world,
                nodes, nodes == 1 ? "" : "s", groups_text(f).c_str());
    for (const std::string& line : job.assumed) std::printf("  assumed: %s\n", line.c_str());
    std::printf("\n");
    ctl::Table table(
        {"operation", "ranks of the group", "calls, all ranks", "bytes, all ranks", "recorded time, all ranks"});
    OperationFigure sum;
    for (const auto& [what, o] : f.operations) {
        table.add({replay::name_of(what.first), std::to_string(what.second), std::to_string(o.calls),
                   ctl::bytes(o.bytes), o.recorded_ms > 0 ? ctl::duration(o.recorded_ms) : "-"});
        sum.calls += o.calls, sum.bytes += o.bytes, sum.recorded_ms += o.recorded_ms;
    }
    table.add({"all", "", std::to_string(sum.calls), ctl::bytes(sum.bytes),
               sum.recorded_ms > 0 ? ctl::duration(sum.recorded_ms) : "-"});
    table.print(stdout);
    std::printf("\ncomputation, all ranks: %s", ctl::duration(f.compute_ms).c_str());
    if (f.ranks != 0) std::printf("; a rank, on average: %s", ctl::duration(f.compute_ms / f.ranks).c_str());
    std::printf("\n");
    if (f.span_ms > 0) std::printf("from first to last, the longest rank: %s\n", ctl::duration(f.span_ms).c_str());
}

void print_json(const JobFile& job) {
    const Figures& f = job.figures;
    json operations = json::array();
    for (const auto& [what, o] : f.operations)
        operations.push_back({{"operation", replay::name_of(what.first)},
                              {"group_size", what.second},
                              {"calls", o.calls},
                              {"bytes", o.bytes},
                              {"recorded_ms", o.recorded_ms}});
    json groups = json::object();
    for (const auto& [name, count] : f.groups) groups[name.substr(name.rfind(' ') + 1)] = count;
    const json all = {{"name", job.workload.name}, {"format", job.format},     {"files", f.files},
                      {"entries", f.entries},      {"ranks", f.ranks},         {"world", f.world},
                      {"groups_by_size", groups},  {"operations", operations}, {"compute_ms", f.compute_ms},
                      {"span_ms", f.span_ms},      {"assumed", job.assumed}};
    print_for_programs(all);
}

std::string percent(double ms, double of) { return number_text("%+.2f %%", of > 0 ? 100 * (ms / of - 1) : 0); }

// With circuits that never move.
std::string split_text(const StaticSplit& split, const RunOptions& o, double lit) {
    if (split.iteration_ms > 0) {  // "packets": without circuits
        std::string text = "best static split of the ports, no circuit ever moved: " + percent(split.iteration_ms, lit) +
                           "; circuits a pair of neighbours: ";
        for (std::size_t i = 0; i < split.circuits.size(); ++i) text += (i == 0 ? "" : "; ") + split.circuits[i];
        return text;
    }
    if (split.needed_ports > o.ports)
        return "no static split of the ports serves it: some GPU has " + std::to_string(split.needed_ports) +
               " neighbours, and " + std::to_string(o.ports) + " port" + (o.ports == 1 ? "" : "s");
    return "";
}

void print_run(const JobFile& job, const Run& run, const RunOptions& o) {
    const double lit = run.electrical.iteration_ms;
    std::printf("%s: %u ranks on %u nodes, %u port%s a GPU, %g Gbit/s a GPU between nodes, %g GB/s within one\n",
                job.workload.name.c_str(), job.workload.world(), run.nodes, o.ports, o.ports == 1 ? "" : "s",
                o.out_gbits, o.node_gbytes);
    std::printf("%u iteration%s played, %s; on electrical rails one takes %s\n", run.iterations,
                run.iterations == 1 ? "" : "s",
                run.iterations == 1 ? "which counts" : ("the last " + std::to_string(run.counted) + " count").c_str(),
                ctl::duration(lit).c_str());
    for (const std::string& line : job.assumed) std::printf("assumed: %s\n", line.c_str());
    if (run.rails > 1)
        std::printf(
            "the %u GPUs of a node do the same, each on a rail of its own: one rail was played for all (--no-fold "
            "plays all)\n",
            run.rails);
    std::printf("\n");
    ctl::Table table({"dark time", "on demand", "provisioned", "best found", "bound", "waited for circuits",
                      "dark time hidden", "reconfigurations"});
    for (const Point& p : run.points)
        table.add({number_text("%g ms", p.dark_ms), percent(p.demand.iteration_ms, lit),
                   percent(p.provisioned.iteration_ms, lit), p.best_ms > 0 ? percent(p.best_ms, lit) : "-",
                   p.bound_ms > 0 ? percent(std::max(p.bound_ms, lit), lit) : "-",
                   ctl::duration(p.demand.held_ms) + " -> " + ctl::duration(p.provisioned.held_ms),
                   number_text("%.0f %%", 100 * p.provisioned.hidden),
                   number_text("%.0f", p.demand.reconfigurations) + " -> " +
                       number_text("%.0f", p.provisioned.reconfigurations)});
    table.print(stdout);
    std::printf(
        "\nIteration time over electrical rails. Waited for: summed over operations, of an iteration. "
        "Reconfigurations: of an iteration, on all rails.\n"
        "With an arrow: on demand -> provisioned.\n");
    if (const std::string text = split_text(run.split, o, lit); !text.empty()) std::printf("\n%s\n", text.c_str());
    const Point& last = run.points.back();
    if (last.demand.unroutable + last.provisioned.unroutable != 0)
        std::printf(
            "Operations that need more ports than a GPU has, in the whole run: %llu kinds. They ran unheld, %s\n",
            static_cast<unsigned long long>(last.demand.unroutable),
            o.packet_gbits ? number_text("over the packet network of %g Gbit/s a GPU.", *o.packet_gbits).c_str()
                           : "as fast as on electrical rails: --packet-gbits says what else would carry them.");
    else if (last.demand.crowded != 0)
        std::printf(
            "%llu operations need more circuits at a time than there are ports: they were served part by part.\n",
            static_cast<unsigned long long>(last.demand.crowded));
}

}  // namespace

int read_command(const std::vector<std::string>& paths, const ReadOptions& options, bool json) {
    ReadOptions o = options;
    const JobFile job = read_files(paths, o);
    json ? print_json(job) : print_text(job);
    return kExitOk;
}

std::vector<std::string> halts_of(const JobFile& job, const Run& run) {
    if (!run.electrical.ended)
        return {job.workload.name +
                ": its ranks wait for each other in a circle, even where no circuit is ever dark: "
                "nothing can be said of it"};
    std::vector<std::string> halts;
    for (const Point& p : run.points)
        for (const VariantFigures* v : {&p.demand, &p.provisioned})
            if (!v->ended || !v->fault.empty())
                halts.push_back(number_text("at %g ms the job came to a halt: ", p.dark_ms) +
                                (v->fault.empty() ? "launches wait for ever" : v->fault));
    return halts;
}

int halted(const JobFile& job, const Run& run) {
    const std::vector<std::string> halts = halts_of(job, run);
    for (const std::string& halt : halts) std::fprintf(stderr, "opus-sim: %s\n", halt.c_str());
    return halts.empty() ? kExitOk : kExitJob;
}

int run_command(const std::vector<std::string>& paths, const ReadOptions& read, const RunOptions& asked,
                const ShowOptions& show) {
    RunOptions options = asked;
    options.log = !show.log.empty();
    std::ofstream told;
    if (options.log) told.open(show.log);
    if (options.log && !told) throw BadFile(show.log, "", "it cannot be written");
    const cost::Inputs priced = priced_inputs(show.generation, show.prices);
    const JobFile job = read_files(paths, read);
    if (options.technologies) options.dark_ms = with_technologies(options.dark_ms);
    const Run run = run_job(job, options);
    for (const Point& p : run.points) told << p.log;
    if (!run.electrical.ended) return halted(job, run);
    trace_run(job, run, options, show);
    if (show.json) {
        print_for_programs(run_json(job, run, options, show.accept, priced));
    } else {
        print_run(job, run, options);
        print_answers(run, options, show.accept);
    }
    return halted(job, run);
}

}  // namespace opus::job
