#include "tools/opus-sim/model_job.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <stdexcept>

#include "tools/replay/training.h"

namespace opus::job {

using replay::PipelineOrder;
using replay::Sharding;

const std::vector<Model>& models() {
    static const std::vector<Model> all = {
        {"llama3-8b", 32, 4096, 32, 8, 14336, 128256, 3, 0, 0, 0, 0, 0, 0, "Llama 3 herd of models, 2024, table 3"},
        {"llama3-70b", 80, 8192, 64, 8, 28672, 128256, 3, 0, 0, 0, 0, 0, 0, "Llama 3 herd of models, 2024, table 3"},
        {"llama3-405b", 126, 16384, 128, 8, 53248, 128256, 3, 0, 0, 0, 0, 0, 0, "Llama 3 herd of models, 2024, table 3"},
        {"gpt3-175b", 96, 12288, 96, 96, 49152, 50257, 2, 0, 0, 0, 0, 0, 0,
         "Language models are few-shot learners, 2020, table 2.1"},
        {"mixtral-8x7b", 32, 4096, 32, 8, 14336, 32000, 3, 8, 2, 14336, 0, 0, 0, "Mixtral of experts, 2024, table 1"},
        // Latent attention: 7168 x 1536 + 1536 x 128 x 192 + 7168 x 576 + 512 x 128 x 256 + 128 x 128 x 7168.
        {"deepseek-v3", 61, 7168, 128, 128, 18432, 129280, 3, 256, 8, 2048, 1, 3, 187.1,
         "DeepSeek-V3 technical report, 2024, section 4.2"},
    };
    return all;
}

namespace {

struct LayerSize {
    double shared = 0;   // parameters that all tokens pass
    double experts = 0;  // of all experts
    double active = 0;   // that one token passes, in all
};

LayerSize size_of(const Model& m) {
    LayerSize s;
    const double h = m.hidden, kv = h * m.kv_heads / m.heads;
    const double attention = m.attention > 0 ? m.attention * 1e6 : 2 * h * h + 2 * h * kv;
    if (m.experts == 0) {
        s.shared = attention + static_cast<double>(m.matrices) * h * m.feed_forward;
        s.active = s.shared;
        return s;
    }
    const double expert = static_cast<double>(m.matrices) * h * m.expert_feed_forward;
    s.shared = attention + expert * m.shared + h * m.experts;
    s.experts = expert * m.experts;
    s.active = s.shared + expert * m.active;
    return s;
}

Model model_of(const ModelOptions& o) {
    const auto found = std::find_if(models().begin(), models().end(), [&](const Model& m) { return o.model == m.name; });
    if (found == models().end()) throw std::invalid_argument("no model is called " + o.model);
    Model m = *found;
    if (o.layers != 0) m.layers = o.layers;
    if (o.hidden != 0) m.hidden = o.hidden, m.attention = 0;
    if (o.feed_forward != 0) m.feed_forward = o.feed_forward;
    return m;
}

replay::TrainingShape shape_of(const ModelOptions& o) {
    replay::TrainingShape s;
    s.pipeline = o.pipeline, s.context = o.context, s.expert = o.expert;
    s.tensor = o.tensor > 1;
    s.sharding = o.sharding == "fsdp" ? Sharding::full : o.sharding == "zero1" ? Sharding::optimizer : Sharding::none;
    s.order = o.schedule == "interleaved"   ? PipelineOrder::interleaved
              : o.schedule == "zero-bubble" ? PipelineOrder::zero_bubble
                                            : PipelineOrder::one_forward_one_backward;
    return s;
}

void check(const ModelOptions& o, const Model& m) {
    const auto wrong = [](const std::string& text) { throw std::invalid_argument(text); };
    const std::uint32_t chunks = o.schedule == "interleaved" ? o.chunks : 1;
    if (m.layers % (o.pipeline * chunks) != 0 && m.layers < o.pipeline * chunks)
        wrong("--pipeline " + std::to_string(o.pipeline) + " x " + std::to_string(chunks) + " chunks: there are " +
              std::to_string(m.layers) + " layers only");
    const std::uint64_t world = std::uint64_t{o.tensor} * o.pipeline * o.data * o.context;
    if (world > replay::kMaxWorld)
        wrong(std::to_string(world) + " GPUs are more than the " + std::to_string(replay::kMaxWorld) + " of a workload");
    if (o.expert > 1 && m.experts == 0)
        wrong("--expert " + std::to_string(o.expert) + ": " + o.model + " has no experts");
    if (o.expert > 1 && m.experts % o.expert != 0)
        wrong("--expert " + std::to_string(o.expert) + " does not divide the " + std::to_string(m.experts) + " experts");
}

std::uint64_t whole(double value, std::uint64_t grain) {
    return std::max<std::uint64_t>(1, static_cast<std::uint64_t>(value) / grain) * grain;
}

}  // namespace

double parameters_of(const Model& m) {
    const LayerSize size = size_of(m);
    const double h = m.hidden, embedded = 2 * h * m.vocabulary;
    const double dense = size.shared - static_cast<double>(m.matrices) * h * m.expert_feed_forward * m.shared +
                         static_cast<double>(m.matrices) * h * m.feed_forward;
    return embedded + (m.layers - m.dense) * (size.shared + size.experts) + m.dense * dense;
}

replay::Workload model_job(const ModelOptions& o) {
    const Model m = model_of(o);
    check(o, m);
    const LayerSize size = size_of(m);
    const double tokens = static_cast<double>(o.sequence) * o.micro_batch / o.context;
    const double peers = static_cast<double>(o.data) * o.context;
    // Attention over what lies before: half of each pair of tokens, two products, forward.
    const double flops = 2 * size.active * tokens + 2.0 * o.sequence * tokens * m.hidden;
    replay::GenerateOptions g;
    g.nodes = o.pipeline * o.data * o.context, g.gpus = o.tensor;
    g.layers = (m.layers + o.pipeline - 1) / o.pipeline;
    g.micro_batches = o.micro_batches, g.iterations = o.iterations, g.chunks = o.chunks;
    g.pipeline = o.pipeline, g.context = o.context, g.expert = o.expert;
    g.forward_us = whole(flops / o.tensor / o.tflops / 1e6, 1);
    g.backward_us = 2 * g.forward_us;
    g.activation_bytes = whole(tokens * m.hidden * 2, 4096);
    // Two bytes a parameter; where they are sharded, a rank's share.
    const double held = size.shared + size.experts / o.expert;
    const double mine = (o.expert > 1 ? size.shared : held) / o.tensor * 2 / (o.sharding == "none" ? 1 : peers);
    g.layer_bytes = whole(mine, 4096);
    const double active = m.active;
    g.expert_bytes = m.experts == 0 ? 0 : whole(tokens * m.hidden * 2 * active, std::uint64_t{4096} * o.expert * o.tensor);
    g.expert_layer_bytes = m.experts == 0 ? 0 : whole(size.experts / o.expert / o.tensor * 2, 4096);
    std::string name =
        o.model + "-tp" + std::to_string(o.tensor) + "-pp" + std::to_string(o.pipeline) + "-dp" + std::to_string(o.data);
    if (o.context > 1) name += "-cp" + std::to_string(o.context);
    if (o.expert > 1) name += "-ep" + std::to_string(o.expert);
    replay::Workload w = replay::Training(name, g, shape_of(o)).workload();
    w.source = std::string(m.source) + "; made by opus-sim generate";
    for (std::uint32_t r = 0; r < w.world(); ++r) w.places[r] = {r / o.gpus_per_node, r % o.gpus_per_node};
    return w;
}

void model_arguments(CLI::App& app, ModelOptions& o) {
    std::vector<std::string> names;
    std::string help = "one of";
    for (const Model& m : models()) names.emplace_back(m.name), help += std::string("\n  ") + m.name + ": " + m.source;
    const auto degree = CLI::Range(1u, 65536u);
    app.add_option("MODEL", o.model, help)->required()->check(CLI::IsMember(names));
    app.add_option("--tensor", o.tensor, "GPUs that share each layer")->check(CLI::Range(1, 64))->capture_default_str();
    app.add_option("--pipeline", o.pipeline, "stages")->check(degree)->capture_default_str();
    app.add_option("--data", o.data, "replicas")->check(degree)->capture_default_str();
    app.add_option("--context", o.context, "parts of each sequence, by ring attention")->check(degree)->capture_default_str();
    app.add_option("--expert", o.expert, "replicas that share the experts")->check(degree)->capture_default_str();
    app.add_option("--sharding", o.sharding, "over replicas: none, zero1 (the optimizer's state), fsdp (everything)")
        ->check(CLI::IsMember({"none", "zero1", "fsdp"}))
        ->capture_default_str();
    app.add_option("--schedule", o.schedule, "of the pipeline: 1f1b, interleaved, zero-bubble")
        ->check(CLI::IsMember({"1f1b", "interleaved", "zero-bubble"}))
        ->capture_default_str();
    app.add_option("--chunks", o.chunks, "of a stage, where they are interleaved")->check(CLI::Range(1, 64))->capture_default_str();
    app.add_option("--micro-batches", o.micro_batches, "of a replica and iteration")->check(CLI::Range(1, 4096))->capture_default_str();
    app.add_option("--micro-batch", o.micro_batch, "sequences in each")->check(CLI::Range(1, 4096))->capture_default_str();
    app.add_option("--sequence", o.sequence, "tokens of a sequence")->check(CLI::Range(1, 1 << 24))->capture_default_str();
    app.add_option("--iterations", o.iterations, "iterations")->check(CLI::Range(1, 10000))->capture_default_str();
    app.add_option("--gpus-per-node", o.gpus_per_node, "GPUs of a node")->check(CLI::Range(1, 64))->capture_default_str();
    app.add_option("--gpu-tflops", o.tflops, "what a GPU sustains")->check(CLI::Range(0.001, 1e6))->capture_default_str();
    app.add_option("--layers", o.layers, "a model of your own: as MODEL, but with so many layers")->check(CLI::Range(0, 4096));
    app.add_option("--hidden", o.hidden, "likewise: so wide")->check(CLI::Range(0, 1 << 20));
    app.add_option("--feed-forward", o.feed_forward, "likewise: with feed-forward blocks so wide")->check(CLI::Range(0, 1 << 22));
}

}  // namespace opus::job
