// What NCCL connects when it is used for the first time, on the host and before the kernel: the ring of a
// communicator for its collectives, and each pair of ranks, in each direction, for its transfers. AlltoAll, Gather
// and Scatter are transfers (enqueue.cc, taskAppend): they connect the pairs that they lack, and no ring. A Gather and
// a Scatter are recorded as their transfers, too: who gives to the root waits for nobody else. Who is in an AlltoAll
// waits for all, so it is one collective, which brings the pairs that it connects.
//
// Both ends of a pair, and all members of a ring, use it in the same order. So they agree on which use is the first.
// Every call is noted, whatever becomes of it.
#pragma once

#include <utility>

#include "shim/communicator.h"
#include "shim/group.h"
#include "shim/mutation.h"

namespace opus::shim {

constexpr bool is_transfer(OpKind kind) { return kind == OpKind::send || kind == OpKind::recv; }
constexpr bool is_one_sided(OpKind kind) { return kind == OpKind::put_signal || kind == OpKind::signal; }
constexpr bool is_rooted_transfers(OpKind kind) { return kind == OpKind::gather || kind == OpKind::scatter; }
constexpr bool is_made_of_transfers(OpKind kind) { return kind == OpKind::all_to_all || is_rooted_transfers(kind); }

// Notes that transfers to, or from, a peer are connected. True: they were not.
inline bool note_transfer(Communicator& c, PeerSequence& peer) {
    if (peer.connected) [[likely]]
        return false;
    peer.connected = true;
    --c.unconnected;
    return kMutation != Mutation::connect_unasked;
}

// Notes a transfer, or a collective that uses the ring. True: it is the first use.
inline bool note_use(Communicator& c, OpKind kind, std::uint32_t peer) {
    if (is_transfer(kind)) return note_transfer(c, (kind == OpKind::send ? c.sends : c.recvs)[peer]);
    const bool first = !is_made_of_transfers(kind) && !std::exchange(c.ring_connected, true);
    return first && kMutation != Mutation::connect_unasked;
}

// Notes an AlltoAll; each pair that it connects goes to `add` as the operation that brings its key.
template <class Add>
void note_pairs(Communicator& c, OpKind kind, std::uint8_t dtype, Add add) {
    if (kind != OpKind::all_to_all || c.unconnected == 0) return;
    for (std::uint32_t peer = 0; peer < c.size; ++peer) {
        if (peer == c.rank) continue;
        for (const OpKind direction : {OpKind::send, OpKind::recv})
            if (note_transfer(c, (direction == OpKind::send ? c.sends : c.recvs)[peer]) && kMutation != Mutation::forget_mesh_pairs)
                add(ring::OpEntry{std::uint8_t(direction), dtype, std::uint16_t(c.index), peer, 0, 1, ring::kOpConnects, 0});
    }
}

// The transfers of a Gather or a Scatter on this rank: (direction, peer).
template <class Add>
void transfers_of(const Communicator& c, OpKind kind, std::uint32_t root, Add add) {
    const bool to_root = kind == OpKind::gather;
    if (c.rank != root) return add(to_root ? OpKind::send : OpKind::recv, root);
    for (std::uint32_t peer = 0; peer < c.size; ++peer)
        if (peer != root) add(to_root ? OpKind::recv : OpKind::send, peer);
}

}  // namespace opus::shim
