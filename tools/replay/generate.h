// Workloads made from a few numbers: deterministic, so the same call gives the same file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/replay/workload.h"

namespace opus::replay {

struct GenerateOptions {
    std::uint32_t nodes = 4;
    std::uint32_t gpus = 4;     // of a node
    std::uint32_t layers = 16;  // of one stage
    std::uint32_t micro_batches = 4;
    std::uint32_t iterations = 4;
    std::uint64_t layer_bytes = 52u << 20;       // one rank's shard of a layer's parameters, bfloat16
    std::uint64_t activation_bytes = 64u << 20;  // what a pipeline stage sends for one micro-batch
    std::uint64_t forward_us = 80'000;           // of one layer
    std::uint64_t backward_us = 160'000;
    // Nodes of one group; 0: as the kind of workload has it.
    std::uint32_t pipeline = 0, context = 0, expert = 0;
    std::uint32_t chunks = 2;            // model chunks of a stage, where they are interleaved
    std::uint32_t optimizer_every = 1;   // gradients are reduced and the optimizer runs in every n-th iteration
    std::uint32_t evaluate_every = 0;    // forward passes alone at the end of every n-th iteration; 0: never
    std::uint32_t checkpoint_every = 0;  // everybody meets, writes, meets again
    std::vector<double> lengths;         // sequence lengths, as factors; one is drawn for each iteration
    std::uint64_t expert_bytes = 0;        // of an all-to-all of experts; 0: those of an activation
    std::uint64_t expert_layer_bytes = 0;  // as layer_bytes, of the experts that a rank holds; 0: those of the layer
    std::uint64_t seed = 1;              // of a job that is drawn
};

struct Generator {
    const char* name;
    const char* help;
    // Throws std::invalid_argument when the numbers do not fit together.
    Workload (*make)(const GenerateOptions&);
    bool drawn = false;  // by the seed, which stands for all else but the number of iterations
};
// All kinds; docs/workloads.md says what each does and where its order comes from.
const std::vector<Generator>& generators();
// Of one kind; it must exist.
Workload generate(const std::string& kind, const GenerateOptions& options);

// The job of the paper, 16 GPUs on 4 nodes. Only `iterations` is taken from the options.
Workload generate_llama3_8b(const GenerateOptions& options);
// A training job drawn at random. Only `seed` and `iterations` are taken from the options.
Workload generate_layered(const GenerateOptions& options);
// A program drawn at random. Of the options `seed`, `nodes`, `gpus` and `iterations` count.
Workload generate_random(const GenerateOptions& options);

}  // namespace opus::replay
