// What ranks have said they will want next, the circuits moved for it, and what that has saved and lost.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "controller/core/comm_table.h"
#include "controller/core/gang.h"
#include "controller/core/launch.h"
#include "opus/wire.h"

namespace opus::controller {

using RankName = std::pair<NodeIndex, RankId>;

// A rank's last word in Next, until it starts something.
struct Word {
    std::shared_ptr<EdgeList> wanted;  // what its keys need
    bool sure = false;
    bool collective = false;
    TimeNs due_ns = std::numeric_limits<TimeNs>::max();  // it comes then at the latest; for all that is known
    GpuId gpu = kNone;
    std::uint64_t speculation = 0;
};

// Ranks that want each other: the ranks at both ends of each of its circuits have asked for it. Not for the same
// key, for that they need not know: where a transfer each way comes next, each may name another.
struct Speculation {
    Gang gang;  // its circuits; id and order for the planner. No launches
    std::vector<RankName> ranks;
    std::vector<GpuId> lenders;  // whose ranks want something else first
    bool moved = false;
};

// A port as a speculation has left it: what it had before, until somebody uses or turns it.
struct Bet {
    static constexpr std::uint64_t kPlanned = ~0ull;  // the plan's: counted, and on no account

    std::uint64_t speculation = 0;  // 0: none
    PortId before = kNone;          // where it led
    PortId made = kNone;            // where it was turned to; kNone: only lost its circuit
    TimeNs begun_ns = 0;
    TimeNs took_ns = -1;  // -1: still moving
    TimeNs end_ns = 0;
};

struct Speculations {
    std::map<RankName, Word> words;
    std::vector<std::vector<RankName>> by_gpu;  // whose words are about it
    std::map<std::uint64_t, Speculation> open;
    std::vector<std::uint64_t> of_gpu;  // whose GPU it is, of the open ones; 0: nobody's
    std::vector<Bet> bets;              // by port
    std::set<std::uint64_t> due;        // to be looked at at the end of the step
    std::set<RankName> again;           // what they have lent is free: their words may meet others now
    std::uint64_t next = 1;
};

}  // namespace opus::controller
