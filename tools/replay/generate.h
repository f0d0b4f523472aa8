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
};

// dp: gradients all-reduced in buckets behind the backward pass, across nodes (one group per local index).
Workload generate_dp(const GenerateOptions& options);
// fsdp: layers gathered one ahead in both passes, gradients reduce-scattered.
Workload generate_fsdp(const GenerateOptions& options);
// pp: one stage a node, 1F1B; receives posted early on their own stream.
Workload generate_pp(const GenerateOptions& options);
// llama3-8b: the job of the paper, 16 GPUs on 4 nodes (docs/workloads.md says what comes from where).
// Only `iterations` is taken from the options.
Workload generate_llama3_8b(const GenerateOptions& options);

struct Generator {
    const char* name;
    const char* help;
    Workload (*make)(const GenerateOptions&);
};
const std::vector<Generator>& generators();

}  // namespace opus::replay
