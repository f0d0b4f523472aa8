// The table of docs/workloads.md: what of each generated workload the predictor foretells, and what it costs.
#include <cstdio>

#include "manager/core/predictor.h"
#include "test/manager/prediction_row.h"

int main() {
    using namespace opus::manager;
    std::printf(
        "| workload | iterations | launches | phase changes | foretold | wrong | silent | too early | ns a launch |\n"
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n");
    bool halted = false;
    for (const PredictedJob& job : predicted_jobs()) {
        const PredictionRow r = predict(job);
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
