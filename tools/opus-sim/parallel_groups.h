// The groups of a job by the degrees of its parallelisms, in Megatron-LM's usual order of ranks: tensor parallel ranks
// are neighbours, then data parallel ones with expert parallel ones inside, pipeline stages are furthest apart.
#pragma once

#include <cstdint>
#include <vector>

namespace opus::job {

struct ParallelGroups {
    std::uint32_t tensor = 1, expert = 1, data = 1, pipeline = 1;  // the experts' ranks are among the data parallel ones

    std::uint32_t world() const { return tensor * data * pipeline; }
    std::uint32_t rank(std::uint32_t stage, std::uint32_t d, std::uint32_t t) const {
        return (stage * data + d) * tensor + t;
    }

    using Groups = std::vector<std::vector<std::uint32_t>>;
    Groups of_tensor() const {
        return each([this](Groups& g, std::uint32_t s, std::uint32_t d, std::uint32_t t) {
            at(g, s * data + d).push_back(rank(s, d, t));
        });
    }
    Groups of_data() const {
        return each([this](Groups& g, std::uint32_t s, std::uint32_t d, std::uint32_t t) {
            at(g, s * tensor + t).push_back(rank(s, d, t));
        });
    }
    Groups of_expert() const {
        return each([this](Groups& g, std::uint32_t s, std::uint32_t d, std::uint32_t t) {
            at(g, (s * (data / expert) + d / expert) * tensor + t).push_back(rank(s, d, t));
        });
    }
    // Who holds the same experts.
    Groups of_expert_data() const {
        return each([this](Groups& g, std::uint32_t s, std::uint32_t d, std::uint32_t t) {
            at(g, (s * expert + d % expert) * tensor + t).push_back(rank(s, d, t));
        });
    }
    Groups of_pipeline() const {
        return each([this](Groups& g, std::uint32_t s, std::uint32_t d, std::uint32_t t) {
            at(g, d * tensor + t).push_back(rank(s, d, t));
        });
    }
    Groups of_stages(std::uint32_t a, std::uint32_t b) const {
        Groups g;
        for (std::uint32_t d = 0; d < data; ++d)
            for (std::uint32_t t = 0; t < tensor; ++t) g.push_back({rank(a, d, t), rank(b, d, t)});
        return g;
    }
    Groups of_all() const {
        return each([this](Groups& g, std::uint32_t s, std::uint32_t d, std::uint32_t t) {
            at(g, 0).push_back(rank(s, d, t));
        });
    }
    std::vector<std::uint32_t> stage(std::uint32_t s) const {
        std::vector<std::uint32_t> ranks;
        for (std::uint32_t i = 0; i < data * tensor; ++i) ranks.push_back(s * data * tensor + i);
        return ranks;
    }

private:
    template <class F>
    Groups each(F&& put) const {
        Groups g;
        for (std::uint32_t s = 0; s < pipeline; ++s)
            for (std::uint32_t d = 0; d < data; ++d)
                for (std::uint32_t t = 0; t < tensor; ++t) put(g, s, d, t);
        return g;
    }
    static std::vector<std::uint32_t>& at(Groups& g, std::size_t i) {
        if (g.size() <= i) g.resize(i + 1);
        return g[i];
    }
};

}  // namespace opus::job
