// The table of docs/workloads.md: what of each generated workload the predictor foretells, and what it costs. With
// `--dark-ms`, of its launches as Opus lets them begin.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>

#include "manager/core/predictor.h"
#include "test/manager/prediction_row.h"

int main(int argc, char** argv) {
    using namespace opus::manager;
    double dark_ms = -1;
    std::uint32_t learned = 0;
    CLI::App app{"what of each workload is foretold"};
    app.add_option("--dark-ms", dark_ms, "on rails of this dark time, provisioned, with runs; else never dark");
    app.add_option("--learned", learned, "iterations that do not count, at least");
    CLI11_PARSE(app, argc, argv);
    std::printf(
        "| workload | iterations | launches | phase changes | foretold | wrong | silent | too early | ns a launch |\n"
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n");
    bool halted = false;
    for (PredictedJob& job : predicted_jobs()) {
        job.learned = std::max(job.learned, learned);
        const PredictionRow r = dark_ms < 0 ? predict(job) : predict_on_rails(job, dark_ms);
        halted |= !r.ended;
        std::printf("| %s | %u | %llu | %llu | %.2f %% | %llu | %llu | %llu | %.0f |%s\n", r.name.c_str(), r.iterations,
                    static_cast<unsigned long long>(r.launches), static_cast<unsigned long long>(r.transitions),
                    100 * r.share(), static_cast<unsigned long long>(r.wrong), static_cast<unsigned long long>(r.silent),
                    static_cast<unsigned long long>(r.too_early), r.ns_a_launch, r.ended ? "" : " came to a halt");
        std::fflush(stdout);
    }
    std::printf("\npredictor: %zu bytes a rank\n", Predictor::kBytes);
    return halted ? 1 : 0;
}
