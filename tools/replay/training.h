// A training job over any mix of the usual parallelisms, as a workload: tensor parallel inside the node, or
// none; across nodes context (fastest), data with experts inside it, pipeline (slowest), which is
// Megatron-LM's usual order of ranks. Generators only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/replay/generate.h"
#include "tools/replay/pipeline_order.h"
#include "tools/replay/workload_builder.h"

namespace opus::replay {

enum class Sharding : std::uint8_t {
    none,       // gradients all-reduced
    optimizer,  // gradients reduce-scattered, parameters gathered after the optimizer (ZeRO-1)
    full,       // parameters gathered layer by layer in each pass (FSDP)
};
enum class PipelineOrder : std::uint8_t { one_forward_one_backward, interleaved, zero_bubble };

struct TrainingShape {
    std::uint32_t pipeline = 1, context = 1, expert = 1;  // nodes of a group
    bool tensor = true;                                   // the GPUs of a node share each layer
    Sharding sharding = Sharding::none;
    PipelineOrder order = PipelineOrder::one_forward_one_backward;
};

class Training {
public:
    // Throws std::invalid_argument when the numbers do not fit together.
    Training(std::string name, const GenerateOptions& options, const TrainingShape& shape);
    Workload workload();

private:
    using Ranks = std::vector<std::uint32_t>;

    std::uint32_t rank(std::uint32_t stage, std::uint32_t data, std::uint32_t context, std::uint32_t gpu) const;
    void communicators();
    void role(std::uint32_t stage, std::uint32_t context);
    std::vector<Pass> passes() const;

    void first_uses();
    // Along an edge of the pipeline: "pp" activations from stage `edge` to the next, "pg" their gradients back.
    void transfer(StepKind kind, const char* way, std::uint32_t edge, const char* stream, std::uint64_t bytes,
                  const char* name);
    void iteration();
    void evaluation();
    void checkpoint();

    bool takes_activation(std::uint32_t chunk) const { return s_.pipeline > 1 && (stage_ > 0 || chunk > 0); }
    bool gives_activation(std::uint32_t chunk) const {
        return s_.pipeline > 1 && (stage_ + 1 < s_.pipeline || chunk + 1 < chunks_);
    }
    // Pairs of neighbours, each with communicators of its own (as PyTorch's unbatched send and receive have
    // them): the launches of a communicator are in order, and a receive posted early would stop the sends.
    std::uint32_t edges() const { return chunks_ > 1 ? s_.pipeline : s_.pipeline - 1; }
    std::uint32_t before() const { return (stage_ + s_.pipeline - 1) % s_.pipeline; }
    void post_activation();
    void post_gradient();
    void forward(const Pass& pass);
    void backward(const Pass& pass);
    void weights(const Pass& pass);

    // One pass over a chunk's layers; `last`: of the last micro-batch, gradients are complete behind it.
    void layers(const std::string& name, PassKind kind, bool last, std::uint32_t chunk);
    void gather_layer(std::uint32_t i, const std::string& name);
    void layer(const std::string& name, PassKind kind);
    void ring_attention(const std::string& name, std::uint64_t us, PassKind kind);
    void reduce_layer(std::uint32_t done, const std::string& compute_event);
    void optimizer();

    const GenerateOptions o_;
    const TrainingShape s_;
    const std::uint32_t data_, micro_batches_, chunks_, chunk_layers_;
    WorkloadBuilder b_;
    std::uint32_t stage_ = 0, context_ = 0;          // of the role being written
    std::uint32_t activations_ = 0, gradients_ = 0;  // receives still to be posted in this iteration
};

}  // namespace opus::replay
