// Jobs drawn at random (opus-replay generate layered), each played on demand and provisioned, in virtual time: does any
// end up slower for having been provisioned? A line for each job that does, and a summary.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <fstream>
#include <thread>

#include "tools/replay/generate.h"
#include "tools/sim/against_demand.h"

namespace {

using namespace opus::sim;
using opus::replay::Workload;

struct Noise {
    const char* name;
    double jitter, uneven;  // computation lasts up to so much longer, each by itself, and all of an iteration
    double late_us;         // launches are seen so late
};
constexpr Noise kNoises[] = {{"quiet", 0, 0, 0}, {"noisy", 0.05, 0, 300}, {"uneven", 0.02, 0.3, 300}};

struct Options {
    std::uint64_t from = 1, to = 200;
    std::uint32_t iterations = 20;
    unsigned jobs = 2;
    std::vector<double> darks{10, 50};
    std::vector<std::string> files, noises{"quiet", "noisy"};
    bool all = false, each = false, itself = false;
    double scale_bytes = 1.0 / 1024;
    VariantOptions variant;
};

std::vector<Workload> jobs_of(const Options& o) {
    std::vector<Workload> jobs;
    for (const std::string& file : o.files) {
        std::ifstream in(file);
        std::vector<opus::replay::WorkloadError> errors;
        jobs.push_back(opus::replay::read_workload(in, errors));
        for (const auto& e : errors) std::fprintf(stderr, "%s:%u: %s\n", file.c_str(), e.line, e.text.c_str());
        if (!errors.empty() || !in.eof()) throw std::invalid_argument(file + " is no workload");
    }
    opus::replay::GenerateOptions g;
    for (g.seed = o.from; o.files.empty() && g.seed <= o.to; ++g.seed)
        jobs.push_back(opus::replay::generate("layered", g));
    return jobs;
}

std::vector<AgainstDemand> play_all(const std::vector<Workload>& jobs, const Options& o, const Noise& noise, double dark_ms) {
    VariantOptions variant = o.variant;
    variant.dry_run.iterations = o.iterations;
    variant.dry_run.bytes_per_us /= o.scale_bytes;
    variant.dry_run.jitter = noise.jitter;
    variant.dry_run.uneven = noise.uneven;
    variant.rails.late_ns = static_cast<opus::TimeNs>(noise.late_us * 1e3);
    variant.rails.seed = variant.dry_run.seed;
    variant.dark_ns = static_cast<opus::TimeNs>(dark_ms * 1e6);
    std::vector<AgainstDemand> played(jobs.size());
    std::atomic<std::size_t> next = 0;
    const auto work = [&] {
        for (std::size_t i = next++; i < jobs.size(); i = next++)
            played[i] = o.itself ? against_itself(jobs[i], variant) : against_demand(jobs[i], variant);
    };
    std::vector<std::thread> others;
    for (unsigned i = 1; i < o.jobs; ++i) others.emplace_back(work);
    work();
    for (std::thread& other : others) other.join();
    return played;
}

void print_job(const Workload& job, const AgainstDemand& a, bool each) {
    const std::string broken = a.broken();
    std::printf("%s%s: ", job.name.c_str(), broken.empty() ? "" : " BROKEN");
    if (a.fault.empty())
        std::printf(
            "on demand %.1f ms; settled %+.2f %%, worst %+.2f %%, %zu slower; while it learns longer by %.1f dark "
            "times at most",
            a.demand_ms.back(), a.settled_percent(), a.worst_percent(), a.slower(), a.most_lost_learning());
    if (!broken.empty()) std::printf(": %s", broken.c_str());
    std::printf("\n");
    if (!each || !a.fault.empty()) return;
    std::printf("   ");
    for (std::size_t i = 0; i < a.demand_ms.size(); ++i)
        std::printf(" %+.2f", 100 * (a.ahead_ms[i] / a.demand_ms[i] - 1));
    std::printf(" %%\n");
}

// True: nothing is broken.
bool print(const std::vector<Workload>& jobs, const std::vector<AgainstDemand>& played, const Options& o,
           const Noise& noise, double dark_ms) {
    std::vector<double> settled;
    std::size_t broken = 0, faults = 0, slower = 0, iterations = 0, learning = 0;
    double worst = -100, most_lost = 0;
    for (std::size_t i = 0; i < jobs.size(); ++i) {
        const AgainstDemand& a = played[i];
        broken += !a.broken().empty();
        if (o.all || o.each || !a.broken().empty()) print_job(jobs[i], a, o.each);
        faults += !a.fault.empty();
        if (!a.fault.empty()) continue;
        settled.push_back(a.settled_percent());
        slower += a.settled_percent() > AgainstDemand::kMostPercent;
        iterations += a.slower();
        worst = std::max(worst, a.worst_percent());
        most_lost = std::max(most_lost, a.most_lost_learning());
        learning += a.loses_learning() > 0;
    }
    std::sort(settled.begin(), settled.end());
    const auto at = [&](double part) {
        return settled.empty() ? 0.0 : settled[static_cast<std::size_t>(part * static_cast<double>(settled.size() - 1))];
    };
    std::printf("%s, %g ms: %zu jobs, %zu broken: %zu at fault, %zu slower from the sixth iteration on, %zu before\n",
                noise.name, dark_ms, jobs.size(), broken, faults, slower, learning);
    std::printf(
        "  over on demand, from the sixth iteration on: best %+.2f, quarter %+.2f, median %+.2f, three quarters %+.2f, "
        "worst %+.2f %%\n"
        "  %zu iterations of them slower, the worst by %+.2f %%; of those before, one is longer by %.1f dark times at "
        "most\n",
        at(0), at(0.25), at(0.5), at(0.75), at(1), iterations, worst, most_lost);
    std::fflush(stdout);
    return broken == 0;
}

}  // namespace

