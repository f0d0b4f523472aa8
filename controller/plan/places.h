// Where in the log a lap that is known was done.
//
// Pure, no clock. Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "controller/plan/lap.h"
#include "controller/plan/program_order.h"

namespace opus::controller::plan {

// Where a rank does a lap: its first launch, and of each of its sequences the first key.
struct Place {
    std::uint64_t seq = 0;
    std::map<Key, std::uint64_t> first;
};

struct Places {
    // Of each rank of the lap what it did from one number on, before another. None: the log does not go back that far.
    using Range = std::function<std::pair<std::uint64_t, std::uint64_t>(const RankName&)>;
    static std::optional<Places> in(const Log& log, const Lap& lap, const Range& range);

    // The lap to which this place of a rank belongs, with those of all the others. None: one of them does no such lap.
    std::optional<Lap> lap_at(const Place& place, const Lap& like) const;

    std::vector<std::pair<RankName, std::vector<Place>>> of;  // each rank, in its order
};

// Its rank's launches of these numbers, in order; none where the log begins later.
std::optional<Launches> launches_of(const Log& log, const RankName& rank, std::uint64_t begin, std::uint64_t end);

// The job has done something else meanwhile. True: all ranks do this lap again, and it is numbered anew: by the last that all have done.
bool find_again(Lap& lap, const Log& log);

}  // namespace opus::controller::plan
