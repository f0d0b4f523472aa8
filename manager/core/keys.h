// The keys at which a launch meets its peers (docs/protocol.md, "Keys"), from the ops of its record.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "opus/launch_ring.h"
#include "opus/wire.h"

namespace opus::manager {

// A range of keys and whose they are: the index of the member (communicator entry) of this rank.
struct LaunchKey {
    std::uint16_t member = 0;
    wire::KeyRange range;
    bool operator==(const LaunchKey&) const = default;
};

using MemberLookup = std::function<const wire::CommMember*(std::uint16_t)>;  // by entry; null: not registered

// Sorted, neighbours joined, each key once a member (two members of one process meet at equal keys: each
// of them counts). Self-sends and communicators of one rank have none.
std::vector<LaunchKey> keys_of(const std::vector<ring::OpEntry>& ops, std::uint16_t launch_flags, ring::Gate gate,
                               const MemberLookup& members);

}  // namespace opus::manager