int main(int argc, char** argv) {
    Options o;
    CLI::App app{
        "Jobs drawn at random, on demand and provisioned. Exit code 1: one ends up slower for having been "
        "provisioned."};
    app.add_option("--from", o.from, "seed of the first job");
    app.add_option("--to", o.to, "seed of the last job");
    app.add_option("--file", o.files, "workload files instead");
    app.add_option("--dark-ms", o.darks, "dark times");
    app.add_option("--noise", o.noises,
                   "quiet, noisy (computation up to 5 % longer, launches seen up to 0.3 ms late), uneven (iterations "
                   "up to 30 % longer)")
        ->check(CLI::IsMember({"quiet", "noisy", "uneven"}));
    app.add_option("--scale-bytes", o.scale_bytes, "operations take as long as with so much of their bytes")->check(CLI::PositiveNumber);
    app.add_option("--iterations", o.iterations)->check(CLI::Range(6, 10000));
    app.add_option("--ports", o.variant.ports);
    app.add_option("--seed", o.variant.dry_run.seed, "of the noise");
    app.add_option("--jobs", o.jobs, "at one time")->check(CLI::Range(1, 64));
    o.variant.rails.guard = true;
    app.add_flag("--guard,!--no-guard", o.variant.rails.guard, "a job that is slower for it is not provisioned, or is");
    app.add_flag("--runs,!--no-runs", o.variant.rails.runs, "provisioned grants cover the rest of a phase, or do not");
    app.add_flag("--itself", o.itself, "not provisioned, but on demand under other noise: what chance alone does");
    app.add_flag("--all", o.all, "a line for each job");
    app.add_flag("--each", o.each, "and for each every iteration, over on demand");
    CLI11_PARSE(app, argc, argv);
    bool good = true;
    try {
        const std::vector<Workload> jobs = jobs_of(o);
        for (const Noise& noise : kNoises)
            for (const double dark : o.darks)
                if (std::find(o.noises.begin(), o.noises.end(), noise.name) != o.noises.end())
                    good &= print(jobs, play_all(jobs, o, noise, dark), o, noise, dark);
    } catch (const std::invalid_argument& error) { return std::fprintf(stderr, "%s\n", error.what()), 2; }
    return good ? 0 : 1;
}
