// What a job does now and then between its laps: an evaluation, a checkpoint, a step of another kind. It lasts from the
// beginning of a lap that is not done to its end until the next lap begins that all ranks do; so it may begin with what
// a lap begins with.
//
// Pure, no clock. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "controller/plan/lap.h"

namespace opus::controller::plan {

class Interlude {
public:
    // What is in the log from the lap that was left, which is counted as the first, until the lap that was found again,
    // but for laps. That one is numbered from the first lap behind the last of it on. Empty: there is nothing else, there
    // is too much, or the log does not go back that far.
    static std::vector<Interlude> between(Lap from, Lap& found, const Log& log);

    bool does_as(const Interlude& other) const;
    // It comes instead of the first lap, as laps are counted now.
    void begin_at(const Lap& lap);
    // The launch of this number is of it, or of what was before it.
    bool fits(const RankName& rank, std::uint64_t number, std::uint64_t signature) const;
    // What has been done since it may have begun is of it.
    bool fits(const Log& log) const;
    // It is the rank's last launch of it, or behind it.
    bool ends_with(const RankName& rank, std::uint64_t number) const;
    // The ranks that do anything in it.
    std::vector<RankName> ranks() const;
    // From now on laps are counted from the first one behind it.
    void skip(Lap& lap) const;

private:
    static std::optional<Interlude> of(const Lap& from, const Lap& next, const Log& log);

    std::map<RankName, RankLap> ranks_;   // once
    std::map<Key, std::uint64_t> keys_;  // of each sequence of the lap, so many
};

}  // namespace opus::controller::plan
