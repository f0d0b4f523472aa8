// Which circuits of this node a key needs, from where the members of its communicator are.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "opus/ways.h"

namespace opus::manager {

// Light between one GPU of this node and one of another.
struct Reach {
    std::uint32_t gpu = 0;  // local
    Nic peer;
    auto operator<=>(const Reach&) const = default;
};

// Of the keys of `range`, which are alike in this; sorted. `places`: by rank in the communicator; empty: not known.
// Nothing: not known. What stays on the node needs none.
std::optional<std::vector<Reach>> circuits_of(const wire::KeyRange& range, const Places& places, NodeIndex here);

}  // namespace opus::manager
