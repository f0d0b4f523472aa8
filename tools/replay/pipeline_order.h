// In which order a pipeline stage works through its micro-batches. Pure.
#pragma once

#include <cstdint>
#include <vector>

namespace opus::replay {

enum class PassKind : std::uint8_t {
    forward,
    backward,  // gradients of inputs and weights; of the inputs alone where `weights` passes follow
    weights,
};

struct Pass {
    PassKind kind = PassKind::forward;
    std::uint32_t micro_batch = 0;
    std::uint32_t chunk = 0;  // which of the stage's model chunks
};

// 1F1B (PipeDream-Flush): as many forward passes ahead as there are stages behind, then one of each.
std::vector<Pass> one_forward_one_backward(std::uint32_t stages, std::uint32_t stage, std::uint32_t micro_batches);

// Interleaved 1F1B (Megatron-LM, Narayanan et al. 2021): a stage has several chunks of the model and takes
// the micro-batches in groups of `stages`, chunk by chunk. micro_batches: a multiple of stages.
std::vector<Pass> interleaved(std::uint32_t stages, std::uint32_t stage, std::uint32_t micro_batches, std::uint32_t chunks);

// ZB-H1 (Qi et al., Zero Bubble Pipeline Parallelism, 2023): weight gradients apart, and put off by as many
// micro-batches as there are stages before; no stage keeps more activations than 1F1B's first.
std::vector<Pass> zero_bubble(std::uint32_t stages, std::uint32_t stage, std::uint32_t micro_batches);

}  // namespace opus::replay
