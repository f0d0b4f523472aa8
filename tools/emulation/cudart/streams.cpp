// The runtime, a stand-in: streams, events, host functions.
#pragma GCC visibility push(default)
#include <cuda_runtime_api.h>
#pragma GCC visibility pop

#include "engine/graph.h"
#include "runtime_error.h"

using namespace opus::standin;

namespace {

Event* event_of(cudaEvent_t event) { return reinterpret_cast<Event*>(event); }

template <typename Run>
cudaError_t on_stream(cudaStream_t stream, Run run) {
    Stream* on = resolve_stream(stream);
    if (!on) return wrong(cudaErrorInvalidResourceHandle);
    const cudaError_t dead = settled();
    if (dead != cudaSuccess) return dead;
    if (const int fault = submit_fault(on)) return wrong(static_cast<cudaError_t>(fault));
    run(on);
    return cudaSuccess;
}

struct Callback {
    cudaStreamCallback_t function;
    cudaStream_t stream;
    void* argument;
};

}  // namespace

extern "C" {

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
    if (!stream || flags > cudaStreamNonBlocking) return wrong();
    *stream = reinterpret_cast<cudaStream_t>(create_stream(flags, priority));
    return *stream ? settled() : wrong(cudaErrorNoDevice);
}
cudaError_t cudaStreamCreate(cudaStream_t* stream) { return cudaStreamCreateWithPriority(stream, 0, 0); }
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
    return cudaStreamCreateWithPriority(stream, flags, 0);
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    return destroy_stream(stream) ? settled() : wrong(cudaErrorInvalidResourceHandle);
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    Stream* on = resolve_stream(stream);
    if (!on) return wrong(cudaErrorInvalidResourceHandle);
    if (const int fault = sync_fault(on)) return wrong(static_cast<cudaError_t>(fault));
    sync_stream(on);
    return settled();
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
    Stream* on = resolve_stream(stream);
    if (!on) return wrong(cudaErrorInvalidResourceHandle);
    const cudaError_t dead = settled();
    if (dead != cudaSuccess) return dead;
    if (const int fault = sync_fault(on)) return wrong(static_cast<cudaError_t>(fault));
    return stream_idle(on) ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
    if (!event) return wrong(cudaErrorInvalidResourceHandle);
    Stream* on = resolve_stream(stream);
    if (!on) return wrong(cudaErrorInvalidResourceHandle);
    if ((flags & cudaEventWaitExternal) != 0) {
        if (capture_status(on) == CaptureStatus::none) return wrong();
        return on_stream(stream, [&](Stream* waits) { wait_for_outside(waits, event_of(event)); });
    }
    if (const int fault = wait_fault(on, event_op(event_of(event)))) return wrong(static_cast<cudaError_t>(fault));
    return on_stream(stream, [&](Stream* waits) { wait_for(waits, event_op(event_of(event))); });
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* argument) {
    if (!function) return wrong();
    return on_stream(stream, [&](Stream* on) { host_function(on, function, argument); });
}
cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t function, void* argument, unsigned) {
    if (!function) return wrong();
    Stream* at = resolve_stream(stream);
    if (at && capture_status(at) != CaptureStatus::none) return wrong(static_cast<cudaError_t>(sync_fault(at)));
    const auto run = [](void* held) {
        auto* callback = static_cast<Callback*>(held);
        callback->function(callback->stream, cudaSuccess, callback->argument);
        delete callback;
    };
    return on_stream(stream, [&](Stream* on) { host_function(on, run, new Callback{function, stream, argument}); });
}
cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
    Stream* on = resolve_stream(stream);
    if (!on || !priority) return wrong();
    *priority = on->priority;
    return cudaSuccess;
}
cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned* flags) {
    Stream* on = resolve_stream(stream);
    if (!on || !flags) return wrong();
    *flags = on->flags;
    return cudaSuccess;
}
cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long* id) {
    Stream* on = resolve_stream(stream);
    if (!on || !id) return wrong();
    *id = on->id;
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
    if (!event) return wrong();
    *event = reinterpret_cast<cudaEvent_t>(new Event{flags, nullptr});
    return settled();
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
    if (!event) return wrong(cudaErrorInvalidResourceHandle);
    delete event_of(event);
    return settled();
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    if (!event) return wrong(cudaErrorInvalidResourceHandle);
    return on_stream(stream, [&](Stream* on) { record_event(event_of(event), on); });
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
    if ((flags & cudaEventRecordExternal) == 0) return cudaEventRecord(event, stream);
    Stream* on = resolve_stream(stream);
    if (!event || !on || capture_status(on) == CaptureStatus::none) return wrong();
    return on_stream(stream, [&](Stream* records) { record_outside(event_of(event), records); });
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
    if (!event) return wrong(cudaErrorInvalidResourceHandle);
    const cudaError_t dead = settled();
    if (dead != cudaSuccess) return dead;
    if (const int fault = event_sync_fault(event_op(event_of(event)))) return wrong(static_cast<cudaError_t>(fault));
    return op_done(event_op(event_of(event))) ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    if (!event) return wrong(cudaErrorInvalidResourceHandle);
    if (const int fault = event_sync_fault(event_op(event_of(event)))) return wrong(static_cast<cudaError_t>(fault));
    sync_op(event_op(event_of(event)));
    return settled();
}
#undef cudaEventElapsedTime
STANDIN_API cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t end) {
    if (!ms) return wrong();
    if (!start || !end) return wrong(cudaErrorInvalidResourceHandle);
    const OpRef first = event_op(event_of(start)), last = event_op(event_of(end));
    if (!first || !last) return wrong(cudaErrorInvalidResourceHandle);
    if (const int fault = event_sync_fault(first) | event_sync_fault(last))
        return wrong(static_cast<cudaError_t>(fault));
    if (!op_done(first) || !op_done(last)) return cudaErrorNotReady;
    *ms = static_cast<float>(last->done_ns - first->done_ns) / 1e6f;
    return cudaSuccess;
}

}  // extern "C"
