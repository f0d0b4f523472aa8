// The fast path: a lone call, behind a host or a stream gate, whose communicator and stream were seen
// before. It does what begin() and end_flight() do for every launch, with what does not change from launch
// to launch put together once. Counted by test/shim/instructions_test.py; what is said to the stream is in
// functions of their own, so that it can be counted apart.
#pragma once

#include <nccl.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "shim/communicator.h"
#include "shim/first_uses.h"
#include "shim/launch.h"
#include "shim/process.h"
#include "shim/ring_writer.h"
#include "shim/thread_state.h"

namespace opus::shim {

// A launch of one call, between its record and its done.
struct Flight {
    std::uint64_t seq;
    std::uint64_t connections;
};

// After the real call: its launches are done behind it, or at once where it failed.
void end_flight(Communicator& c, const Flight& flight, LaunchStream at, ncclResult_t result);

// After a launch of `c` on `stream` behind `gate`: the next may take the fast path.
void prepare_fast_path(Communicator& c, cudaStream_t stream, ring::Gate gate);

// Whether a lone call's launch on this stream may be ring::kLaunchCommGo. Asked before its record, behind a stream gate.
bool may_look_at_comm_go(Communicator& c, const ring::OpEntry& op, cudaStream_t stream);

// What is said to the stream: whether it is in the current context and does not capture; the gate of `seq`
// (false: it could not be placed like this); that it is done.
bool ask_stream(const FastPath& path);
bool place_fast_path_gate(FastPath& path, std::uint64_t seq, CUdeviceptr go);
void ring_unless_gone(const Communicator& c, std::uint64_t seq);
ncclResult_t finish_fast_path_stream(Communicator& c, std::uint64_t seq);

// Gates that want more than the fast path has ready, and the host gate. False: do not start.
bool pass_on_slow_path(Communicator& c, std::uint64_t seq);
bool reach_host_gate(std::uint64_t seq);

// False, and nothing has happened: the slow path is to be taken.
inline bool may_take_fast_path(const FastPath& path, cudaStream_t stream) {
    return stream == path.stream && (!path.on_driver || ask_stream(path));
}
// Of a collective over its ring: it may look at the go word of its communicator.
constexpr bool goes_round(OpKind kind) { return !is_transfer(kind) && !is_made_of_transfers(kind); }

inline bool record_on_fast_path(const Communicator& c, OpKind kind, ncclDataType_t type, std::uint32_t peer,
                                std::uint64_t bytes, std::uint64_t& sequence, std::uint64_t& seq) {
    if (!claim_at_once(process.view, seq)) [[unlikely]]
        return false;
    ring::LaunchRecord& record = process.view.record(seq);
    fill(record, LaunchHead(goes_round(kind) ? c.fast_path.ring_head : c.fast_path.head), c.fast_path.stream_name,
         {std::uint8_t(kind), std::uint8_t(type), std::uint16_t(c.index), peer, sequence, 1, 0, bytes});
    commit(record, seq);
    ++sequence;
    process.view.header->recorded.fetch_add(1, std::memory_order_relaxed);
    return true;
}

// False: do not start.
template <bool round>
inline bool pass_fast_path_gate(Communicator& c, std::uint64_t seq) {
    if (c.fast_path.gate != ring::Gate::stream) return reach_host_gate(seq);
    if (!place_fast_path_gate(c.fast_path, seq, round ? c.fast_path.ring_go : 0)) [[unlikely]]
        return pass_on_slow_path(c, seq);
    ring::SegmentHeader& header = *process.view.header;
    header.gated.fetch_add(1, std::memory_order_relaxed);
    if (header.asleep.load(std::memory_order_seq_cst) != ring::kAwake) [[unlikely]]
        round&& c.fast_path.ring_go != 0 ? ring_unless_gone(c, seq) : ring_doorbell_now();
    return true;
}

// After the real call, which was made with thread_words.inside set: NCCL calling itself admits nothing.
// Gives the call's result back.
ncclResult_t finish_fast_path(std::uint64_t seq, ncclResult_t result);

}  // namespace opus::shim
