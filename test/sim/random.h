// Random numbers of a simulation: every draw of a schedule comes from streams of its one seed, so that
// leaving out a part (a fault, a job) changes the other parts' draws as little as possible.
#pragma once

#include <cstdint>

#include "opus/types.h"

namespace opus::sim {

class Random {
public:
    explicit Random(std::uint64_t seed, std::uint64_t stream = 0)
        : state_(hash_mix(hash_mix(0, seed), stream + 0x51ed2701u)) {}

    std::uint64_t next() {  // splitmix64
        std::uint64_t z = state_ += 0x9e3779b97f4a7c15ull;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
        return z ^ (z >> 31);
    }
    // 0 .. n-1; 0 for n = 0.
    std::uint32_t below(std::uint64_t n) { return static_cast<std::uint32_t>((next() >> 32) * n >> 32); }
    TimeNs between(TimeNs low, TimeNs high) {
        return low + static_cast<TimeNs>(next() % static_cast<std::uint64_t>(high - low + 1));
    }
    bool chance(std::uint32_t permille) { return below(1000) < permille; }
    // Each doubling between low and high is as likely as the other.
    TimeNs spread(TimeNs low, TimeNs high) {
        std::uint32_t doublings = 0;
        while ((low << (doublings + 1)) <= high) ++doublings;
        const TimeNs base = low << below(doublings + 1);
        const TimeNs drawn = between(base, 2 * base);
        return drawn < high ? drawn : high;
    }

private:
    std::uint64_t state_;
};

}  // namespace opus::sim
