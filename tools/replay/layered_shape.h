// A training job drawn at random: what it is made of. The same seed, the same job, on any machine. Pure; generators only.
#pragma once

#include <cstdint>
#include <vector>

#include "tools/replay/training.h"

namespace opus::replay {

// How neighbours of a pipeline exchange activations and gradients.
enum class Exchange : std::uint8_t {
    both_ways,   // a communicator for each direction of each pair; receives on streams of their own, posted early
    in_turn,     // the same, but every transfer is on the stream that computes
    grouped,     // one communicator a pair; a send and the receive that follows it are one launch (Megatron-LM)
    one_for_all  // the same, but all stages share one communicator
};

struct LayeredShape {
    struct Layer {
        std::uint64_t forward_us = 0, bytes = 0;  // bytes: of its parameters
        bool experts = false;
    };

    std::uint32_t stages = 1, replicas = 1, gpus = 1;
    bool tensor = false;  // the GPUs of a node share each layer
    std::uint32_t micro_batches = 1, chunks = 1;
    bool gpipe = false;  // all forward passes, then all backward passes
    PipelineOrder order = PipelineOrder::one_forward_one_backward;
    Exchange exchange = Exchange::both_ways;
    bool meets_first = false;  // neighbours exchange four bytes before the first iteration
    Sharding sharding = Sharding::none;
    bool regathers = false;                  // fully sharded: parameters are gathered for each pass anew
    std::uint32_t shard = 1;                 // replicas that share parameters; the rest are copies (hybrid sharding)
    std::uint32_t expert = 1;                // replicas of an expert group
    std::uint32_t context = 1;               // replicas of a ring of attention
    bool apart = false;                      // all-to-alls have a stream of their own
    bool combines = false;                   // two all-to-alls a layer and pass
    std::vector<std::vector<Layer>> layers;  // of each stage
    std::uint32_t backward_percent = 200, weights_percent = 50;  // of the forward pass; of the backward pass
    std::uint32_t buckets = 1;
    std::uint64_t activation_bytes = 0, expert_bytes = 0;
    bool tied = false;  // the first and the last stage share embeddings
    enum class Norm : std::uint8_t { none, pipeline, world } norm = Norm::none;
    std::uint64_t optimizer_us = 0, load_us = 0;  // load_us: the host reads data before the first pass
    std::uint32_t optimizer_every = 1, evaluate_every = 0, checkpoint_every = 0;
    std::uint32_t slow = kNobody, slow_percent = 100;  // a replica of a stage, as a number: its passes take longer
    std::vector<double> lengths;

    std::uint32_t nodes() const { return stages * replicas; }
};

LayeredShape draw_layered(std::uint64_t seed);

}  // namespace opus::replay
