#include "tools/replay/generate.h"

#include "tools/replay/workload_builder.h"

namespace opus::replay {
namespace {

constexpr std::uint32_t kDpBuckets = 4;

// Same local index on every node.
std::vector<std::vector<std::uint32_t>> across_nodes(const GenerateOptions& o) {
    std::vector<std::vector<std::uint32_t>> groups(o.gpus);
    for (std::uint32_t g = 0; g < o.gpus; ++g)
        for (std::uint32_t n = 0; n < o.nodes; ++n) groups[g].push_back(n * o.gpus + g);
    return groups;
}
std::vector<std::uint32_t> everyone(const GenerateOptions& o) {
    std::vector<std::uint32_t> ranks(std::size_t(o.nodes) * o.gpus);
    for (std::uint32_t r = 0; r < ranks.size(); ++r) ranks[r] = r;
    return ranks;
}
std::vector<std::uint32_t> node_ranks(const GenerateOptions& o, std::uint32_t node) {
    std::vector<std::uint32_t> ranks;
    for (std::uint32_t g = 0; g < o.gpus; ++g) ranks.push_back(node * o.gpus + g);
    return ranks;
}

void fsdp_pass(WorkloadBuilder& b, const GenerateOptions& o, bool backward) {
    const std::string name = backward ? "backward" : "forward";
    for (std::uint32_t i = 0; i < o.layers; ++i) {
        if (i >= 2) b.wait("gather", "computed" + std::to_string(i % 2));
        b.collective(StepKind::all_gather, "dp", "gather", o.layer_bytes, DType::bfloat16, name);
        b.record("gather", "gathered" + std::to_string(i % 2));
        b.wait("compute", "gathered" + std::to_string(i % 2));
        b.compute("compute", backward ? o.backward_us : o.forward_us, name);
        b.record("compute", "computed" + std::to_string(i % 2));
        if (!backward) continue;
        b.wait("scatter", "computed" + std::to_string(i % 2));
        b.collective(StepKind::reduce_scatter, "dp", "scatter", std::uint64_t{2} * o.nodes * o.layer_bytes, DType::float32,
                     "gradients");
    }
}

class OneForwardOneBackward {
public:
    OneForwardOneBackward(WorkloadBuilder& b, const GenerateOptions& o, std::uint32_t stage)
        : b_(b), o_(o), stage_(stage), last_(o.nodes - 1) {}

    void program() {
        const std::uint32_t warm = std::min(o_.micro_batches, last_ - stage_);
        std::uint32_t f = 0, back = 0;
        receive_activation();
        while (f < warm) forward(f++);
        while (f < o_.micro_batches) {
            forward(f++);
            backward(back++);
        }
        while (back < o_.micro_batches) backward(back++);
    }

private:
    // The next receive is posted as soon as the one before it is used: long before its sender is ready.
    void receive_activation() {
        if (stage_ == 0) return;
        b_.transfer(StepKind::recv, "pp", stage_ - 1, "receive", o_.activation_bytes, "activation");
        b_.record("receive", "activation");
    }
    void forward(std::uint32_t i) {
        if (stage_ > 0) b_.wait("compute", "activation");
        b_.compute("compute", o_.forward_us * o_.layers, "forward " + std::to_string(i));
        if (i + 1 < o_.micro_batches) receive_activation();
        if (stage_ == last_) return;
        b_.after("send", "compute", "produced");
        b_.transfer(StepKind::send, "pp", stage_ + 1, "send", o_.activation_bytes, "activation");
        if (i == 0) receive_gradient();
    }
    void receive_gradient() {
        b_.transfer(StepKind::recv, "pg", stage_ + 1, "gradients", o_.activation_bytes, "gradient");
        b_.record("gradients", "gradient");
    }
    void backward(std::uint32_t i) {
        if (stage_ < last_) b_.wait("compute", "gradient");
        b_.compute("compute", o_.backward_us * o_.layers, "backward " + std::to_string(i));
        if (stage_ < last_ && i + 1 < o_.micro_batches) receive_gradient();
        if (stage_ == 0) return;
        b_.after("send gradients", "compute", "differentiated");
        b_.transfer(StepKind::send, "pg", stage_ - 1, "send gradients", o_.activation_bytes, "gradient");
    }

    WorkloadBuilder& b_;
    const GenerateOptions& o_;
    std::uint32_t stage_, last_;
};

}  // namespace

Workload generate_dp(const GenerateOptions& o) {
    WorkloadBuilder b("dp", o.nodes, o.gpus, o.iterations);
    b.comm("dp", "", across_nodes(o));
    b.role("rank", everyone(o));
    b.compute("compute", o.forward_us * o.layers, "forward");
    const std::uint32_t buckets = std::min(kDpBuckets, o.layers);
    for (std::uint32_t i = 0; i < buckets; ++i) {
        b.compute("compute", o.backward_us * o.layers / buckets, "backward");
        b.after("reduce", "compute", "bucket" + std::to_string(i));
        b.collective(StepKind::all_reduce, "dp", "reduce", 2 * o.layer_bytes * o.layers / buckets, DType::bfloat16,
                     "gradients");
    }
    b.after("compute", "reduce", "reduced");
    b.compute("compute", o.forward_us, "optimizer");
    return std::move(b.workload());
}

Workload generate_fsdp(const GenerateOptions& o) {
    WorkloadBuilder b("fsdp", o.nodes, o.gpus, o.iterations);
    b.comm("dp", "", across_nodes(o));
    b.role("rank", everyone(o));
    fsdp_pass(b, o, false);
    fsdp_pass(b, o, true);
    b.after("compute", "scatter", "scattered");
    b.collective(StepKind::all_reduce, "dp", "compute", 4, DType::float32, "gradient norm");
    b.compute("compute", o.forward_us, "optimizer");
    return std::move(b.workload());
}

Workload generate_pp(const GenerateOptions& o) {
    WorkloadBuilder b("pp", o.nodes, o.gpus, o.iterations);
    b.comm("pp", "", across_nodes(o));
    b.comm("pg", "pp", across_nodes(o));  // gradients flow in a communicator of their own
    for (std::uint32_t stage = 0; stage < o.nodes; ++stage) {
        b.role("stage" + std::to_string(stage), node_ranks(o, stage));
        OneForwardOneBackward(b, o, stage).program();
        b.compute("compute", o.forward_us, "optimizer");
    }
    return std::move(b.workload());
}

const std::vector<Generator>& generators() {
    static const std::vector<Generator> all = {
        {"dp", "data parallel: gradient buckets all-reduced behind the backward pass", generate_dp},
        {"fsdp", "fully sharded: layers gathered one ahead, gradients reduce-scattered", generate_fsdp},
        {"pp", "pipeline: one stage a node, 1F1B, receives posted early", generate_pp},
        {"llama3-8b", "the job of the paper: 16 GPUs, TP=4 FSDP=2 PP=2 (only --iterations applies)",
         generate_llama3_8b},
    };
    return all;
}

}  // namespace opus::replay
