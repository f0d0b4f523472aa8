// Plays the points of a sweep that are not there yet, several at once, each in a child process: its memory is its own, and
// goes back with it. Deterministic, point by point: nothing of a point depends on others, on the order or on how many at once.
#pragma once

#include <string>
#include <vector>

#include "tools/opus-sim/sweep_store.h"
#include "tools/opus-sim/sweep_table.h"

namespace opus::job {

struct SweepWork {
    std::vector<SweepPoint> points;
    std::vector<PointOptions> options;
    std::vector<nlohmann::json> inputs;
    std::vector<PlayedPoint> played;  // of each
    unsigned at_once = 1;
};

// Plays each point that is not there. What could not be stored, since its process was killed, has an error and is still
// not there. Says how far it is on stderr. 0, or the number of the signal that stopped it: then
// the children have ended. Throws std::invalid_argument where nothing can be written or started.
int play_points(SweepWork& work, const SweepStore& store);

}  // namespace opus::job
