// A training job drawn at random, as a workload. Generators only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/replay/layered_shape.h"
#include "tools/replay/workload_builder.h"

namespace opus::replay {

class Layered {
public:
    Layered(std::string name, const LayeredShape& shape, std::uint32_t iterations);
    Workload workload();

private:
    using Ranks = std::vector<std::uint32_t>;
    using Layer = LayeredShape::Layer;

    std::uint32_t rank(std::uint32_t stage, std::uint32_t replica, std::uint32_t gpu) const;
    // One group for each GPU index, stage and `size` consecutive replicas.
    std::vector<Ranks> replicas_by(std::uint32_t size) const;
    std::vector<Ranks> replicas_across(std::uint32_t size) const;  // those at one place of such groups
    std::vector<Ranks> stages_of(std::uint32_t first, std::uint32_t last, bool between) const;
    void communicators();
    void pipeline_communicators();
    void role(std::uint32_t stage, const Ranks& replicas);
    bool is_slow(std::uint32_t stage, std::uint32_t replica) const;

    void first_uses();
    void iteration();
    void evaluation();
    void checkpoint();
    std::vector<Pass> passes() const;
    void pass(const Pass& p);
    void run_apart(const std::vector<Pass>& all);
    void run_grouped(const std::vector<Pass>& all);

    bool takes(const Pass& p) const;  // something from a neighbour, before it begins
    bool gives(const Pass& p) const;  // something to a neighbour, once it is over
    std::uint32_t edge_in(const Pass& p) const;
    std::uint32_t edge_out(const Pass& p) const;
    void transfer(StepKind kind, bool forward, std::uint32_t edge, const std::string& stream, std::uint64_t bytes,
                  const char* name);
    void receive(const Pass& p);
    void send(const Pass& p);
    void exchange(const Pass* sends, const Pass* receives);

    std::vector<std::uint32_t> chunk(std::uint32_t number) const;  // layers of it, in the order of a forward pass
    std::uint64_t us_of(const Layer& layer, PassKind kind) const;
    void layer(const Layer& layer, PassKind kind, const std::string& name);
    void attention(std::uint64_t us, PassKind kind, const std::string& name);
    void experts(const char* name);
    void gather(const std::vector<std::uint32_t>& layers, std::uint32_t i, const std::string& name);
    void reduce(const std::vector<std::uint32_t>& layers, std::uint32_t done);
    void optimizer();

    const LayeredShape s_;
    WorkloadBuilder b_;
    std::uint32_t stage_ = 0, replica_ = 0;  // of the role being written; replica: the first of its own
    bool gathers_ = false;                   // the pass being written
};

}  // namespace opus::replay
