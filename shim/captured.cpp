#include "shim/captured.h"

#include <cstdlib>

#include "shim/first_uses.h"
#include "shim/group.h"
#include "shim/host_gate.h"
#include "shim/message.h"
#include "shim/stream_gate.h"
#include "shim/thread_state.h"

namespace opus::shim {

struct Pin {
    Pin* next;
    std::uint64_t seq;
};

namespace {

#define OPUS_REPLAYS_PASS \
    "; so launches that are captured into CUDA graphs pass, and their communicators are not held any more "
#define OPUS_REPLAYS_PINNED \
    "; so what is captured into CUDA graphs keeps its circuits until its graph is destroyed, and what else wants their ports waits "

// Null: collectives.
PeerSequence* peer_of(Communicator& c, const ring::OpEntry& op) {
    const OpKind kind{op.kind};
    if (is_one_sided(kind)) return &c.puts[op.peer];
    if (!is_transfer(kind)) return nullptr;
    return &(kind == OpKind::send ? c.sends : c.recvs)[op.peer];
}

std::uint64_t& calls_of(Communicator& c, const ring::OpEntry& op) {
    PeerSequence* peer = peer_of(c, op);
    return peer == nullptr ? c.collectives : peer->next;
}

std::uint64_t& captured_of(Communicator& c, const ring::OpEntry& op) {
    PeerSequence* peer = peer_of(c, op);
    return peer == nullptr ? c.captured : peer->captured;
}

bool has_user_objects() {
    return driver.cuUserObjectCreate != nullptr && driver.cuUserObjectRelease != nullptr &&
           driver.cuGraphRetainUserObject != nullptr && driver.cuStreamGetCaptureInfo_v2 != nullptr;
}

// Its graph is gone, on whatever thread: nothing of it runs any more. Its counts stay: the manager may not have seen
// the last of its replays.
void graph_gone(void* object) { store_done(reinterpret_cast<std::uintptr_t>(object) - 1); }

bool retain(const LaunchStream& at, CUuserObject object) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUgraph graph = nullptr;
    const InContext current(*at.context);
    return driver.cuStreamGetCaptureInfo_v2(at.stream, &status, nullptr, &graph, nullptr, nullptr) == CUDA_SUCCESS &&
           status == CU_STREAM_CAPTURE_STATUS_ACTIVE && graph != nullptr &&
           driver.cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE) == CUDA_SUCCESS;
}

// Never destroyed: graphs refer to it.
void begin_order(Communicator& c) {
    if (c.last_end != nullptr || driver.cuEventCreate == nullptr || driver.cuEventRecord == nullptr ||
        driver.cuEventRecordWithFlags == nullptr || driver.cuStreamWaitEvent == nullptr)
        return;
    const InContext current(*c.context);
    const BesideCaptures beside;
    if (driver.cuEventCreate(&c.last_end, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) c.last_end = nullptr;
    c.close_fast_path();
}

}  // namespace

Replays hold_of_replays(Communicator& c) {
    if (!serves_minor(5)) {
        say_once(Level::warn, "this opus-manager is older than CUDA graphs" OPUS_REPLAYS_PASS "(update opus-manager)");
        return Replays::pass;
    }
    const bool able = c.context->gate_replayed != nullptr && has_user_objects();
    if (c.gate == ring::Gate::stream && able) {
        begin_order(c);
        return Replays::gated;
    }
    if (!serves_minor(7)) {
        say_once(Level::warn,
                 "replays cannot be held here, and this opus-manager cannot keep circuits for a CUDA "
                 "graph" OPUS_REPLAYS_PASS "(update opus-manager)");
        return Replays::pass;
    }
    if (c.gate != ring::Gate::stream)
        say_once(Level::warn,
                 "replays of a CUDA graph make no call, and launches are held on the host" OPUS_REPLAYS_PINNED
                 "(OPUS_GATE=stream)");
    else
        say_once(Level::warn,
                 "this CUDA driver has no gate for CUDA graphs" OPUS_REPLAYS_PINNED "(a driver of CUDA 11.3 or newer)");
    return Replays::pinned;
}

