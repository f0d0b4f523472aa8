// Llama3-8B on 16 GPUs of 4 nodes, TP=4 in the node, FSDP=2, PP=2, 1F1B over two micro-batches: the job
// measured in 'Photonic Rails in ML Datacenters', in the order that its authors' profile shows
// (opusfabric/Opus, runs/57865981/profile, MIT): index numbers below are of that profile.
//
// Volumes. A stage's tensor-parallel rank holds 16 layers of 218.1 M / 4 and an embedding (or output) of
// 525.3 M / 4 parameters: 1003.7 M. Two FSDP shards of bfloat16 make 957 MiB that a rank gives in each
// AllGather phase; whole gradients in float32 make the 3829 MiB of the ReduceScatter phase. Both are cut
// into the 17 units that FSDP wraps: 125.25 MiB (shard) for the embedding, 52 MiB for a layer.
#include "tools/replay/generate.h"
#include "tools/replay/workload_builder.h"

namespace opus::replay {
namespace {

constexpr std::uint32_t kUnits = 17;
constexpr std::uint64_t kMiB = 1u << 20;
constexpr std::uint64_t kLayerShard = 52 * kMiB;
constexpr std::uint64_t kEmbeddingShard = 125 * kMiB;
constexpr std::uint64_t kActivation = 64 * kMiB;
// Times that give the profile's windows and an iteration of about 10.2 s (9.8 s of gaps): three forward and three
// backward passes lie one after another on the pipeline's path, then the gradients and the optimizer.
constexpr std::uint64_t kForwardUs = 1'080'000, kBackwardUs = 1'600'000, kGradientUs = 1'420'000, kOptimizerUs = 300'000;

struct Stage {
    std::uint32_t index;      // 0 or 1
    std::uint32_t peer;       // rank of the other stage in the pp communicator
    std::uint32_t embedding;  // unit that is the embedding or output
    bool first() const { return index == 0; }
};

std::uint64_t shard(const Stage& stage, std::uint32_t unit) {
    return unit == stage.embedding ? kEmbeddingShard : kLayerShard;
}

class Llama3 {
public:
    explicit Llama3(WorkloadBuilder& b) : b_(b) {}

    void stage(const Stage& s) {
        b_.role(s.first() ? "stage0" : "stage1", s.first() ? std::vector<std::uint32_t>{0, 1, 2, 3, 4, 5, 6, 7}
                                                           : std::vector<std::uint32_t>{8, 9, 10, 11, 12, 13, 14, 15});
        setup(s);
        if (s.first())
            first_stage(s);
        else
            second_stage(s);
        finish(s);
    }

private:
    // Indices 0 to 18: PyTorch's pipeline meets its neighbour, then passes the shapes through.
    void setup(const Stage& s) {
        const auto here = s.first() ? StepKind::send : StepKind::recv;
        const auto there = s.first() ? StepKind::recv : StepKind::send;
        once([&] { b_.transfer(here, "pp", s.peer, "pp", 4, "meet"); });
        once([&] { b_.transfer(there, "pp", s.peer, "pp", 4, "meet"); });
        if (!s.first()) shapes(s);
        for (std::uint32_t u = 0; u < kUnits; ++u)
            once([&] { b_.collective(StepKind::all_gather, "dp", "gather", shard(s, u), DType::bfloat16, "shape pass"); });
        if (s.first()) shapes(s);
    }
    void shapes(const Stage& s) {
        const auto kind = s.first() ? StepKind::send : StepKind::recv;
        once([&] { b_.transfer(kind, "pp", s.peer, "pp", 8, "shape"); });
        once([&] { b_.transfer(kind, "pp", s.peer, "pp", 512, "shape"); });
    }
    template <class F>
    void once(F add) {
        add();
        b_.last().first_only = true;
    }

    void first_stage(const Stage& s) {
        pass(s, "forward 0", kForwardUs, false);
        send(s, "activation 0");
        pass(s, "forward 1", kForwardUs, false);
        exchange(s, "activation 1", "gradient 0");
        pass(s, "backward 0", kBackwardUs, true);
        receive(s, "gradient 1");
        compute_only("backward 1", kBackwardUs, true);
    }
    void second_stage(const Stage& s) {
        receive(s, "activation 0");
        pass(s, "forward 0", kForwardUs, true);
        pass(s, "backward 0", kBackwardUs, false);
        exchange(s, "gradient 0", "activation 1");
        pass(s, "forward 1", kForwardUs, true);
        compute_only("backward 1", kBackwardUs, false);
        send(s, "gradient 1");
    }

