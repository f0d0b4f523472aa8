// Training of a model that everybody knows, or of one's own, as a workload: by the published dimensions of the model, the degrees of
// its parallelisms and what a GPU does. Order and overlap are those of opus-replay's generators (docs/workloads.md).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/replay/workload.h"

namespace CLI {
class App;
}

namespace opus::job {

struct Model {
    const char* name;
    std::uint32_t layers, hidden, heads, kv_heads, feed_forward, vocabulary;
    std::uint32_t matrices;  // of a feed-forward block: 3 where it is gated
    // Mixture of experts; 0: none.
    std::uint32_t experts, active, expert_feed_forward, shared;
    std::uint32_t dense;  // layers without experts, at the beginning. Workloads have all layers alike
    double attention;     // parameters of a layer's attention, in millions; 0: by heads
    const char* source;
};
const std::vector<Model>& models();
// All of its parameters, embeddings too.
double parameters_of(const Model& model);

struct ModelOptions {
    std::string model = "llama3-8b";
    std::uint32_t layers = 0, hidden = 0, feed_forward = 0;  // one's own; 0: the model's
    std::uint32_t tensor = 8, pipeline = 1, data = 1, context = 1, expert = 1;
    std::string sharding = "zero1", schedule = "1f1b";
    std::uint32_t chunks = 2, micro_batches = 8, micro_batch = 1, sequence = 8192, iterations = 8;
    std::uint32_t gpus_per_node = 8;
    double tflops = 400;  // of a GPU, sustained
};

void model_arguments(CLI::App& app, ModelOptions& options);
// Throws std::invalid_argument where the numbers do not fit together.
replay::Workload model_job(const ModelOptions& options);

}  // namespace opus::job
