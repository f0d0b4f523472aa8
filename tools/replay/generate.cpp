#include "tools/replay/generate.h"

#include <stdexcept>

#include "tools/replay/training.h"

namespace opus::replay {
namespace {

TrainingShape shape_of(const GenerateOptions& o, std::uint32_t pipeline, std::uint32_t context, std::uint32_t expert) {
    TrainingShape s;
    s.pipeline = o.pipeline ? o.pipeline : pipeline;
    s.context = o.context ? o.context : context;
    s.expert = o.expert ? o.expert : expert;
    return s;
}
std::uint32_t half(std::uint32_t nodes) { return nodes % 2 == 0 ? nodes / 2 : nodes; }
std::uint32_t pair_of(std::uint32_t nodes) { return nodes % 2 == 0 ? 2 : 1; }

Workload dp(const GenerateOptions& o) { return Training("dp", o, shape_of(o, 1, 1, 1)).workload(); }

Workload fsdp(const GenerateOptions& o) {
    TrainingShape s = shape_of(o, 1, 1, 1);
    s.sharding = Sharding::full;
    return Training("fsdp", o, s).workload();
}

Workload pp(const GenerateOptions& o) { return Training("pp", o, shape_of(o, o.nodes, 1, 1)).workload(); }

Workload interleaved_pp(const GenerateOptions& o) {
    TrainingShape s = shape_of(o, o.nodes, 1, 1);
    s.order = PipelineOrder::interleaved;
    return Training("interleaved", o, s).workload();
}

Workload zero_bubble_pp(const GenerateOptions& o) {
    TrainingShape s = shape_of(o, o.nodes, 1, 1);
    s.order = PipelineOrder::zero_bubble;
    return Training("zero-bubble", o, s).workload();
}

Workload cp(const GenerateOptions& o) {
    TrainingShape s = shape_of(o, 1, half(o.nodes), 1);
    s.sharding = Sharding::full;
    return Training("cp", o, s).workload();
}

Workload ep(const GenerateOptions& o) {
    TrainingShape s = shape_of(o, 1, 1, pair_of(o.nodes));
    s.tensor = false;
    return Training("ep", o, s).workload();
}

Workload three_d(const GenerateOptions& o) {
    TrainingShape s = shape_of(o, pair_of(o.nodes), 1, 1);
    s.sharding = Sharding::optimizer;
    return Training("3d", o, s).workload();
}

Workload four_d(const GenerateOptions& o) {
    TrainingShape s = shape_of(o, pair_of(o.nodes), o.nodes % 4 == 0 ? 2 : 1, 1);
    s.sharding = Sharding::full;
    return Training("4d", o, s).workload();
}

Workload four_d_moe(const GenerateOptions& o) {
    TrainingShape s = shape_of(o, pair_of(o.nodes), 1, o.nodes % 4 == 0 ? 2 : 1);
    s.tensor = false;
    s.sharding = Sharding::optimizer;
    s.order = PipelineOrder::zero_bubble;
    return Training("4d-moe", o, s).workload();
}

}  // namespace

const std::vector<Generator>& generators() {
    static const std::vector<Generator> all = {
        {"dp", "data parallel: gradient buckets all-reduced behind the backward pass", dp},
        {"fsdp", "fully sharded: layers gathered one ahead, gradients reduce-scattered", fsdp},
        {"pp", "pipeline, one stage a node, 1F1B, receives posted early", pp},
        {"interleaved", "pipeline, one stage a node, interleaved 1F1B (--chunks model chunks a stage)", interleaved_pp},
        {"zero-bubble", "pipeline, one stage a node, ZB-H1: weight gradients fill the bubbles", zero_bubble_pp},
        {"cp", "context parallel: ring attention over half the nodes, FSDP over all", cp},
        {"ep", "experts over pairs of nodes by all-to-all, gradients all-reduced", ep},
        {"3d", "tensor x pipeline x data, optimizer state sharded (ZeRO-1)", three_d},
        {"4d", "tensor x context x pipeline x FSDP", four_d},
        {"4d-moe", "experts x data x zero-bubble pipeline, optimizer state sharded", four_d_moe},
        {"llama3-8b", "the job of the paper: 16 GPUs, TP=4 FSDP=2 PP=2 (only --iterations applies)", generate_llama3_8b},
        {"layered", "a training job drawn by --seed (only --iterations applies besides)", generate_layered, true},
        {"random", "a program drawn by --seed, such as NCCL allows (--nodes, --gpus, --iterations apply besides)",
         generate_random, true},
    };
    return all;
}

Workload generate(const std::string& kind, const GenerateOptions& options) {
    for (const Generator& g : generators())
        if (kind == g.name) return g.make(options);
    throw std::invalid_argument("no kind of workload is called " + kind);
}

}  // namespace opus::replay
