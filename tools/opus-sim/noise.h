// Noise by choice: ranks that compute more slowly than others, and what several seeds give.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/replay/workload.h"

namespace opus::job {

struct SlowRank {
    std::uint32_t rank = 0;
    double factor = 1;  // its computations last so many times as long
};
// "3=1.1". Throws std::invalid_argument in words.
SlowRank slow_rank(const std::string& text);
// Throws std::invalid_argument where there is no such rank.
replay::Workload with_slow_ranks(const replay::Workload& workload, const std::vector<SlowRank>& slow);

// Iteration times with one seed.
struct SeedTimes {
    struct At {
        double demand_ms = 0, provisioned_ms = 0;  // 0: it did not end
    };
    std::uint64_t seed = 0;
    double electrical_ms = 0;
    std::vector<At> points;  // by dark time
};
struct Spread {
    double least = 0, mean = 0, most = 0;
};
// Of iteration times over the electrical ones of the same seed, as parts of them.
Spread spread_of(const std::vector<SeedTimes>& seeds, std::size_t point, double SeedTimes::At::*variant);

}  // namespace opus::job