std::uint64_t record_pin(const ring::OpEntry* ops, std::uint32_t count) {
    static std::atomic<std::uint64_t> pins{0};
    if (!recordable(process.view, count)) return kFull;
    // A stream of its own: nothing comes behind it.
    const std::uint64_t stream = ~pins.fetch_add(1, std::memory_order_relaxed);
    const LaunchHead head{ring::Gate::host, count, std::uint16_t(ring::kLaunchHostDone | ring::kLaunchSkips | ring::kLaunchLasts)};
    const std::uint64_t seq = push(process.view, head, stream, ops);
    if (seq != kFull) process.view.header->recorded.fetch_add(1, std::memory_order_relaxed);
    return seq;
}

bool keep_pin(Communicator& c, std::uint64_t seq, const LaunchStream& at) {
    if (has_user_objects()) return keep_with_graph(seq, at);
    auto* pin = static_cast<Pin*>(malloc(sizeof(Pin)));
    if (pin == nullptr) return true;  // then it lasts until the process ends
    pin->seq = seq;
    const LockGuard guard(c.settling);
    pin->next = c.pins;
    c.pins = pin;
    return true;
}

void end_pins(Communicator& c) {
    const LockGuard guard(c.settling);
    while (Pin* pin = c.pins) {
        c.pins = pin->next;
        store_done(pin->seq);
        free(pin);
    }
}

void follow(const Communicator& c, const LaunchStream& at, bool captured) {
    if (c.last_end == nullptr) return;
    const InContext current(*at.context);
    driver.cuStreamWaitEvent(at.stream, c.last_end, captured ? CU_EVENT_WAIT_EXTERNAL : CU_EVENT_WAIT_DEFAULT);
}

void precede(const Communicator& c, const LaunchStream& at, bool captured) {
    if (c.last_end == nullptr) return;
    const InContext current(*at.context);
    captured ? driver.cuEventRecordWithFlags(c.last_end, at.stream, CU_EVENT_RECORD_EXTERNAL)
             : driver.cuEventRecord(c.last_end, at.stream);
}

void give_number_back(Communicator& c, const ring::OpEntry& op) { calls_of(c, op) = op.n; }

bool number_captured(Communicator& c, ring::OpEntry& op) {
    std::uint64_t& next = captured_of(c, op);
    op.n = next;
    next += op.count;
    if (next <= kMostCaptured) return true;
    say_once(Level::warn,
             "more than %llu operations were captured into CUDA graphs" OPUS_REPLAYS_PASS
             "(capture once, replay often)",
             static_cast<unsigned long long>(kMostCaptured));
    return false;
}

bool keep_with_graph(std::uint64_t seq, const LaunchStream& at) {
    CUuserObject object = nullptr;
    if (driver.cuUserObjectCreate(&object, reinterpret_cast<void*>(seq + 1), &graph_gone, 1,
                                  CU_USER_OBJECT_NO_DESTRUCTOR_SYNC) != CUDA_SUCCESS) {
        store_done(seq);
        return false;
    }
    if (retain(at, object)) return true;
    driver.cuUserObjectRelease(object, 1);  // frees the slot
    return false;
}

void capture_end(std::uint64_t seq, const LaunchStream* streams, std::uint32_t count) {
    for (std::uint32_t i = 1; i < count; ++i) order_streams(streams[i], streams[0]);  // done is one word
    const InContext current(*streams[0].context);
    if (enqueue_replay_end(*streams[0].context, seq, streams[0].stream)) return;
    process.view.comms[process.view.record(seq).op.comm].lost.fetch_add(1, std::memory_order_seq_cst);  // never done
    tell_change();
}

}  // namespace opus::shim
