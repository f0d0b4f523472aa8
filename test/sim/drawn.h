// What a scenario's programs do, of what NCCL allows: so that it can be counted whether the drawing meets it.
#pragma once

#include <cstdint>

#include "test/sim/scenario.h"

namespace opus::sim {

enum class Drawn : std::uint8_t {
    both_kinds,           // collectives and transfers of one communicator
    several_streams,      // launches of one communicator on several streams of a rank
    fast_path_first_use,  // the first collective after a transfer, on the same stream
    late_first_use,       // a first use in the second half of a rank's launches
    pairs_after_ring,     // an all-to-all, gather or scatter after a collective that needs the ring
    ring_after_pairs,
    empty_transfer,  // of zero bytes
    empty_first_use,
    split_of_split,
    shared_resources,
    created_later,    // after a rank's first launch
    destroyed_early,  // before a member's last launch
    entry_again,      // a communicator made after another was destroyed
    several_comms,    // in one group
    mixed_group,      // collectives and transfers in one group
    early_receive,
    odd_iterations,
    late_rank,
    long_pause,  // a host that does something else for a second or more
    graph,       // collectives captured into a CUDA graph, which is launched
    graph_again,
    graph_of_several,
    graph_destroyed,  // before its communicator
};
inline constexpr std::uint32_t kDrawn = 23;
const char* name_of(Drawn what);

// A bit for each.
std::uint32_t drawn_in(const Scenario& scenario);

}  // namespace opus::sim
