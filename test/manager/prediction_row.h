// How well the predictor foretells a workload: each rank's launches in the order in which they would begin
// (tools/replay/rehearsal.h), as the manager's core describes them. For the test and for the table.
#pragma once

#include <cstdint>
#include <string>

#include "tools/replay/generate.h"
#include "tools/replay/rehearsal.h"

namespace opus::manager {

struct PredictionRow {
    std::string name;
    std::uint32_t iterations = 0;
    bool ended = false;          // the rehearsal came to its end
    std::uint64_t launches = 0;  // with circuits, of all ranks
    // Phase changes once everything was seen twice: from the third iteration on, or the third optimizer step.
    std::uint64_t transitions = 0, foretold = 0, wrong = 0, silent = 0;
    std::uint64_t too_early = 0;  // a change was foretold, and the phase went on
    double ns_a_launch = 0;

    double share() const { return transitions ? static_cast<double>(foretold) / static_cast<double>(transitions) : 1; }
};

// The workloads of the table: small in layers and GPUs, whole in their order.
struct PredictedJob {
    std::string name;
    enum class Goal : std::uint8_t { all, most, none } goal = Goal::all;
    replay::Workload workload;
    replay::RehearsalOptions options;
    std::uint32_t learned = 2;  // iterations that are not scored
};
PredictionRow predict(const PredictedJob& job);
// In the order in which they begin on rails: provisioned, with runs, by the very cores of managers and controller.
PredictionRow predict_on_rails(PredictedJob job, double dark_ms);
std::vector<PredictedJob> predicted_jobs();

}  // namespace opus::manager
