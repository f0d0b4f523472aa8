// What planning takes against the size of the job: the search for an order (its own thread, in the daemon), and the
// longest step of the controller, with plans and without: what it learns of a job it learns in its own thread. The very
// cores in virtual time, what they take by the CPU's clock; a table.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>

#include "test/controller/core/wide_world.h"
#include "tools/replay/generate.h"
#include "tools/sim/variants.h"

namespace {

using namespace opus::sim;

struct Spent {
    double longest_ms = 0, all_ms = 0;
    std::size_t count = 0;

    void add(double ms) { longest_ms = std::max(longest_ms, ms), all_ms += ms, ++count; }
};

struct Measured {
    Spent step, search;
    std::size_t uses = 0, pairs = 0;  // of the largest lap that was planned
    double iteration_ms = 0;
    std::string fault;
};

Measured measure(const opus::replay::Workload& job, Rails rails, VariantOptions options) {
    Measured m;
    options.rails.around = [&m](const opus::controller::plan::Lap* lap, const std::function<void()>& what) {
        const double start = opus::controller::test::cpu_us();
        what();
        (lap == nullptr ? m.step : m.search).add((opus::controller::test::cpu_us() - start) / 1e3);
        if (lap == nullptr || lap->uses.size() < m.uses) return;
        m.uses = lap->uses.size(), m.pairs = lap->pairs();
    };
    const PlayedVariant played = play(job, rails, options);
    m.iteration_ms = played.iteration_ms;
    m.fault = played.ended ? played.fault : "came to a halt";
    return m;
}

}  // namespace

int main(int argc, char** argv) {
    std::vector<std::uint32_t> sizes{32, 64, 128, 256};
    std::string kind = "3d";
    opus::replay::GenerateOptions g;
    g.gpus = 8;
    VariantOptions o;
    o.dry_run.iterations = 8, o.learned = 4;
    o.rails.guard = true;
    o.rails.check_every = 1u << 30;
    double dark_ms = 25;
    CLI::App app{"What planning takes against the size of the job, in virtual time."};
    app.add_option("--kind", kind, "of job (opus-replay generate)")->capture_default_str();
    app.add_option("--nodes", sizes, "sizes of the job")->capture_default_str();
    app.add_option("--gpus", g.gpus, "of a node")->capture_default_str();
    app.add_option("--iterations", o.dry_run.iterations)->capture_default_str();
    app.add_option("--dark-ms", dark_ms)->capture_default_str();
    CLI11_PARSE(app, argc, argv);
    o.dark_ns = static_cast<opus::TimeNs>(dark_ms * 1e6);
    std::printf(
        "| GPUs | uses, pairs of a lap | searches | longest search ms | longest step ms: on demand, with plans "
        "| mean step us | iteration ms: on demand, with plans |\n| --- | --- | --- | --- | --- | --- | --- |\n");
    bool good = true;
    for (const std::uint32_t nodes : sizes) {
        g.nodes = nodes;
        const opus::replay::Workload job = opus::replay::generate(kind, g);
        const Measured demand = measure(job, Rails::on_demand, o), ahead = measure(job, Rails::provisioned, o);
        for (const Measured* m : {&demand, &ahead}) good &= m->fault.empty();
        const auto mean_us = [](const Spent& s) {
            return s.count == 0 ? 0 : 1e3 * s.all_ms / static_cast<double>(s.count);
        };
        std::printf(
            "| %u | %zu, %zu | %zu | %.0f | %.1f, %.1f | %.1f, %.1f | %.1f, %.1f |%s%s\n", nodes * g.gpus, ahead.uses,
            ahead.pairs, ahead.search.count, ahead.search.longest_ms, demand.step.longest_ms, ahead.step.longest_ms,
            mean_us(demand.step), mean_us(ahead.step), demand.iteration_ms, ahead.iteration_ms,
            demand.fault.empty() && ahead.fault.empty() ? "" : " at fault: ", (demand.fault + ahead.fault).c_str());
        std::fflush(stdout);
    }
    return good ? 0 : 1;
}
