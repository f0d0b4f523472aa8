#include "tools/replay/training.h"

#include <stdexcept>

namespace opus::replay {
namespace {

constexpr std::uint32_t kBuckets = 4;  // of gradients, in each chunk
constexpr std::uint64_t kCheckpointUs = 1'000'000;

std::uint32_t divided(std::uint32_t nodes, const TrainingShape& s) {
    if (s.pipeline == 0 || s.context == 0 || nodes % (s.pipeline * s.context) != 0)
        throw std::invalid_argument(std::to_string(nodes) + " nodes are not a multiple of pipeline x context, " +
                                    std::to_string(s.pipeline) + " x " + std::to_string(s.context));
    const std::uint32_t data = nodes / (s.pipeline * s.context);
    if (s.expert == 0 || data % s.expert != 0)
        throw std::invalid_argument("experts over " + std::to_string(s.expert) + " nodes do not divide the " +
                                    std::to_string(data) + " nodes of a data-parallel group");
    if (s.expert > 1 && s.context > 1) throw std::invalid_argument("expert and context parallel are not mixed here");
    return data;
}

std::uint32_t chunks_of(const GenerateOptions& o, const TrainingShape& s) {
    return s.order == PipelineOrder::interleaved && s.pipeline > 1 ? std::max(1u, o.chunks) : 1;
}

// Interleaving takes micro-batches in groups of as many as there are stages.
std::uint32_t micro_batches_of(const GenerateOptions& o, const TrainingShape& s) {
    if (chunks_of(o, s) == 1) return o.micro_batches;
    return (o.micro_batches + s.pipeline - 1) / s.pipeline * s.pipeline;
}

}  // namespace

Training::Training(std::string name, const GenerateOptions& o, const TrainingShape& s)
    : o_(o),
      s_(s),
      data_(divided(o.nodes, s)),
      micro_batches_(micro_batches_of(o, s)),
      chunks_(chunks_of(o, s)),
      chunk_layers_(std::max(1u, o.layers / chunks_of(o, s))),
      b_(std::move(name), o.nodes, o.gpus, o.iterations) {}

std::uint32_t Training::rank(std::uint32_t stage, std::uint32_t data, std::uint32_t context, std::uint32_t gpu) const {
    return ((stage * data_ + data) * s_.context + context) * o_.gpus + gpu;
}

void Training::communicators() {
    std::vector<Ranks> all(1), tensor, context, data, expert, across;
    for (std::uint32_t r = 0; r < o_.nodes * o_.gpus; ++r) all[0].push_back(r);
    for (std::uint32_t n = 0; n < o_.nodes; ++n) {
        tensor.emplace_back();
        for (std::uint32_t g = 0; g < o_.gpus; ++g) tensor.back().push_back(n * o_.gpus + g);
    }
    for (std::uint32_t g = 0; g < o_.gpus; ++g) {
        for (std::uint32_t s = 0; s < s_.pipeline; ++s) {
            data.emplace_back();
            for (std::uint32_t d = 0; d < data_; ++d) {
                context.emplace_back();
                for (std::uint32_t c = 0; c < s_.context; ++c) {
                    context.back().push_back(rank(s, d, c, g));
                    data.back().push_back(rank(s, d, c, g));
                }
            }
            for (std::uint32_t e = 0; e < s_.expert; ++e) {
                across.emplace_back();
                for (std::uint32_t d = e; d < data_; d += s_.expert) across.back().push_back(rank(s, d, 0, g));
            }
        }
    }
    for (std::uint32_t s = 0; s < s_.pipeline; ++s)
        for (std::uint32_t d = 0; d < data_; ++d) {
            if (d % s_.expert == 0) expert.emplace_back();
            for (std::uint32_t g = 0; g < o_.gpus; ++g) expert.back().push_back(rank(s, d, 0, g));
        }
    b_.comm("world", "", all);
    if (s_.tensor && o_.gpus > 1) b_.comm("tp", "world", tensor);
    for (std::uint32_t s = 0; s < edges(); ++s) {
        std::vector<Ranks> neighbours;
        for (std::uint32_t g = 0; g < o_.gpus; ++g)
            for (std::uint32_t d = 0; d < data_; ++d)
                for (std::uint32_t c = 0; c < s_.context; ++c)
                    neighbours.push_back({rank(s, d, c, g), rank((s + 1) % s_.pipeline, d, c, g)});
        b_.comm("pp" + std::to_string(s), "world", neighbours);
        b_.comm("pg" + std::to_string(s), "world", neighbours);
    }
    if (s_.context > 1) b_.comm("cp", "world", context);
    if (data_ * s_.context > 1) b_.comm("dp", "world", data);
    if (s_.expert > 1) b_.comm("ep", "world", expert);
    if (s_.expert > 1 && data_ > s_.expert) b_.comm("edp", "world", across);
}

Workload Training::workload() {
    b_.workload().lengths = o_.lengths;
    communicators();
    for (std::uint32_t s = 0; s < s_.pipeline; ++s)
        for (std::uint32_t c = 0; c < s_.context; ++c) role(s, c);
    return std::move(b_.workload());
}

void Training::role(std::uint32_t stage, std::uint32_t context) {
    stage_ = stage, context_ = context;
    Ranks ranks;
    for (std::uint32_t d = 0; d < data_; ++d)
        for (std::uint32_t g = 0; g < o_.gpus; ++g) ranks.push_back(rank(stage, d, context, g));
    b_.role("stage" + std::to_string(stage) + (s_.context > 1 ? "part" + std::to_string(context) : ""), ranks);
    first_uses();
    iteration();
    if (o_.evaluate_every != 0) evaluation();
    if (o_.checkpoint_every != 0) checkpoint();
}

std::vector<Pass> Training::passes() const {
    switch (s_.order) {
        case PipelineOrder::interleaved: return interleaved(s_.pipeline, stage_, micro_batches_, chunks_);
        case PipelineOrder::zero_bubble: return zero_bubble(s_.pipeline, stage_, micro_batches_);
        default: return one_forward_one_backward(s_.pipeline, stage_, micro_batches_);
    }
}

// NCCL makes its connections on the host, both sides at once: all pairs in one order, or early receives of
// a pipeline that goes round would wait for each other.
void Training::first_uses() {
    b_.first_only(true);
    for (std::uint32_t edge = 0; edge < edges(); ++edge)
        for (const char* way : {"pp", "pg"}) {
            const std::uint32_t from = way[1] == 'p' ? edge : (edge + 1) % s_.pipeline;
            const bool here = stage_ == edge || stage_ == (edge + 1) % s_.pipeline;
            if (here) transfer(stage_ == from ? StepKind::send : StepKind::recv, way, edge, "first use", 4, "meet");
        }
    b_.first_only(false);
}

void Training::transfer(StepKind kind, const char* way, std::uint32_t edge, const char* stream, std::uint64_t bytes,
                        const char* name) {
    const std::string comm = way + std::to_string(edge);
    const std::uint32_t peer = stage_ == edge ? 1 : 0;
    b_.varies(bytes > 4);
    b_.transfer(kind, comm, peer, stream, bytes, name);
    b_.varies(false);
}

void Training::iteration() {
    const std::vector<Pass> all = passes();
    activations_ = gradients_ = 0;
    for (const Pass& p : all) {
        activations_ += p.kind == PassKind::forward && takes_activation(p.chunk);
        gradients_ += p.kind == PassKind::backward && gives_activation(p.chunk);
    }
    post_activation();
    bool first = true;
    for (const Pass& p : all) {
        if (p.kind == PassKind::forward) forward(p);
        if (first) post_gradient(), first = false;
        if (p.kind == PassKind::backward) backward(p);
        if (p.kind == PassKind::weights) weights(p);
    }
    optimizer();
}

void Training::evaluation() {
    b_.every(o_.evaluate_every);
    std::vector<Pass> all;
    activations_ = 0;
    for (const Pass& p : passes())
        if (p.kind == PassKind::forward) all.push_back(p), activations_ += takes_activation(p.chunk);
    post_activation();
    for (const Pass& p : all) forward(p);
    b_.collective(StepKind::all_reduce, "world", "compute", 4, DType::float32, "evaluation loss");
    b_.every(1);
}

void Training::checkpoint() {
    b_.every(o_.checkpoint_every);
    b_.sync();
    b_.collective(StepKind::all_gather, "world", "compute", 64, DType::uint8, "checkpoint plan");
    b_.compute("compute", kCheckpointUs, "checkpoint written");
    b_.collective(StepKind::all_reduce, "world", "compute", 4, DType::int32, "checkpoint complete");
    b_.every(1);
}

// A receive is posted as soon as the one before it is used: long before its sender is ready.
void Training::post_activation() {
    if (activations_ == 0) return;
    --activations_;
    transfer(StepKind::recv, "pp", before(), "receive", o_.activation_bytes, "activation");
    b_.record("receive", "activation");
}

void Training::post_gradient() {
    if (gradients_ == 0) return;
    --gradients_;
    transfer(StepKind::recv, "pg", stage_, "gradients", o_.activation_bytes, "gradient");
    b_.record("gradients", "gradient");
}

void Training::forward(const Pass& p) {
    if (takes_activation(p.chunk)) {
        b_.wait("compute", "activation");
        post_activation();
    }
    layers("forward " + std::to_string(p.micro_batch), PassKind::forward, false, p.chunk);
    if (!gives_activation(p.chunk)) return;
    b_.after("send", "compute", "produced");
    transfer(StepKind::send, "pp", stage_, "send", o_.activation_bytes, "activation");
}

void Training::backward(const Pass& p) {
    if (gives_activation(p.chunk)) {
        b_.wait("compute", "gradient");
        post_gradient();
    }
    const bool apart = s_.order == PipelineOrder::zero_bubble;
    layers("backward " + std::to_string(p.micro_batch), PassKind::backward,
           !apart && p.micro_batch + 1 == micro_batches_, p.chunk);
    if (!takes_activation(p.chunk)) return;
    b_.after("send gradients", "compute", "differentiated");
    transfer(StepKind::send, "pg", before(), "send gradients", o_.activation_bytes, "gradient");
}

void Training::weights(const Pass& p) {
    layers("weights " + std::to_string(p.micro_batch), PassKind::weights, p.micro_batch + 1 == micro_batches_, 0);
}

void Training::layers(const std::string& name, PassKind kind, bool last, std::uint32_t) {
    const bool gathered = s_.sharding == Sharding::full && data_ * s_.context > 1 && kind != PassKind::weights;
    if (gathered) b_.after("gather", "compute", "passed");
    for (std::uint32_t i = 0; i < chunk_layers_; ++i) {
        if (gathered) gather_layer(i, name);
        layer(name, kind);
        const std::string computed = "computed" + std::to_string(i % 2);
        b_.record("compute", computed);
        if (last) reduce_layer(i + 1, computed);
    }
}

// Two layers fit in memory: the next is gathered while this one computes.
void Training::gather_layer(std::uint32_t i, const std::string& name) {
    if (i >= 2) b_.wait("gather", "computed" + std::to_string(i % 2));
    b_.collective(StepKind::all_gather, "dp", "gather", o_.layer_bytes, DType::bfloat16, name);
    b_.record("gather", "gathered" + std::to_string(i % 2));
    b_.wait("compute", "gathered" + std::to_string(i % 2));
}

void Training::layer(const std::string& name, PassKind kind) {
    b_.varies(true);
    const bool apart = s_.order == PipelineOrder::zero_bubble;
    std::uint64_t us = kind == PassKind::forward ? o_.forward_us : o_.backward_us / (apart ? 2 : 1);
    if (kind == PassKind::weights) us = o_.backward_us / 2;
    const bool talks = kind != PassKind::weights;  // gradients of weights are local
    if (talks && s_.context > 1)
        ring_attention(name, us / 2, kind);
    else
        b_.compute("compute", us / 2, name);
    const bool tensor = talks && s_.tensor && o_.gpus > 1;
    if (tensor) b_.collective(StepKind::all_reduce, "tp", "compute", o_.activation_bytes, DType::bfloat16, name);
    const bool experts = talks && s_.expert > 1;
    const std::uint64_t expert_bytes = o_.expert_bytes != 0 ? o_.expert_bytes : o_.activation_bytes;
    if (experts) b_.collective(StepKind::all_to_all, "ep", "compute", expert_bytes, DType::bfloat16, "dispatch");
    b_.compute("compute", us - us / 2, name);
    if (experts) b_.collective(StepKind::all_to_all, "ep", "compute", expert_bytes, DType::bfloat16, "combine");
    if (tensor) b_.collective(StepKind::all_reduce, "tp", "compute", o_.activation_bytes, DType::bfloat16, name);
    b_.varies(false);
}

// Keys and values go round while attention works on those that are here; on the way back their gradients
// travel with them.
void Training::ring_attention(const std::string& name, std::uint64_t us, PassKind kind) {
    const std::uint64_t bytes = o_.activation_bytes / 2 / s_.context * (kind == PassKind::backward ? 2 : 1);
    b_.after("ring", "compute", "keys");
    for (std::uint32_t i = 0; i < s_.context; ++i) {
        if (i + 1 < s_.context) {
            b_.group_begin();
            b_.transfer(StepKind::send, "cp", (context_ + 1) % s_.context, "ring", bytes, name);
            b_.transfer(StepKind::recv, "cp", (context_ + s_.context - 1) % s_.context, "ring", bytes, name);
            b_.group_end();
        }
        b_.compute("compute", us / s_.context, name);
        if (i + 1 < s_.context) b_.after("compute", "ring", "passed on");
    }
}

// Gradients of the layers since the last bucket; FSDP scatters each layer's own.
void Training::reduce_layer(std::uint32_t done, const std::string& compute_event) {
    const bool full = s_.sharding == Sharding::full;
    const std::uint32_t buckets = full ? chunk_layers_ : std::min(kBuckets, chunk_layers_);
    const std::uint32_t bucket = done * buckets / chunk_layers_;
    const std::uint32_t before = (done - 1) * buckets / chunk_layers_;
    if (data_ * s_.context == 1 || bucket == before) return;
    const std::uint32_t peers = data_ * s_.context;
    const std::uint64_t bytes = 2 * o_.layer_bytes * chunk_layers_ / buckets;
    b_.every(o_.optimizer_every);
    b_.wait("reduce", compute_event);
    if (s_.sharding == Sharding::none)
        b_.collective(StepKind::all_reduce, "dp", "reduce", bytes, DType::bfloat16, "gradients");
    else
        b_.collective(StepKind::reduce_scatter, "dp", "reduce", bytes * peers, DType::float32, "gradients");
    if (s_.expert > 1 && data_ > s_.expert)
        b_.collective(StepKind::all_reduce, "edp", "reduce",
                      o_.expert_layer_bytes != 0 ? 2 * o_.expert_layer_bytes * chunk_layers_ / buckets : bytes, DType::bfloat16,
                      "expert gradients");
    b_.every(1);
}

void Training::optimizer() {
    b_.every(o_.optimizer_every);
    b_.after("compute", "reduce", "reduced");
    b_.collective(StepKind::all_reduce, "world", "compute", 4, DType::float32, "gradient norm");
    b_.compute("compute", o_.forward_us, "optimizer");
    if (s_.sharding == Sharding::optimizer && data_ * s_.context > 1) {
        const std::uint32_t buckets = std::min(kBuckets, chunk_layers_) * chunks_;
        for (std::uint32_t i = 0; i < buckets; ++i)
            b_.collective(StepKind::all_gather, "dp", "compute", o_.layer_bytes * chunk_layers_ * chunks_ / buckets,
                          DType::bfloat16, "parameters");
    }
    b_.every(1);
}

}  // namespace opus::replay
