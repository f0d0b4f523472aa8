// A run: the soft part of a grant. Ranges of keys that members may start without asking, on circuits that
// the gang got. While a node holds a part of it, its circuits do not move. It is as long as all members expect. Where
// light has been at rest nobody else has wanted its ports for long: there it has no end until somebody does, and lies
// on the light of other gangs, too, that launches tie to this one's.
//
// live ──a gang wants its ports, or its ranges are asked for──▶ revoked ──all nodes have answered──▶ over
//   └──all nodes have used it up──▶ over
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "controller/core/gangs/launch.h"
#include "opus/types.h"

namespace opus::controller {

struct RunSequence {
    Key sequence;  // n = 0
    bool mesh = false;
    std::uint64_t begin = 0, end = 0;  // numbers of its keys
};

// Of a sequence: what a run may cover of it, whose nodes are told, and on which pairs it lies.
struct Offer {
    Comm* comm = nullptr;
    std::uint64_t begin = 0, end = ~std::uint64_t{0};
    bool mesh = false;
    std::uint64_t length = wire::kMaxKeysPerLaunch;  // of one without end: end - begin
    std::set<NodeIndex> nodes = {};
    std::vector<PairId> pairs = {};
};
using Offers = std::map<Key, Offer>;

struct Run {
    std::uint64_t grant = 0;
    std::vector<RunSequence> sequences;
    std::vector<PairId> pairs;   // sorted
    std::set<NodeIndex> nodes;   // that hold a part of it, for all we know
    std::uint32_t circuits = 0;  // of each of its gang's pairs, at least; 0: it lies on others, too
    bool endless = false;
    bool revoked = false;
    bool unsettled = false;    // adopted, its circuits not known yet: its nodes' ports are all kept
    TimeNs keep_until_ns = 0;  // not revoked before: it has just got ports for which another was revoked
};

}  // namespace opus::controller
