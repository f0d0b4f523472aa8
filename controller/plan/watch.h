// How long the laps of a job take, by the ends of its launches: from when all that a rank did before the lap had ended
// until all that it does in the lap has. Of all ranks the mean.
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
    struct Part {              // of a lap: what a rank does in it
        std::size_t left = 0;  // launches that have not ended
        TimeNs end_ns = 0;     // of those that have
    };
    struct Rank {
        RankLap lap;  // without its launches
        std::size_t launches = 0;
        std::int64_t at = 0;  // the first lap that is not over
        TimeNs end_ns = 0;    // when what it did before that had ended; 0: it is not known
        std::map<std::int64_t, Part> begun;
    };

    std::map<RankName, Rank> ranks_;
    std::int64_t latest_ = -1;
    std::int64_t told_ = -1;  // the last that was told of
    std::map<std::int64_t, std::vector<TimeNs>> open_;  // by lap: of each rank that has done all of it
};

}  // namespace opus::controller::plan
