#include "tools/replay/layered_shape.h"

#include <algorithm>

#include "tools/replay/pattern.h"

namespace opus::replay {
namespace {

class Draw {
public:
    explicit Draw(std::uint64_t seed) : seed_(mix(seed, 0x6c617965726564)) {}
    std::uint64_t between(std::uint64_t least, std::uint64_t most) {
        return least + mix(seed_, at_++) % (most - least + 1);
    }
    std::uint32_t number(std::uint32_t least, std::uint32_t most) {
        return static_cast<std::uint32_t>(between(least, most));
    }
    bool chance(std::uint32_t percent) { return between(0, 99) < percent; }
    template <class T>
    T one_of(const std::vector<T>& values) {
        return values[between(0, values.size() - 1)];
    }

private:
    std::uint64_t seed_, at_ = 0;
};

constexpr std::uint64_t kMiB = 1u << 20;

// Two ports a GPU: an all-to-all joins at most three nodes, a ring any number.
void draw_groups(Draw& draw, LayeredShape& s) {
    do {
        s.stages = draw.number(1, 4);
        s.replicas = draw.number(1, 4);
    } while (s.nodes() == 1);
    if (s.nodes() <= 8 && draw.chance(15)) s.gpus = draw.one_of<std::uint32_t>({2, 4});
    s.tensor = s.gpus > 1 && draw.chance(70);
    if (s.replicas > 1 && draw.chance(60)) s.expert = s.replicas == 3 ? 3 : 2;
    if (s.replicas > 1 && s.expert == 1 && draw.chance(30))
        s.context = s.replicas == 4 && draw.chance(50) ? 2 : s.replicas;
    s.apart = draw.chance(60);
    s.combines = draw.chance(40);
}

void draw_pipeline(Draw& draw, LayeredShape& s) {
    s.micro_batches = draw.number(1, s.stages == 1 ? 4 : 8);
    if (s.stages == 1) return;
    switch (draw.number(0, 9)) {
        case 0:
        case 1:
        case 2: s.gpipe = true; break;
        case 3: s.order = PipelineOrder::zero_bubble; break;
        case 4: s.order = PipelineOrder::interleaved; break;
        default: break;
    }
    // Transfers in program order meet only where no stage has more than one thing to do at a time.
    const bool plain = s.order == PipelineOrder::one_forward_one_backward;
    const std::uint32_t kind = draw.number(0, 9);
    if (plain && kind >= 6) s.exchange = kind == 9 ? Exchange::one_for_all : Exchange::grouped;
    if (s.gpipe && kind == 5) s.exchange = Exchange::in_turn;
    if (s.order == PipelineOrder::interleaved) {
        s.chunks = draw.number(2, 3);
        s.micro_batches = (s.micro_batches + s.stages - 1) / s.stages * s.stages;
    }
    s.meets_first = s.chunks > 1 || draw.chance(30);
    s.tied = draw.chance(20);
}

// A few kinds of layers, that come again, or every one another.
void draw_layers(Draw& draw, LayeredShape& s) {
    const std::uint64_t shortest = draw.one_of<std::uint64_t>({500, 2'000, 10'000});
    const std::uint64_t longest = draw.one_of<std::uint64_t>({12'000, 30'000, 60'000});
    const bool alike = draw.chance(25), same_stages = draw.chance(40);
    const std::uint32_t each = draw.number(std::max(1u, s.chunks), 6),
                        with_experts = draw.one_of<std::uint32_t>({30, 60, 100});
    const auto layer = [&] {
        LayeredShape::Layer l;
        l.forward_us = draw.between(shortest / 500, longest / 500) * 500;
        l.bytes = kMiB << draw.number(0, 6);
        l.experts = s.expert > 1 && draw.chance(with_experts);
        return l;
    };
    for (std::uint32_t stage = 0; stage < s.stages; ++stage) {
        if (stage > 0 && same_stages) {
            s.layers.push_back(s.layers.front());
            continue;
        }
        const std::uint32_t count = draw.chance(70) ? each : draw.number(std::max(1u, s.chunks), 6);
        s.layers.emplace_back(alike ? std::vector(count, layer()) : std::vector<LayeredShape::Layer>{});
        while (s.layers.back().size() < count) s.layers.back().push_back(layer());
    }
    s.backward_percent = draw.one_of<std::uint32_t>({150, 200, 200, 250});
    s.weights_percent = draw.number(30, 60);
    s.activation_bytes = kMiB << draw.number(2, 6);
    s.expert_bytes = kMiB << draw.number(2, 5);
}

void draw_gradients(Draw& draw, LayeredShape& s) {
    s.sharding =
        draw.one_of<Sharding>({Sharding::none, Sharding::none, Sharding::optimizer, Sharding::optimizer, Sharding::full});
    s.regathers = draw.chance(60);
    s.shard = s.replicas;
    if (s.sharding == Sharding::full && s.replicas == 4 && draw.chance(40)) s.shard = 2;
    s.buckets = draw.number(1, 6);
    s.norm = draw.one_of<LayeredShape::Norm>(
        {LayeredShape::Norm::none, LayeredShape::Norm::pipeline, LayeredShape::Norm::world, LayeredShape::Norm::world});
    s.optimizer_us = draw.between(2, 40) * 1'000;
}

void draw_habits(Draw& draw, LayeredShape& s) {
    if (draw.chance(25)) s.load_us = draw.between(1, 40) * 500;
    if (draw.chance(15)) s.optimizer_every = draw.number(2, 4);
    if (draw.chance(25)) s.evaluate_every = draw.number(3, 7);
    if (draw.chance(5)) s.checkpoint_every = draw.number(5, 9);
    if (draw.chance(35)) {
        s.slow = draw.number(0, s.nodes() - 1);
        s.slow_percent = draw.one_of<std::uint32_t>({102, 105, 110, 125, 150});
    }
    if (draw.chance(8)) s.lengths = {1, 0.5, 1.5};
}

}  // namespace

LayeredShape draw_layered(std::uint64_t seed) {
    Draw draw(seed);
    LayeredShape s;
    draw_groups(draw, s);
    draw_pipeline(draw, s);
    draw_layers(draw, s);
    draw_gradients(draw, s);
    draw_habits(draw, s);
    return s;
}

}  // namespace opus::replay
