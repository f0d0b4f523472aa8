// The numbers of a rank's launches in the order of its program. A ring numbers calls in it; of replays it counts those
// of each captured operation, and nobody sees when the program launches a graph. So a rank's launches are numbered as
// they are first heard of, once it has replayed one.
//
// Pure, no clock. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>

#include "opus/types.h"

namespace opus::controller::plan {

class Numbers {
public:
    // Of the launch that the ring gives this number.
    std::uint64_t of(std::uint64_t seq) {
        replays_ |= (seq & kReplayed) != 0;
        if (replays_) {
            const auto [at, is_new] = open_.try_emplace(seq, next_);
            const std::uint64_t number = at->second;
            next_ += is_new ? 1 : 0;
            if (open_.size() > kMostOpen)
                open_.erase(std::ranges::min_element(open_, {}, [](const auto& entry) { return entry.second; }));
            return number;
        }
        next_ = std::max(next_, seq + 1);
        return seq;
    }
    // They are in the order of its program, and not only as they were heard of.
    bool in_order() const { return !replays_; }
    // It is over.
    std::uint64_t take(std::uint64_t seq) {
        const std::uint64_t number = of(seq);
        open_.erase(seq);
        return number;
    }

private:
    static constexpr std::size_t kMostOpen = 4096;  // some are never heard to be over
    bool replays_ = false;
    std::uint64_t next_ = 0;
    std::map<std::uint64_t, std::uint64_t> open_;  // of launches that are not over, by their number in the ring
};

}  // namespace opus::controller::plan
