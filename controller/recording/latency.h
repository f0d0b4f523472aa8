// Median and tail of many durations in fixed memory: buckets 1/16 of a power of two wide (6 %).
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

#include "opus/types.h"

namespace opus::controller {

class Latency {
public:
    void add(TimeNs duration_ns) {
        ++count_;
        ++buckets_[bucket(static_cast<std::uint64_t>(std::max<TimeNs>(duration_ns, 0)))];
    }
    std::uint64_t count() const { return count_; }

    // The upper end of the bucket that holds the quantile; 0 without samples.
    TimeNs quantile(double q) const {
        if (count_ == 0) return 0;
        const auto rank = static_cast<std::uint64_t>(q * static_cast<double>(count_ - 1)) + 1;
        std::uint64_t seen = 0;
        for (std::size_t i = 0; i < buckets_.size(); ++i)
            if ((seen += buckets_[i]) >= rank) return upper(i);
        return upper(buckets_.size() - 1);
    }

private:
    static constexpr unsigned kBits = 4;
    static constexpr std::size_t kSteps = std::size_t{1} << kBits;
    std::array<std::uint64_t, (64 - kBits + 1) * kSteps> buckets_{};
    std::uint64_t count_ = 0;

    static std::size_t bucket(std::uint64_t v) {
        if (v < kSteps) return v;
        const unsigned shift = static_cast<unsigned>(std::bit_width(v)) - 1 - kBits;
        return (shift + 1) * kSteps + ((v >> shift) & (kSteps - 1));
    }
    static TimeNs upper(std::size_t i) {
        if (i < kSteps) return static_cast<TimeNs>(i);
        const std::size_t shift = i / kSteps - 1;
        return static_cast<TimeNs>(((kSteps + i % kSteps + 1) << shift) - 1);
    }
};

}  // namespace opus::controller
