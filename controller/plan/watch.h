// How long the laps of a job take, by the ends of its launches: from where a rank's launch ended in the lap before until the same one
// of this lap has ended. Of all ranks the mean.
//
// Pure, no clock. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "controller/plan/lap.h"

namespace opus::controller::plan {

class Watch {
public:
    struct Took {
        std::int64_t lap = 0;  // counted from the one that was found
        TimeNs ns = 0;
    };

    Watch() = default;
    explicit Watch(const Lap& lap);

    // The rank's launch of this number has ended.
    void ended(const RankName& rank, std::uint64_t number, TimeNs done_ns);
    // The next lap that is over and of which it is known how long it took, once.
    std::optional<Took> next();
    // The first lap that no rank has begun.
    std::int64_t unbegun() const { return latest_ + 1; }

private:
    struct Rank {
        RankLap lap;
        std::int64_t at = -1;               // the lap that it is in; -1: the one before the first, which is not timed
        std::vector<TimeNs> before, ended;  // by launch, of the lap before and of this one; 0: it has not, or it is not known
    };

    void over(const Rank& rank);

    std::map<RankName, Rank> ranks_;
    std::int64_t latest_ = -1;
    std::int64_t told_ = -1;  // the last that was told of
    std::map<std::int64_t, std::vector<TimeNs>> open_;  // by lap: of each rank that has left it behind
};

}  // namespace opus::controller::plan
