// The gate on the calling thread: it waits before the real call. Also what a first use needs under the
// stream gate, since NCCL makes its connections on the host.
#pragma once

#include <cstdint>

#include "opus/launch_ring.h"
#include "shim/process.h"

namespace opus::shim {

// Says that launch `seq` is ready, and wakes the manager if it sleeps.
inline void store_ready(std::uint64_t seq) {
    process.view.ready[seq & process.view.mask].value.store(seq + 1, std::memory_order_seq_cst);
    ring_doorbell();
}
// Says that launch `seq` has finished, likewise.
inline void store_done(std::uint64_t seq) {
    process.view.done[seq & process.view.mask].value.store(seq + 1, std::memory_order_seq_cst);
    ring_doorbell();
}

// Stores ready and waits for go: spins OPUS_SPIN_US, then sleeps. False: do not start (policy abort); one
// line has been said. Bounded: opens by itself when the manager's heartbeat has stood still for the hold
// time, or one of the operations' communicators is aborted.
bool pass_host_gate(std::uint64_t seq, const ring::OpEntry* ops, std::uint32_t count);
// The same once ready is stored and go has been looked at.
bool await_go(std::uint64_t seq, const ring::OpEntry* ops, std::uint32_t count);

}  // namespace opus::shim
