// The gate on the calling thread: it waits before the real call. Also what a first use needs under the
// stream gate, since NCCL makes its connections on the host.
#pragma once

#include <cstdint>

#include "opus/launch_ring.h"
#include "shim/communicator.h"
#include "shim/process.h"
#include "shim/ring_writer.h"

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

// Stores ready and waits for go: spins OPUS_SPIN_US, then sleeps. False: do not start, with the result in
// thread_words.refusal (ncclSystemError: policy abort, one line has been said; ncclInvalidUsage: one of the operations'
// communicators is aborted or revoked). Then end_wait is the caller's, as soon as NCCL will not meet these communicators
// on this thread any more. Bounded: opens by itself when the manager's heartbeat has stood still for the hold time.
bool pass_host_gate(std::uint64_t seq, const ring::OpEntry* ops, std::uint32_t count);
// The same once ready is stored and go has been looked at.
bool await_go(std::uint64_t seq, const ring::OpEntry* ops, std::uint32_t count);

// Threads that wait for a communicator in the shim are counted, so that another that ends it lets them get away first:
// without Opus their call would have been over.
void begin_wait(std::uint32_t comm, std::uint64_t seq = kFull);
void end_wait(std::uint32_t comm);
inline void end_wait(const ring::OpEntry* ops, std::uint32_t count) {
    for (std::uint32_t i = 0; i < count; ++i) end_wait(ops[i].comm);
}
// After the communicator's gates were opened: until nobody waits, at most a second.
void let_waiting_leave(const Communicator& c);
// Before it is drained: until what waits has been let go, as long as its gate holds it, and its call is over.
void await_waiting(Communicator& c);

bool is_aborted(const Communicator& c);

}  // namespace opus::shim
