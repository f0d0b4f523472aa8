// What ranks have said they will want next, the circuits moved for it, and what that has saved and lost.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "controller/core/gang.h"
#include "controller/core/launch.h"
#include "opus/wire.h"

namespace opus::controller {

using RankName = std::pair<NodeIndex, RankId>;

// A rank's last word in Next, until it starts something.
struct Word {
    std::vector<std::pair<Key, bool>> keys;  // mesh
    bool sure = false;
    GpuId gpu = kNone;
    std::uint64_t speculation = 0;
};

// Ranks whose words belong together, as the launches of a gang do: the component over keys that all members
// have said.
struct Speculation {
    Gang gang;                     // its circuits; id and order for the planner. No launches
    std::vector<RankName> ranks;
    std::vector<Key> keys;         // said by all
    bool moved = false;
};

// A port as a speculation has left it: what it had before, until somebody uses or turns it.
struct Bet {
    std::uint64_t speculation = 0;  // 0: none
    PortId before = kNone;          // where it led
    PortId made = kNone;            // where it was turned to; kNone: only lost its circuit
    TimeNs begun_ns = 0;
    TimeNs took_ns = -1;            // -1: still moving
    TimeNs end_ns = 0;
};

struct Speculations {
    std::map<RankName, Word> words;
    std::unordered_map<Key, std::vector<RankName>> said;  // by whom
    std::map<std::uint64_t, Speculation> open;
    std::vector<std::uint64_t> of_gpu;                    // whose GPU it is, of the open ones; 0: nobody's
    std::vector<Bet> bets;                                // by port
    std::set<std::uint64_t> due;                          // to be looked at at the end of the step
    std::uint64_t next = 1;
};

}  // namespace opus::controller
