#include "shim/straight.h"

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

void prepare_straight(Communicator& c, cudaStream_t stream, ring::Gate gate) {
    StraightWay& way = c.straight;
    if (c.straight_verdict != kNotPlain && way.stream == stream && way.gate == gate) return c.open_straight();
    c.close_straight();
    // The default stream that each thread has of its own has another name in each.
    if (!c.is_settled() || c.sends == nullptr || c.windows || c.last_end != nullptr || reinterpret_cast<std::uintptr_t>(stream) == 2) return;
    if (gate != ring::Gate::host && gate != ring::Gate::stream) return;
    way.on_driver = has_driver;
    if (way.on_driver && (!stream_writes || driver.cuCtxGetCurrent == nullptr || driver.cuStreamIsCapturing == nullptr))
        return;
    way.stream = stream;
    way.stream_name = stream_name(c, stream);
    way.head = LaunchHead(gate, 1, record_flags(1, gate)).word();
    way.gate = gate;
    way.context = c.context->handle;
    way.function = c.context->gate;
    fill_gate_arguments(way.arguments, c);
    way.arguments.list(way.list);
    c.open_straight();
}

// --- what is said to the stream -------------------------------------------------------------------

bool ask_stream(const StraightWay& way) {
    CUcontext current = nullptr;
    if (driver.cuCtxGetCurrent(&current) != CUDA_SUCCESS || current != way.context) [[unlikely]]
        return false;
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    return driver.cuStreamIsCapturing(way.stream, &status) == CUDA_SUCCESS && status == CU_STREAM_CAPTURE_STATUS_NONE;
}

bool place_straight_gate(StraightWay& way, std::uint64_t seq) {
    const Ring& view = process.view;
    const std::uint64_t slot = seq & view.mask;
    way.arguments.ready = device_address_at_once(&view.ready[slot].value);
    way.arguments.go = device_address_at_once(&view.go[slot].value);
    way.arguments.value = seq + 1;
    return driver.cuLaunchKernel(way.function, 1, 1, 1, 32, 1, 1, 0, way.stream, way.list, nullptr) == CUDA_SUCCESS;
}

namespace {

__attribute__((noinline)) ncclResult_t finish_carefully(Communicator& c, std::uint64_t seq, ncclResult_t result) {
    const Inside inside;
    end_flight(c, {seq, kFull}, {c.straight.stream, c.context}, result);
    return result;
}

bool refuse(std::uint64_t seq) {
    // A group has still to be closed.
    if (thread_words.inside == 0) end_wait(process.view.record(seq).op.comm);
    store_done(seq);
    return false;
}

}  // namespace

__attribute__((noinline)) ncclResult_t finish_straight_stream(Communicator& c, std::uint64_t seq) {
    const CUdeviceptr done = device_address_at_once(&process.view.done[seq & process.view.mask].value);
    if (driver.cuStreamWriteValue64(c.straight.stream, done, seq + 1, CU_STREAM_WRITE_VALUE_DEFAULT) == CUDA_SUCCESS)
        [[likely]]
        return ncclSuccess;
    return finish_carefully(c, seq, ncclSuccess);
}

// --- gates ----------------------------------------------------------------------------------------

bool pass_carefully(Communicator& c, std::uint64_t seq) {
    const ring::OpEntry op = process.view.record(seq).op;
    if (!enqueue_gate(c, seq, c.straight.stream)) return pass_host_gate(seq, &op, 1) || refuse(seq);
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

ncclResult_t finish_straight(std::uint64_t seq, ncclResult_t result) {
    thread_words.inside = 0;
    Communicator& c = *thread_words.admitted;
    if (result != ncclSuccess) [[unlikely]]
        return finish_carefully(c, seq, result);
    if (c.straight.on_driver) return finish_straight_stream(c, seq);
    store_done(seq);
    return ncclSuccess;
}

}  // namespace opus::shim
