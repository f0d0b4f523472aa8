#include "shim/fast_path.h"

#include "shim/captured.h"
#include "shim/host_gate.h"
#include "shim/stream_gate.h"

namespace opus::shim {

void end_flight(Communicator& c, const Flight& flight, LaunchStream at, ncclResult_t result) {
    if (result == ncclInProgress) {
        if (flight.connections != kFull) defer_done(c, flight.connections, nullptr, 0);
        if (flight.seq != kFull) defer_done(c, flight.seq, &at, 1);
        return;
    }
    if (flight.connections != kFull) store_done(flight.connections);
    if (flight.seq != kFull && result == ncclSuccess) {
        enqueue_done(flight.seq, &at, 1);
        precede(c, at, is_captured(flight.seq));
    }
    if (result == ncclSuccess) return;
    // NCCL launched nothing, and a peer may wait for what this key promised.
    if (flight.seq != kFull) is_captured(flight.seq) ? enqueue_done(flight.seq, &at, 1) : store_done(flight.seq);
    c.count_lost();
}

// All that it may still wait for stands before it in its stream, or looks at the same word.
bool may_look_at_comm_go(Communicator& c, const ring::OpEntry& op, cudaStream_t stream) {
    if (!goes_round(OpKind{op.kind}) || op.flags != 0 || !serves_minor(8) || !stream_writes || c.windows ||
        c.last_end != nullptr)
        return false;
    const std::uint64_t done = process.view.done[c.apart & process.view.mask].value.load(std::memory_order_acquire);
    if (c.apart != kFull && done > c.apart) c.apart = kFull;
    return c.apart == kFull || (c.fast_path_verdict != kNotPlain && c.fast_path.stream == stream);
}

void prepare_fast_path(Communicator& c, cudaStream_t stream, ring::Gate gate) {
    FastPath& path = c.fast_path;
    if (c.fast_path_verdict != kNotPlain && path.stream == stream && path.gate == gate) return c.open_fast_path();
    c.close_fast_path();
    // The default stream that each thread has of its own has another name in each.
    if (!c.is_settled() || c.sends == nullptr || c.windows || c.last_end != nullptr ||
        reinterpret_cast<std::uintptr_t>(stream) == 2)
        return;
    if (gate != ring::Gate::host && gate != ring::Gate::stream) return;
    path.on_driver = has_driver;
    if (path.on_driver && (!stream_writes || driver.cuCtxGetCurrent == nullptr || driver.cuStreamIsCapturing == nullptr))
        return;
    path.stream = stream;
    path.stream_name = stream_name(c, stream);
    const bool by_comm = gate == ring::Gate::stream && serves_minor(8);
    path.head = LaunchHead(gate, 1, record_flags(1, gate)).word();
    path.ring_head = LaunchHead(gate, 1, record_flags(1, gate) | (by_comm ? ring::kLaunchCommGo : 0)).word();
    path.ring_go = by_comm ? device_address(&c.entry()->go) : 0;
    path.gate = gate;
    path.context = c.context->handle;
    path.function = c.context->gate;
    fill_gate_arguments(path.arguments, c);
    path.arguments.list(path.list);
    c.open_fast_path();
}

// --- what is said to the stream -------------------------------------------------------------------

bool ask_stream(const FastPath& path) {
    CUcontext current = nullptr;
    if (driver.cuCtxGetCurrent(&current) != CUDA_SUCCESS || current != path.context) [[unlikely]]
        return false;
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    return driver.cuStreamIsCapturing(path.stream, &status) == CUDA_SUCCESS && status == CU_STREAM_CAPTURE_STATUS_NONE;
}

bool place_fast_path_gate(FastPath& path, std::uint64_t seq, CUdeviceptr go) {
    const Ring& view = process.view;
    const std::uint64_t slot = seq & view.mask;
    path.arguments.ready = device_address_at_once(&view.ready[slot].value);
    path.arguments.go = go != 0 ? go : device_address_at_once(&view.go[slot].value);
    path.arguments.value = seq + 1;
    return driver.cuLaunchKernel(path.function, 1, 1, 1, 32, 1, 1, 0, path.stream, path.list, nullptr) == CUDA_SUCCESS;
}

namespace {

__attribute__((noinline)) ncclResult_t finish_on_slow_path(Communicator& c, std::uint64_t seq, ncclResult_t result) {
    const Inside inside;
    end_flight(c, {seq, kFull}, {c.fast_path.stream, c.context}, result);
    return result;
}

bool refuse(std::uint64_t seq) {
    // A group has still to be closed.
    if (thread_words.inside == 0) end_wait(process.view.record(seq).op.comm);
    store_done(seq);
    return false;
}

}  // namespace

__attribute__((noinline)) ncclResult_t finish_fast_path_stream(Communicator& c, std::uint64_t seq) {
    const CUdeviceptr done = device_address_at_once(&process.view.done[seq & process.view.mask].value);
    if (driver.cuStreamWriteValue64(c.fast_path.stream, done, seq + 1, CU_STREAM_WRITE_VALUE_DEFAULT) == CUDA_SUCCESS)
        [[likely]]
        return ncclSuccess;
    return finish_on_slow_path(c, seq, ncclSuccess);
}

// --- gates ----------------------------------------------------------------------------------------

// Unless the manager, which looks again soon, has let it go already, and some more.
__attribute__((noinline)) void ring_unless_gone(const Communicator& c, std::uint64_t seq) {
    const std::uint32_t asleep = process.view.header->asleep.load(std::memory_order_seq_cst);
    const std::uint64_t go = c.entry()->go.load(std::memory_order_relaxed) & ~ring::kGoAbort;
    if (asleep != ring::kAwake && (asleep != ring::kDozes || seq + ring::kLeftToRing >= go)) ring_doorbell_now();
}

bool pass_on_slow_path(Communicator& c, std::uint64_t seq) {
    const ring::OpEntry op = process.view.record(seq).op;
    if (!enqueue_gate(c, seq, c.fast_path.stream)) return pass_host_gate(seq, &op, 1) || refuse(seq);
    process.view.header->gated.fetch_add(1, std::memory_order_relaxed);
    ring_doorbell();
    return true;
}

bool reach_host_gate(std::uint64_t seq) {
    store_ready(seq);
    process.view.header->gated.fetch_add(1, std::memory_order_relaxed);
    const std::uint64_t go = process.view.go[seq & process.view.mask].value.load(std::memory_order_acquire);
    if (std::int64_t(go) > std::int64_t(seq)) [[likely]]
        return true;  // the sign is the abort bit's
    const ring::OpEntry op = process.view.record(seq).op;
    return await_go(seq, &op, 1) || refuse(seq);
}

ncclResult_t finish_fast_path(std::uint64_t seq, ncclResult_t result) {
    thread_words.inside = 0;
    Communicator& c = *thread_words.admitted;
    if (result != ncclSuccess) [[unlikely]]
        return finish_on_slow_path(c, seq, result);
    if (c.fast_path.on_driver) return finish_fast_path_stream(c, seq);
    store_done(seq);
    return ncclSuccess;
}

}  // namespace opus::shim
