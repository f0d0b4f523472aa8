// Who holds a pair of GPUs, for people: the first few and how many there are. All pairs of a ring have the same holders,
// so while one question is answered each set of collectives is gone over once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "controller/core/world.h"

namespace opus::controller {

inline constexpr std::size_t kHoldersTold = 8;

struct Holders {
    std::vector<const Launch*> first;  // by their ids, kHoldersTold at most
    std::size_t count = 0;
};

class HolderTable {
public:
    explicit HolderTable(World& world) : world_(world) {}
    // Good until the next event.
    Holders of(PairId e);
    std::string text(PairId e);

private:
    const Holders& of_collectives(const std::vector<const KeyState*>& keys);

    World& world_;
    std::map<std::vector<const KeyState*>, Holders> collectives_;
};

}  // namespace opus::controller
