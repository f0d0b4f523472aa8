// Frames that managers send, per node and phase, in steady state: the very cores in virtual time, on demand and with
// runs. A frame carries all that a manager has to say when it looks.
#include <CLI/CLI.hpp>
#include <cstdio>

#include "test/bench/kinds.h"
#include "tools/replay/generate.h"
#include "tools/sim/variants.h"

int main(int argc, char** argv) {
    using namespace opus::sim;
    std::vector<std::string> kinds{"llama3-8b"};
    std::uint32_t learn = 4, count = 4;
    VariantOptions o;
    opus::replay::GenerateOptions g;
    double scale_bytes = 1.0 / 1024, dark_ms = 25;
    CLI::App app{"frames per node and phase, in virtual time"};
    opus::bench::add_kinds(app, kinds);
    app.add_option("--learn", learn, "iterations before it counts")->capture_default_str();
    app.add_option("--count", count, "iterations that count")->capture_default_str();
    app.add_option("--dark-ms", dark_ms)->capture_default_str();
    CLI11_PARSE(app, argc, argv);
    o.dark_ns = static_cast<opus::TimeNs>(dark_ms * 1e6);
    o.dry_run.bytes_per_us /= scale_bytes;
    std::printf(
        "| job | how | frames of managers, an iteration | of it, a node and phase | launches in runs | runs taken back "
        "| iteration ms |\n");
    std::printf("| --- | --- | --- | --- | --- | --- | --- |\n");
    bool good = true;
    for (const std::string& kind : kinds) {
        const opus::replay::Workload w = opus::replay::generate(kind, g);
        for (const bool runs : {false, true}) {
            for (const Rails rails : {Rails::on_demand, Rails::provisioned}) {
                if (runs && rails == Rails::on_demand) continue;
                o.rails.runs = runs;
                o.learned = learn;
                o.dry_run.iterations = learn;
                const PlayedVariant before = play(w, rails, o);
                o.dry_run.iterations = learn + count;
                const PlayedVariant after = play(w, rails, o);
                good &= before.ended && after.ended && after.fault.empty();
                if (!after.fault.empty()) std::printf("  check: %s\n", after.fault.c_str());
                const double frames = after.frames_up - before.frames_up, phases = after.phases - before.phases;
                const auto in_runs = after.counters.run_launches - before.counters.run_launches;
                const auto done = after.counters.launches_done - before.counters.launches_done;
                std::printf(
                    "| %s | %s | %.0f | %.2f | %.0f %% | %llu | %.1f |\n", w.name.c_str(),
                    rails == Rails::on_demand ? "on demand"
                    : runs                    ? "provisioned, runs"
                                              : "provisioned",
                    frames / count, phases > 0 ? frames / phases : 0,
                    done > 0 ? 100.0 * static_cast<double>(in_runs) / static_cast<double>(done) : 0,
                    static_cast<unsigned long long>((after.counters.revocations - before.counters.revocations) / count),
                    after.iteration_ms);
                std::fflush(stdout);
            }
        }
    }
    return good ? 0 : 1;
}
