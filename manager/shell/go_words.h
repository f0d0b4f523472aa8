// The go words of a segment: storing them, and retracting what was stored early (launch_ring.h).
#pragma once

#include "manager/core/core.h"
#include "opus/launch_ring.h"

namespace opus::manager {

// Lets launch `seq` go, or a replay, and wakes whoever sleeps at its gate. `comm`: the entry whose go word its gate looks at.
void store_go(const ring::View& view, std::uint64_t seq, bool abort = false, std::uint32_t comm = kNone);

// Lets all launches below `upto` go that look at the go word of this entry.
void store_comm_go(const ring::View& view, std::uint32_t comm, std::uint64_t upto);

// Takes it back, if its gate was not reached. Between this and is_reached() nothing may be answered.
inline void retract_go(const ring::View& view, std::uint64_t seq) {
    if (is_replay(seq))
        view.go[slot_of_replay(seq) & view.mask].replays.store(number_of_replay(seq), std::memory_order_seq_cst);
    else
        view.go[seq & view.mask].value.store(seq, std::memory_order_seq_cst);
}

// Takes back what lies at `upto` and beyond. Returns how far it went.
std::uint64_t retract_comm_go(const ring::View& view, std::uint32_t comm, std::uint64_t upto);

// Seen after retract_go(): the gate may have opened, or not. Store go again, and it has.
inline bool is_reached(const ring::View& view, std::uint64_t seq) {
    if (is_replay(seq))
        return view.ready[slot_of_replay(seq) & view.mask].replays.load(std::memory_order_seq_cst) > number_of_replay(seq);
    return view.ready[seq & view.mask].value.load(std::memory_order_seq_cst) == seq + 1;
}

}  // namespace opus::manager
