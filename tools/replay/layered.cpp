#include "tools/replay/layered.h"

#include <algorithm>
#include <map>

#include "tools/replay/generate.h"

namespace opus::replay {
namespace {

constexpr std::uint64_t kCheckpointUs = 400'000;

std::uint64_t whole(std::uint64_t bytes, std::uint32_t parts) { return bytes / (4 * parts) * (4 * parts); }

}  // namespace

Layered::Layered(std::string name, const LayeredShape& shape, std::uint32_t iterations)
    : s_(shape), b_(std::move(name), shape.nodes(), shape.gpus, iterations) {}

std::uint32_t Layered::rank(std::uint32_t stage, std::uint32_t replica, std::uint32_t gpu) const {
    return (stage * s_.replicas + replica) * s_.gpus + gpu;
}

std::vector<Layered::Ranks> Layered::replicas_by(std::uint32_t size) const {
    std::vector<Ranks> groups;
    for (std::uint32_t g = 0; g < s_.gpus; ++g)
        for (std::uint32_t s = 0; s < s_.stages; ++s)
            for (std::uint32_t r = 0; r < s_.replicas; ++r) {
                if (r % size == 0) groups.emplace_back();
                groups.back().push_back(rank(s, r, g));
            }
    return groups;
}

std::vector<Layered::Ranks> Layered::replicas_across(std::uint32_t size) const {
    std::vector<Ranks> groups;
    for (std::uint32_t g = 0; g < s_.gpus; ++g)
        for (std::uint32_t s = 0; s < s_.stages; ++s)
            for (std::uint32_t at = 0; at < size; ++at) {
                groups.emplace_back();
                for (std::uint32_t r = at; r < s_.replicas; r += size) groups.back().push_back(rank(s, r, g));
            }
    return groups;
}

std::vector<Layered::Ranks> Layered::stages_of(std::uint32_t first, std::uint32_t last, bool between) const {
    std::vector<Ranks> groups;
    for (std::uint32_t g = 0; g < s_.gpus; ++g)
        for (std::uint32_t r = 0; r < s_.replicas; ++r) {
            groups.push_back({rank(first, r, g)});
            for (std::uint32_t s = first + 1; between && s < last; ++s) groups.back().push_back(rank(s, r, g));
            groups.back().push_back(rank(last, r, g));
        }
    return groups;
}

void Layered::communicators() {
    Ranks world;
    for (std::uint32_t r = 0; r < s_.nodes() * s_.gpus; ++r) world.push_back(r);
    b_.comm("world", "", {world});
    if (s_.tensor) {
        std::vector<Ranks> nodes(s_.nodes());
        for (const std::uint32_t r : world) nodes[r / s_.gpus].push_back(r);
        b_.comm("tp", "world", nodes);
    }
    if (s_.replicas > 1) {
        b_.comm("dp", "world", replicas_by(s_.shard));
        if (s_.shard < s_.replicas) b_.comm("copies", "world", replicas_across(s_.shard));
    }
    if (s_.expert > 1) b_.comm("ep", "world", replicas_by(s_.expert));
    if (s_.expert > 1 && s_.expert < s_.replicas) b_.comm("edp", "world", replicas_across(s_.expert));
    if (s_.context > 1) b_.comm("cp", "world", replicas_by(s_.context));
    if (s_.stages > 1) pipeline_communicators();
}

void Layered::pipeline_communicators() {
    const std::uint32_t last = s_.stages - 1;
    if (s_.exchange == Exchange::one_for_all) b_.comm("pipe", "world", stages_of(0, last, true));
    for (std::uint32_t e = 0; e < s_.stages && s_.exchange != Exchange::one_for_all; ++e) {
        if (e == last && s_.chunks == 1) break;
        const std::vector<Ranks> pairs = stages_of(e, (e + 1) % s_.stages, false);
        const std::string number = std::to_string(e);
        if (s_.exchange == Exchange::grouped) {
            b_.comm("p" + number, "world", pairs);
        } else {
            b_.comm("f" + number, "world", pairs);
            b_.comm("b" + number, "world", pairs);
        }
    }
    if (s_.tied) b_.comm("embedding", "world", stages_of(0, last, false));
    if (s_.norm == LayeredShape::Norm::pipeline) b_.comm("mp", "world", stages_of(0, last, true));
}

bool Layered::is_slow(std::uint32_t stage, std::uint32_t replica) const {
    return s_.slow == stage * s_.replicas + replica;
}

Workload Layered::workload() {
    b_.workload().lengths = s_.lengths;
    b_.workload().source = "drawn at random";
    communicators();
    for (std::uint32_t s = 0; s < s_.stages; ++s) {
        std::map<std::pair<bool, std::uint32_t>, Ranks> alike;
        for (std::uint32_t r = 0; r < s_.replicas; ++r) alike[{is_slow(s, r), r % s_.context}].push_back(r);
        for (const auto& [how, replicas] : alike) role(s, replicas);
    }
    return std::move(b_.workload());
}

void Layered::role(std::uint32_t stage, const Ranks& replicas) {
    stage_ = stage, replica_ = replicas.front();
    Ranks ranks;
    for (const std::uint32_t r : replicas)
        for (std::uint32_t g = 0; g < s_.gpus; ++g) ranks.push_back(rank(stage, r, g));
    b_.role("stage" + std::to_string(stage) + "from" + std::to_string(replica_), ranks);
    if (s_.stages > 1 && s_.meets_first) first_uses();
    iteration();
    if (s_.evaluate_every != 0) evaluation();
    if (s_.checkpoint_every != 0) checkpoint();
}

// All pairs in one order: NCCL makes its connections on the host, both sides at once.
void Layered::first_uses() {
    b_.first_only(true);
    for (std::uint32_t e = 0; e < (s_.chunks > 1 ? s_.stages : s_.stages - 1); ++e)
        for (const bool forward : {true, false}) {
            const std::uint32_t next = (e + 1) % s_.stages, from = forward ? e : next;
            if (stage_ == e || stage_ == next)
                transfer(stage_ == from ? StepKind::send : StepKind::recv, forward, e, "first use", 4, "meet");
        }
    b_.first_only(false);
}

std::vector<Pass> Layered::passes() const {
    if (s_.gpipe) {
        std::vector<Pass> all;
        for (const PassKind kind : {PassKind::forward, PassKind::backward})
            for (std::uint32_t m = 0; m < s_.micro_batches; ++m) all.push_back({kind, m, 0});
        return all;
    }
    switch (s_.order) {
        case PipelineOrder::interleaved: return interleaved(s_.stages, stage_, s_.micro_batches, s_.chunks);
        case PipelineOrder::zero_bubble: return zero_bubble(s_.stages, stage_, s_.micro_batches);
        default: return one_forward_one_backward(s_.stages, stage_, s_.micro_batches);
    }
}

void Layered::iteration() {
    if (s_.load_us != 0) b_.host(s_.load_us, "data");
    const std::vector<Pass> all = passes();
    const bool grouped = s_.exchange == Exchange::grouped || s_.exchange == Exchange::one_for_all;
    grouped ? run_grouped(all) : run_apart(all);
    optimizer();
}

void Layered::evaluation() {
    b_.every(s_.evaluate_every);
    std::vector<Pass> all = passes();
    std::erase_if(all, [](const Pass& p) { return p.kind != PassKind::forward; });
    run_apart(all);
    b_.collective(StepKind::all_reduce, "world", "compute", 4, DType::float32, "evaluation loss");
    b_.every(1);
}

void Layered::checkpoint() {
    b_.every(s_.checkpoint_every);
    b_.sync();
    b_.collective(StepKind::all_gather, "world", "compute", 64, DType::uint8, "checkpoint plan");
    b_.compute("compute", kCheckpointUs, "checkpoint written");
    b_.every(1);
}

// --- between stages -------------------------------------------------------------------------------

bool Layered::takes(const Pass& p) const {
    if (s_.stages == 1 || p.kind == PassKind::weights) return false;
    return p.kind == PassKind::forward ? stage_ > 0 || p.chunk > 0 : stage_ + 1 < s_.stages || p.chunk + 1 < s_.chunks;
}

bool Layered::gives(const Pass& p) const {
    if (s_.stages == 1 || p.kind == PassKind::weights) return false;
    return takes({p.kind == PassKind::forward ? PassKind::backward : PassKind::forward, p.micro_batch, p.chunk});
}

// An edge joins stage `edge` and the next.
std::uint32_t Layered::edge_in(const Pass& p) const {
    return p.kind == PassKind::forward ? (stage_ + s_.stages - 1) % s_.stages : stage_;
}
std::uint32_t Layered::edge_out(const Pass& p) const {
    return p.kind == PassKind::forward ? stage_ : (stage_ + s_.stages - 1) % s_.stages;
}

void Layered::transfer(StepKind kind, bool forward, std::uint32_t edge, const std::string& stream, std::uint64_t bytes,
                       const char* name) {
    const bool up = stage_ == edge;  // the other end is the next stage
    b_.varies(bytes > 4);
    if (s_.exchange == Exchange::one_for_all)
        b_.transfer(kind, "pipe", up ? stage_ + 1 : stage_ - 1, stream, bytes, name);
    else
        b_.transfer(kind,
                    (s_.exchange == Exchange::grouped ? "p"
                     : forward                        ? "f"
                                                      : "b") +
                        std::to_string(edge),
                    up ? 1 : 0, stream, bytes, name);
    b_.varies(false);
}

void Layered::receive(const Pass& p) {
    const bool forward = p.kind == PassKind::forward;
    const std::string stream = s_.exchange == Exchange::in_turn ? "compute" : forward ? "activations" : "gradients";
    transfer(StepKind::recv, forward, edge_in(p), stream, s_.activation_bytes, forward ? "activation" : "gradient");
    if (stream != "compute") b_.after("compute", stream, "received on " + stream);
}

void Layered::send(const Pass& p) {
    const bool forward = p.kind == PassKind::forward;
    const std::string stream = s_.exchange == Exchange::in_turn ? "compute"
                               : forward                        ? "send activations"
                                                                : "send gradients";
    if (stream != "compute") b_.after(stream, "compute", "ready on " + stream);
    transfer(StepKind::send, forward, edge_out(p), stream, s_.activation_bytes, forward ? "activation" : "gradient");
}

void Layered::run_apart(const std::vector<Pass>& all) {
    for (const Pass& p : all) {
        if (takes(p)) receive(p);
        pass(p);
        if (gives(p)) send(p);
    }
}

// Where both ends have something for each other, one launch takes it both ways: it is complete when all has passed.
void Layered::exchange(const Pass* sends, const Pass* receives) {
    const bool out = sends != nullptr && gives(*sends), in = receives != nullptr && takes(*receives);
    if (out) b_.after("exchange", "compute", "produced");
    if (out && in) b_.group_begin();
    const auto one = [&](StepKind kind, const Pass& p, std::uint32_t edge) {
        const bool forward = p.kind == PassKind::forward;
        transfer(kind, forward, edge, "exchange", s_.activation_bytes, forward ? "activation" : "gradient");
    };
    if (out) one(StepKind::send, *sends, edge_out(*sends));
    if (in) one(StepKind::recv, *receives, edge_in(*receives));
    if (out && in) b_.group_end();
    if (in) b_.after("compute", "exchange", "received");
}

// Megatron-LM's order: what one pass gives goes with what the next takes, if that comes by the same edge.
void Layered::run_grouped(const std::vector<Pass>& all) {
    const Pass* before = nullptr;
    for (const Pass& p : all) {
        const bool together =
            before != nullptr && before->kind != p.kind && gives(*before) && takes(p) && edge_out(*before) == edge_in(p);
        if (!together) exchange(before, nullptr);
        exchange(together ? before : nullptr, &p);
        pass(p);
        before = &p;
    }
    exchange(before, nullptr);
}

// --- a pass ---------------------------------------------------------------------------------------

std::vector<std::uint32_t> Layered::chunk(std::uint32_t number) const {
    std::vector<std::uint32_t> layers;
    const auto count = static_cast<std::uint32_t>(s_.layers[stage_].size());
    for (std::uint32_t i = 0; i < count; ++i)
        if (i * s_.chunks / count == number) layers.push_back(i);
    return layers;
}

void Layered::pass(const Pass& p) {
    static constexpr const char* kNames[] = {"forward ", "backward ", "weights "};
    const std::string name = kNames[static_cast<int>(p.kind)] + std::to_string(p.micro_batch);
    std::vector<std::uint32_t> layers = chunk(p.chunk);
    if (p.kind != PassKind::forward) std::reverse(layers.begin(), layers.end());
    gathers_ = s_.sharding == Sharding::full && s_.shard > 1 && p.kind != PassKind::weights &&
               (s_.regathers || (p.kind == PassKind::forward && p.micro_batch == 0));
    if (gathers_) b_.after("gather", "compute", "passed");
    const PassKind reduces = s_.order == PipelineOrder::zero_bubble && s_.stages > 1 ? PassKind::weights : PassKind::backward;
    for (std::uint32_t i = 0; i < layers.size(); ++i) {
        if (gathers_) gather(layers, i, name);
        layer(s_.layers[stage_][layers[i]], p.kind, name);
        b_.record("compute", "computed" + std::to_string(i % 2));
        if (p.kind == reduces && p.micro_batch + 1 == s_.micro_batches) reduce(layers, i + 1);
    }
}

// Two layers fit in memory: the next is gathered while this one computes.
void Layered::gather(const std::vector<std::uint32_t>& layers, std::uint32_t i, const std::string& name) {
    const std::string parity = std::to_string(i % 2);
    if (i >= 2) b_.wait("gather", "computed" + parity);
    b_.collective(StepKind::all_gather, "dp", "gather", s_.layers[stage_][layers[i]].bytes / s_.shard / 4 * 4,
                  DType::bfloat16, name);
    b_.record("gather", "gathered" + parity);
    b_.wait("compute", "gathered" + parity);
}

std::uint64_t Layered::us_of(const Layer& l, PassKind kind) const {
    const std::uint64_t slow = is_slow(stage_, replica_) ? s_.slow_percent : 100;
    const std::uint64_t forward = l.forward_us * slow / 100, backward = forward * s_.backward_percent / 100;
    if (kind == PassKind::forward) return forward;
    if (s_.order != PipelineOrder::zero_bubble || s_.stages == 1) return backward;
    return backward * (kind == PassKind::weights ? s_.weights_percent : 100 - s_.weights_percent) / 100;
}

void Layered::layer(const Layer& l, PassKind kind, const std::string& name) {
    const std::uint64_t us = us_of(l, kind), first = l.experts ? us * 3 / 5 : us;
    const bool talks = kind != PassKind::weights;  // gradients of weights are local
    b_.varies(true);
    if (talks && s_.context > 1)
        attention(first, kind, name);
    else
        b_.compute("compute", first, name);
    if (talks && s_.tensor)
        b_.collective(StepKind::all_reduce, "tp", "compute", s_.activation_bytes, DType::bfloat16, name);
    if (talks && l.experts) experts("dispatch");
    if (l.experts) b_.compute("compute", us - first, name);
    if (talks && l.experts && s_.combines) experts("combine");
    b_.varies(false);
}

void Layered::experts(const char* name) {
    if (s_.apart) b_.after("experts", "compute", "routed");
    b_.collective(StepKind::all_to_all, "ep", s_.apart ? "experts" : "compute", whole(s_.expert_bytes, s_.expert),
                  DType::bfloat16, name);
    if (s_.apart) b_.after("compute", "experts", "dispatched");
}

// Keys and values go round while attention works on those that are here.
void Layered::attention(std::uint64_t us, PassKind kind, const std::string& name) {
    const std::uint32_t at = replica_ % s_.context, n = s_.context;
    const std::uint64_t bytes = whole(s_.activation_bytes / (kind == PassKind::backward ? 2 : 4), n);
    b_.after("ring", "compute", "keys");
    for (std::uint32_t i = 0; i < n; ++i) {
        if (i + 1 < n) {
            b_.group_begin();
            b_.transfer(StepKind::send, "cp", (at + 1) % n, "ring", bytes, name);
            b_.transfer(StepKind::recv, "cp", (at + n - 1) % n, "ring", bytes, name);
            b_.group_end();
        }
        b_.compute("compute", us / n, name);
        if (i + 1 < n) b_.after("compute", "ring", "passed on");
    }
}

// Gradients of the layers since the last bucket; fully sharded, each layer's own.
void Layered::reduce(const std::vector<std::uint32_t>& layers, std::uint32_t done) {
    const auto count = static_cast<std::uint32_t>(layers.size());
    const std::uint32_t buckets = s_.sharding == Sharding::full ? count : std::min(s_.buckets, count);
    if (s_.replicas == 1 || done * buckets / count == (done - 1) * buckets / count) return;
    std::uint64_t bytes = 0, of_experts = 0;
    for (std::uint32_t i = done; i > 0 && (i == done || i * buckets / count == (done - 1) * buckets / count); --i) {
        const Layer& l = s_.layers[stage_][layers[i - 1]];
        bytes += l.bytes;
        of_experts += l.experts ? l.bytes : 0;
    }
    b_.every(s_.optimizer_every);
    b_.after("reduce", "compute", "differentiated");
    if (s_.sharding == Sharding::none)
        b_.collective(StepKind::all_reduce, "dp", "reduce", bytes, DType::bfloat16, "gradients");
    else
        b_.collective(StepKind::reduce_scatter, "dp", "reduce", whole(bytes, s_.shard), DType::float32, "gradients");
    if (s_.shard < s_.replicas)
        b_.collective(StepKind::all_reduce, "copies", "reduce", whole(bytes / s_.shard, 1), DType::float32, "gradients");
    if (of_experts != 0 && s_.expert < s_.replicas)
        b_.collective(StepKind::all_reduce, "edp", "reduce", of_experts, DType::bfloat16, "expert gradients");
    b_.every(1);
}

void Layered::optimizer() {
    b_.every(s_.optimizer_every);
    if (s_.tied && s_.stages > 1 && (stage_ == 0 || stage_ + 1 == s_.stages)) {
        b_.after("reduce", "compute", "differentiated");
        b_.collective(StepKind::all_reduce, "embedding", "reduce", s_.activation_bytes, DType::bfloat16, "embedding");
    }
    b_.after("compute", "reduce", "reduced");
    const bool of_pipeline = s_.norm == LayeredShape::Norm::pipeline && s_.stages > 1;
    if (of_pipeline || s_.norm == LayeredShape::Norm::world)
        b_.collective(StepKind::all_reduce, of_pipeline ? "mp" : "world", "compute", 4, DType::float32, "gradient norm");
    b_.compute("compute", s_.optimizer_us, "optimizer");
    if (s_.sharding == Sharding::optimizer && s_.replicas > 1) {
        b_.after("reduce", "compute", "optimized");
        for (const Layer& l : s_.layers[stage_])
            b_.collective(StepKind::all_gather, "dp", "reduce", l.bytes / s_.replicas / 4 * 4, DType::bfloat16,
                          "parameters");
        b_.after("compute", "reduce", "gathered parameters");
    }
    b_.every(1);
}

Workload generate_layered(const GenerateOptions& o) {
    return Layered("layered-" + std::to_string(o.seed), draw_layered(o.seed), o.iterations).workload();
}

}  // namespace opus::replay