    // One pass over the units: each is gathered while the one before it computes. `received`: the compute
    // needs what the pipeline stream receives; the first gathers do not, and run beside the receive.
    void pass(const Stage& s, const std::string& name, std::uint64_t us, bool received) {
        const bool backward = name.rfind("backward", 0) == 0;
        for (std::uint32_t i = 0; i < kUnits; ++i) {
            const std::uint32_t unit = backward ? kUnits - 1 - i : i;
            if (i == 0) b_.after("gather", "compute", "passed");                // FSDP's root waits for the pass before
            if (i >= 2) b_.wait("gather", "computed" + std::to_string(i % 2));  // two units fit in memory
            b_.collective(StepKind::all_gather, "dp", "gather", shard(s, unit), DType::bfloat16, name);
            b_.record("gather", "gathered" + std::to_string(i % 2));
            if (i > 0) unit_compute(i - 1, us, name, received && i == 1);
        }
        unit_compute(kUnits - 1, us, name, false);
    }
    void unit_compute(std::uint32_t i, std::uint64_t us, const std::string& name, bool received) {
        b_.wait("compute", "gathered" + std::to_string(i % 2));
        if (received) b_.wait("compute", "received");
        tensor_parallel(us / kUnits, name);
        b_.record("compute", "computed" + std::to_string(i % 2));
    }
    void compute_only(const std::string& name, std::uint64_t us, bool received) {
        if (received) b_.wait("compute", "received");
        for (std::uint32_t i = 0; i < kUnits; ++i) tensor_parallel(us / kUnits, name);
    }
    // Attention and feed-forward each end in an all-reduce inside the node.
    void tensor_parallel(std::uint64_t us, const std::string& name) {
        for (int half = 0; half < 2; ++half) {
            b_.compute("compute", us / 2, name);
            b_.collective(StepKind::all_reduce, "tp", "compute", kActivation, DType::bfloat16, name);
        }
    }

    void send(const Stage& s, const std::string& what) {
        b_.after("pp", "compute", "produced");
        b_.transfer(StepKind::send, "pp", s.peer, "pp", kActivation, what);
    }
    void receive(const Stage& s, const std::string& what) {
        b_.transfer(StepKind::recv, "pp", s.peer, "pp", kActivation, what);
        b_.record("pp", "received");
    }
    // 1F1B's steady state: one batched send and receive.
    void exchange(const Stage& s, const std::string& sent, const std::string& received) {
        b_.after("pp", "compute", "produced");
        b_.group_begin();
        b_.transfer(StepKind::send, "pp", s.peer, "pp", kActivation, sent);
        b_.transfer(StepKind::recv, "pp", s.peer, "pp", kActivation, received);
        b_.group_end();
        b_.record("pp", "received");
    }

    // Indices 76 to 96: gradients, their norm, the optimizer, three reductions of the loss.
    void finish(const Stage& s) {
        b_.after("scatter", "compute", "gradients");
        for (std::uint32_t u = kUnits; u-- > 0;) {
            b_.compute("scatter", kGradientUs / kUnits, "pack gradients");
            b_.collective(StepKind::reduce_scatter, "dp", "scatter", 4 * shard(s, u), DType::float32, "gradients");
        }
        b_.after("compute", "scatter", "scattered");
        b_.collective(StepKind::all_reduce, "dp", "compute", 4, DType::float32, "gradient norm");
        b_.compute("compute", kOptimizerUs, "optimizer");
        for (int i = 0; i < 3; ++i) b_.collective(StepKind::all_reduce, "loss", "compute", 4, DType::float32, "loss");
        b_.last().reduction = Reduction::max;
    }

    WorkloadBuilder& b_;
};

}  // namespace

Workload generate_llama3_8b(const GenerateOptions& options) {
    WorkloadBuilder b("llama3-8b-16gpu", 4, 4, options.iterations);
    b.workload().source =
        "order: opusfabric/Opus runs/57865981/profile (MIT); volumes: Photonic Rails in ML Datacenters; "
        "gaps: opusfabric/Opus evaluation (MIT)";
    std::vector<std::vector<std::uint32_t>> dp, pp, tp, all(1);
    for (std::uint32_t g = 0; g < 4; ++g) {
        for (std::uint32_t s = 0; s < 2; ++s) dp.push_back({s * 8 + g, s * 8 + 4 + g});
        for (std::uint32_t d = 0; d < 2; ++d) pp.push_back({d * 4 + g, 8 + d * 4 + g});
        tp.push_back({4 * g, 4 * g + 1, 4 * g + 2, 4 * g + 3});
    }
    for (std::uint32_t r = 0; r < 16; ++r) all[0].push_back(r);
    b.comm("world", "", all);
    b.comm("pp", "world", pp);
    b.comm("dp", "world", dp);
    b.comm("loss", "dp", dp);
    b.comm("tp", "world", tp);
    Llama3 job(b);
    job.stage({0, 1, 0});
    job.stage({1, 0, kUnits - 1});
    return std::move(b.workload());
}

}  // namespace opus::replay
