// The straight way: a lone call, behind a host or a stream gate, whose communicator and stream were seen
// before. It does what begin() and end_flight() do for every launch, with what does not change from launch
// to launch put together once. Counted by test/shim/instructions_test.py; what is said to the stream is in
// functions of their own, so that it can be counted apart.
#pragma once

#include <nccl.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "shim/communicator.h"
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

// After a launch of `c` on `stream` behind `gate`: the next may go straight.
void prepare_straight(Communicator& c, cudaStream_t stream, ring::Gate gate);

// What is said to the stream: whether it is in the current context and does not capture; the gate of `seq`
// (false: it could not be placed like this); that it is done.
bool ask_stream(const StraightWay& way);
bool place_straight_gate(StraightWay& way, std::uint64_t seq);
ncclResult_t finish_straight_stream(Communicator& c, std::uint64_t seq);

// Gates that want more than the straight way has ready, and the host gate. False: do not start.
bool pass_carefully(Communicator& c, std::uint64_t seq);
bool reach_host_gate(std::uint64_t seq);

// False, and nothing has happened: the careful way is to be taken.
inline bool may_go_straight(const StraightWay& way, cudaStream_t stream) {
    return stream == way.stream && (!way.on_driver || ask_stream(way));
}
inline bool record_straight(const Communicator& c, OpKind kind, ncclDataType_t type, std::uint32_t peer,
                            std::uint64_t bytes, std::uint64_t& sequence, std::uint64_t& seq) {
    if (!claim_at_once(process.view, seq)) [[unlikely]]
        return false;
    ring::LaunchRecord& record = process.view.record(seq);
    fill(record, LaunchHead(c.straight.head), c.straight.stream_name,
         {std::uint8_t(kind), std::uint8_t(type), std::uint16_t(c.index), peer, sequence, 1, 0, bytes});
    commit(record, seq);
    ++sequence;
    process.view.header->recorded.fetch_add(1, std::memory_order_relaxed);
    return true;
}

// False: do not start.
inline bool pass_straight_gate(Communicator& c, std::uint64_t seq) {
    if (c.straight.gate != ring::Gate::stream) return reach_host_gate(seq);
    if (!place_straight_gate(c.straight, seq)) [[unlikely]]
        return pass_carefully(c, seq);
    ring::SegmentHeader& header = *process.view.header;
    header.gated.fetch_add(1, std::memory_order_relaxed);
    if (header.asleep.load(std::memory_order_seq_cst) != 0) [[unlikely]]
        ring_doorbell_now();
    return true;
}

// After the real call, which was made with thread_words.inside set: NCCL calling itself admits nothing.
// Gives the call's result back.
ncclResult_t finish_straight(std::uint64_t seq, ncclResult_t result);

}  // namespace opus::shim
