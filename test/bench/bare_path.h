// The floor of a launch's way: the same hops with nothing in them. A relay in the manager's place
// (doorbell and ready word in, go word and futex out) and an echo in the controller's, joined by a
// DEALER and a ROUTER over TCP, with the sizes of the real frames. Two child processes.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <memory>

#include "rank_player.h"

namespace opus::bench {

class BarePath {
public:
    // Both children run on `core`.
    BarePath(int core, std::size_t demand_bytes, std::size_t grant_bytes);
    ~BarePath();
    BarePath(const BarePath&) = delete;
    BarePath& operator=(const BarePath&) = delete;

    RankPlayer& rank() { return *rank_; }

private:
    pid_t echo_ = -1, relay_ = -1;
    std::unique_ptr<RankPlayer> rank_;
};

}  // namespace opus::bench
