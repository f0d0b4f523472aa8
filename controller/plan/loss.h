// How much longer laps were because of their light, by what was learned of the lap: each use begins when its members are ready, lasts
// no longer than it ever did (by fewer circuits it does), and what is over sooner lets those begin sooner that wait for it. What
// else made a lap longer or shorter, such as more to compute, is no part of it.
//
// Pure, no clock. Not thread-safe. A launch costs a search for each of its keys; a question, the uses of four laps and what they wait for.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "controller/plan/lap.h"

namespace opus::controller::plan {

class Loss {
public:
    // A launch that is over. `lap`: here and below the same one, which may be timed anew meanwhile.
    void ended(const Lap& lap, const RankName& rank, const Seen& launch);
    // Of that lap, counted from the one that was found, as far as it has been told of; all before it are over. None:
    // nothing of it was told, or not lately.
    std::optional<TimeNs> lost_ns(const Lap& lap, std::int64_t number);

private:
    struct SeenUse {
        TimeNs ready_ns = 0, begin_ns = 0, end_ns = 0;  // of the last of its members; 0: it was not seen
        TimeNs sooner_ns = 0;                           // it would have been over

        TimeNs took_ns() const { return end_ns - begin_ns; }
    };
    struct End {  // the last launch of a rank in a lap
        TimeNs done_ns = 0;
        std::uint32_t use = 0;
    };
    struct SeenLap {
        std::vector<SeenUse> uses;
        std::map<RankName, End> ends;
    };

    std::map<std::int64_t, SeenLap> laps_;  // the last few
    std::vector<TimeNs> least_;             // by use: how long it took
};

}  // namespace opus::controller::plan
