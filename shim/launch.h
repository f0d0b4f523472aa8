// One launch, from its record to its done. Used by the lone calls (calls.cpp) and by groups (group.cpp).
#pragma once

#include <nccl.h>

#include <cstdint>

#include "opus/launch_ring.h"
#include "shim/communicator.h"
#include "shim/process.h"
#include "shim/ring_writer.h"
#include "shim/stream_gate.h"

namespace opus::shim {

// A stream that NCCL's kernels stand on, and where it is valid.
struct LaunchStream {
    cudaStream_t stream;
    const DriverContext* context;
    bool operator==(const LaunchStream&) const = default;
};

// Whether launches of `c` are recorded now. Waits for its verdict if that is still to come, and counts
// what passes. False with thread_words.refusal: do not start, it was aborted meanwhile; end_wait is the caller's.
bool records_slowly(Communicator& c);
inline bool is_enforced(const Communicator& c) {
    return c.verdict->load(std::memory_order_relaxed) == std::uint32_t(Verdict::enforced);
}
inline bool records(Communicator& c) {
    if (is_enforced(c)) [[likely]]
        return true;
    return records_slowly(c);
}

// Settles what `c.slow` says, before its next launch. While that says something the fast path is closed.
void settle_slow(Communicator& c);
// The same. What its user is to hear: what ncclCommGetAsyncError says, or `heard` where that is not to be asked any more.
ncclResult_t settle_slow(Communicator& c, ncclResult_t heard);
// The same for the last time: its user ends it. With ncclSuccess NCCL is asked once more, with an error it is not.
void settle_for_good(Communicator& c, ncclResult_t result);

// Where a launch of `c` on `stream` is held.
inline ring::Gate gate_for(const Communicator& c, cudaStream_t stream) {
    return c.gate == ring::Gate::stream && !stream_gate_serves(stream) ? ring::Gate::host : c.gate;
}

// A host gate's launch holds its connections as well. A manager that does not know a pair's flag would count a transfer.
inline bool brings_pairs(ring::Gate gate) { return gate == ring::Gate::host && serves_minor(3); }

// A launch with no gate says that its stream got there, if it can (OPUS_GATE=none, OPUS_MODE=observe). The gate kernel
// has a fence between its ready and its first look.
inline std::uint16_t gate_flags(ring::Gate gate) {
    if (gate == ring::Gate::stream) return ring::kLaunchFenced;
    return gate == ring::Gate::none && stream_writes ? ring::kLaunchMarksReady : 0;
}

// Flags of a record whose finish will be written for `streams` launch streams.
inline std::uint16_t record_flags(std::uint32_t streams, ring::Gate gate) {
    return process.lone_flags | gate_flags(gate) | (streams == 1 ? 0 : ring::kLaunchHostDone);
}

void mark_ready(std::uint64_t seq, const LaunchStream& at);

// LaunchRecord::stream: equal for what becomes ready in order.
std::uint64_t default_stream_name(const Communicator& c, std::uintptr_t stream);
inline std::uint64_t stream_name(const Communicator& c, cudaStream_t stream) {
    const auto value = reinterpret_cast<std::uintptr_t>(stream);
    return value > 2 ? value : default_stream_name(c, value);
}

// Records the connections of `count` operations, all of first use, with more flags, and holds the thread until their
// circuits are up. The launches that use them will take `behind` slots: it waits for room for all first, since who waits for
// a slot while it holds circuits may wait for one that wants them.
// The sequence, kFull if it could not be recorded; `fail`: do not start (as pass_host_gate's false).
std::uint64_t hold_connections(const ring::OpEntry* ops, std::uint32_t count, std::uint64_t behind, std::uint16_t flags, bool& fail);

// After the real call: writes done behind what it enqueued on `streams` (distinct, at least one). Of a captured launch:
// whatever came of the call, its gate is in the graph.
void enqueue_done(std::uint64_t seq, const LaunchStream* streams, std::uint32_t count);

// The real call of a non-blocking communicator goes on in a thread of NCCL's: done is written once that has
// ended. count 0: by the host, at once then (a launch of connections).
void defer_done(Communicator& c, std::uint64_t seq, const LaunchStream* streams, std::uint32_t count, bool ends_as_one = true);
// The result that ncclCommGetAsyncError gave; ncclInProgress changes nothing. Under its lock.
void settle_deferred(Communicator& c, ncclResult_t result);

}  // namespace opus::shim
