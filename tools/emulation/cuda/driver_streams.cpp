// libcuda.so.1, a stand-in: streams, events, stream memory operations, memory.
#pragma GCC visibility push(default)
#include <cuda.h>
#pragma GCC visibility pop

#include <atomic>

#include "driver_objects.h"
#include "engine/engine.h"
#include "engine/graph.h"
#include "engine/model.h"

using namespace opus::standin;

namespace {

template <typename T>
CUresult write_value(CUstream stream, CUdeviceptr address, T value, unsigned flags) {
    if (!address || address % sizeof(T) || (flags & ~unsigned{CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER}))
        return CUDA_ERROR_INVALID_VALUE;
    Stream* on = resolve_stream(stream);
    if (!on) return CUDA_ERROR_INVALID_HANDLE;
    if (status() != CUDA_SUCCESS) return status();
    if (const int fault = submit_fault(on)) return static_cast<CUresult>(fault);
    auto op = std::make_shared<Op>();
    op->instant = [=] { std::atomic_ref<T>(*reinterpret_cast<T*>(address)).store(value, std::memory_order_release); };
    submit(on, std::move(op));
    return CUDA_SUCCESS;
}

template <typename T>
bool satisfied(T seen, T wanted, unsigned how) {
    switch (how) {
        case CU_STREAM_WAIT_VALUE_GEQ: return static_cast<std::make_signed_t<T>>(seen - wanted) >= 0;
        case CU_STREAM_WAIT_VALUE_EQ: return seen == wanted;
        case CU_STREAM_WAIT_VALUE_AND: return (seen & wanted) != 0;
        default: return static_cast<T>(~(seen | wanted)) != 0;  // NOR
    }
}

template <typename T>
CUresult wait_value(CUstream stream, CUdeviceptr address, T value, unsigned flags) {
    if (!address || address % sizeof(T) || (flags & ~(unsigned{CU_STREAM_WAIT_VALUE_FLUSH} | 3u)))
        return CUDA_ERROR_INVALID_VALUE;
    Stream* on = resolve_stream(stream);
    if (!on) return CUDA_ERROR_INVALID_HANDLE;
    if (status() != CUDA_SUCCESS) return status();
    if (const int fault = submit_fault(on)) return static_cast<CUresult>(fault);
    auto op = std::make_shared<Op>();
    op->poll_in_queue = true;
    op->poll_locked = [=](Op&, std::int64_t) {
        const T seen = std::atomic_ref<T>(*reinterpret_cast<T*>(address)).load(std::memory_order_acquire);
        return satisfied(seen, value, flags & 3u) ? 0 : kPending;
    };
    submit(on, std::move(op));
    return CUDA_SUCCESS;
}

Event* event_of(CUevent event) { return reinterpret_cast<Event*>(event); }
CUstream handle(Stream* stream) { return reinterpret_cast<CUstream>(stream); }

void* pointer(CUdeviceptr address) { return reinterpret_cast<void*>(address); }

// Streams that were not asked for: `run` gets a resolved one.
template <typename Run>
CUresult on_stream(CUstream stream, Run run) {
    Stream* on = resolve_stream(stream);
    if (!on) return CUDA_ERROR_INVALID_HANDLE;
    if (status() != CUDA_SUCCESS) return status();
    if (const int fault = submit_fault(on)) return static_cast<CUresult>(fault);
    run(on);
    return CUDA_SUCCESS;
}

CUresult copy_now(void* dst, const void* src, std::size_t bytes) {
    return on_stream(nullptr, [&](Stream* on) { sync_op(copy(on, dst, src, bytes)); });
}

}  // namespace

extern "C" {

#undef cuStreamWriteValue32
#undef cuStreamWriteValue64
#undef cuStreamWaitValue32
#undef cuStreamWaitValue64

CUresult CUDAAPI cuStreamWriteValue32_v2(CUstream s, CUdeviceptr a, cuuint32_t v, unsigned f) {
    return write_value<std::uint32_t>(s, a, v, f);
}
CUresult CUDAAPI cuStreamWriteValue64_v2(CUstream s, CUdeviceptr a, cuuint64_t v, unsigned f) {
    return write_value<std::uint64_t>(s, a, v, f);
}
CUresult CUDAAPI cuStreamWaitValue32_v2(CUstream s, CUdeviceptr a, cuuint32_t v, unsigned f) {
    return wait_value<std::uint32_t>(s, a, v, f);
}
CUresult CUDAAPI cuStreamWaitValue64_v2(CUstream s, CUdeviceptr a, cuuint64_t v, unsigned f) {
    return wait_value<std::uint64_t>(s, a, v, f);
}
#define STANDIN_FIRST_FORM(name, value) \
    STANDIN_API CUresult CUDAAPI name(CUstream s, CUdeviceptr a, value v, unsigned f) { return name##_v2(s, a, v, f); }
STANDIN_FIRST_FORM(cuStreamWriteValue32, cuuint32_t)
STANDIN_FIRST_FORM(cuStreamWriteValue64, cuuint64_t)
STANDIN_FIRST_FORM(cuStreamWaitValue32, cuuint32_t)
STANDIN_FIRST_FORM(cuStreamWaitValue64, cuuint64_t)

CUresult CUDAAPI cuStreamBatchMemOp_v2(CUstream stream, unsigned count, CUstreamBatchMemOpParams* ops, unsigned flags) {
    if (!ops || count > 256 || flags) return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count; ++i) {
        const auto& write = ops[i].writeValue;
        const auto& wait = ops[i].waitValue;
        CUresult result = CUDA_ERROR_NOT_SUPPORTED;
        switch (ops[i].operation) {
            case CU_STREAM_MEM_OP_WRITE_VALUE_32:
                result = write_value<std::uint32_t>(stream, write.address, write.value, write.flags);
                break;
            case CU_STREAM_MEM_OP_WRITE_VALUE_64:
                result = write_value<std::uint64_t>(stream, write.address, write.value64, write.flags);
                break;
            case CU_STREAM_MEM_OP_WAIT_VALUE_32:
                result = wait_value<std::uint32_t>(stream, wait.address, wait.value, wait.flags);
                break;
            case CU_STREAM_MEM_OP_WAIT_VALUE_64:
                result = wait_value<std::uint64_t>(stream, wait.address, wait.value64, wait.flags);
                break;
            case CU_STREAM_MEM_OP_BARRIER:
            case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES: result = CUDA_SUCCESS; break;
            default: break;
        }
        if (result != CUDA_SUCCESS) return result;
    }
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamCreateWithPriority(CUstream* stream, unsigned flags, int priority) {
    if (!stream || flags > 1) return CUDA_ERROR_INVALID_VALUE;
    *stream = handle(create_stream(flags, priority));
    return *stream ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}
CUresult CUDAAPI cuStreamCreate(CUstream* stream, unsigned flags) {
    return cuStreamCreateWithPriority(stream, flags, 0);
}
CUresult CUDAAPI cuStreamDestroy_v2(CUstream stream) {
    return destroy_stream(stream) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
CUresult CUDAAPI cuStreamSynchronize(CUstream stream) {
    Stream* on = resolve_stream(stream);
    if (!on) return CUDA_ERROR_INVALID_HANDLE;
    if (const int fault = sync_fault(on)) return static_cast<CUresult>(fault);
    sync_stream(on);
    return status();
}
CUresult CUDAAPI cuStreamQuery(CUstream stream) {
    Stream* on = resolve_stream(stream);
    if (!on) return CUDA_ERROR_INVALID_HANDLE;
    if (status() != CUDA_SUCCESS) return status();
    if (const int fault = sync_fault(on)) return static_cast<CUresult>(fault);
    return stream_idle(on) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
CUresult CUDAAPI cuStreamGetPriority(CUstream stream, int* priority) {
    Stream* on = resolve_stream(stream);
    if (!on || !priority) return CUDA_ERROR_INVALID_VALUE;
    *priority = on->priority;
    return CUDA_SUCCESS;
}
CUresult CUDAAPI cuStreamGetFlags(CUstream stream, unsigned* flags) {
    Stream* on = resolve_stream(stream);
    if (!on || !flags) return CUDA_ERROR_INVALID_VALUE;
    *flags = on->flags;
    return CUDA_SUCCESS;
}
CUresult CUDAAPI cuStreamGetId(CUstream stream, unsigned long long* id) {
    Stream* on = resolve_stream(stream);
    if (!on || !id) return CUDA_ERROR_INVALID_VALUE;
    *id = on->id;
    return CUDA_SUCCESS;
}
CUresult CUDAAPI cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
    if (!event) return CUDA_ERROR_INVALID_HANDLE;
    Stream* on = resolve_stream(stream);
    if (!on) return CUDA_ERROR_INVALID_HANDLE;
    if ((flags & CU_EVENT_WAIT_EXTERNAL) != 0) {
        if (capture_status(on) == CaptureStatus::none) return CUDA_ERROR_INVALID_VALUE;
        return on_stream(stream, [&](Stream* waits) { wait_for_outside(waits, event_of(event)); });
    }
    if (const int fault = wait_fault(on, event_op(event_of(event)))) return static_cast<CUresult>(fault);
    return on_stream(stream, [&](Stream* waits) { wait_for(waits, event_op(event_of(event))); });
}
CUresult CUDAAPI cuLaunchHostFunc(CUstream stream, CUhostFn function, void* argument) {
    if (!function) return CUDA_ERROR_INVALID_VALUE;
    return on_stream(stream, [&](Stream* on) { host_function(on, function, argument); });
}

CUresult CUDAAPI cuEventCreate(CUevent* event, unsigned flags) {
    if (!event) return CUDA_ERROR_INVALID_VALUE;
    *event = reinterpret_cast<CUevent>(new Event{flags, nullptr});
    return CUDA_SUCCESS;
}
CUresult CUDAAPI cuEventDestroy_v2(CUevent event) {
    if (!event) return CUDA_ERROR_INVALID_HANDLE;
    delete event_of(event);
    return CUDA_SUCCESS;
}
CUresult CUDAAPI cuEventRecord(CUevent event, CUstream stream) {
    if (!event) return CUDA_ERROR_INVALID_HANDLE;
    return on_stream(stream, [&](Stream* on) { record_event(event_of(event), on); });
}
CUresult CUDAAPI cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned flags) {
    if ((flags & CU_EVENT_RECORD_EXTERNAL) == 0) return cuEventRecord(event, stream);
    Stream* on = resolve_stream(stream);
    if (!event || !on || capture_status(on) == CaptureStatus::none) return CUDA_ERROR_INVALID_VALUE;
    return on_stream(stream, [&](Stream* records) { record_outside(event_of(event), records); });
}
CUresult CUDAAPI cuEventQuery(CUevent event) {
    if (!event) return CUDA_ERROR_INVALID_HANDLE;
    if (status() != CUDA_SUCCESS) return status();
    if (const int fault = event_sync_fault(event_op(event_of(event)))) return static_cast<CUresult>(fault);
    return op_done(event_op(event_of(event))) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
CUresult CUDAAPI cuEventSynchronize(CUevent event) {
    if (!event) return CUDA_ERROR_INVALID_HANDLE;
    if (const int fault = event_sync_fault(event_op(event_of(event)))) return static_cast<CUresult>(fault);
    sync_op(event_op(event_of(event)));
    return status();
}
CUresult CUDAAPI cuEventElapsedTime(float* ms, CUevent start, CUevent end) {
    if (!ms || !start || !end) return CUDA_ERROR_INVALID_VALUE;
    const OpRef first = event_op(event_of(start)), last = event_op(event_of(end));
    if (!first || !last) return CUDA_ERROR_INVALID_HANDLE;
    if (const int fault = event_sync_fault(first) | event_sync_fault(last)) return static_cast<CUresult>(fault);
    if (!op_done(first) || !op_done(last)) return CUDA_ERROR_NOT_READY;
    *ms = static_cast<float>(last->done_ns - first->done_ns) / 1e6f;
    return CUDA_SUCCESS;
}

// --- memory ------------------------------------------------------------------------------------------------

CUresult CUDAAPI cuMemAlloc_v2(CUdeviceptr* address, size_t bytes) {
    if (!address || !bytes) return CUDA_ERROR_INVALID_VALUE;
    *address = reinterpret_cast<CUdeviceptr>(allocate(bytes, Memory::device));
    return *address ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
CUresult CUDAAPI cuMemFree_v2(CUdeviceptr address) {
    return !address || release(pointer(address)) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult CUDAAPI cuMemGetInfo_v2(size_t* free, size_t* total) {
    const std::size_t all = gpu_model().memory_bytes;
    if (free) *free = all - all / 5;
    if (total) *total = all;
    return CUDA_SUCCESS;
}
CUresult CUDAAPI cuMemHostAlloc(void** out, size_t bytes, unsigned) {
    if (!out) return CUDA_ERROR_INVALID_VALUE;
    *out = allocate(bytes, Memory::pinned);
    return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
CUresult CUDAAPI cuMemAllocHost_v2(void** out, size_t bytes) { return cuMemHostAlloc(out, bytes, 0); }
CUresult CUDAAPI cuMemFreeHost(void* address) {
    return !address || release(address) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult CUDAAPI cuMemHostRegister_v2(void* address, size_t bytes, unsigned) {
    if (!address || !bytes) return CUDA_ERROR_INVALID_VALUE;
    return register_host(address, bytes) ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
}
CUresult CUDAAPI cuMemHostUnregister(void* address) {
    return unregister_host(address) ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}
CUresult CUDAAPI cuMemHostGetDevicePointer_v2(CUdeviceptr* out, void* address, unsigned flags) {
    if (!out || flags) return CUDA_ERROR_INVALID_VALUE;
    const Memory kind = memory_of(address, nullptr, nullptr, nullptr);
    if (kind != Memory::pinned && kind != Memory::registered) return CUDA_ERROR_INVALID_VALUE;
    *out = reinterpret_cast<CUdeviceptr>(address);
    return CUDA_SUCCESS;
}
CUresult CUDAAPI cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr address) {
    int device = 0;
    const Memory kind = memory_of(pointer(address), &device, nullptr, nullptr);
    if (!data || kind == Memory::unknown) return CUDA_ERROR_INVALID_VALUE;
    switch (static_cast<int>(attribute)) {
        case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
            *static_cast<unsigned*>(data) = kind == Memory::device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
            return CUDA_SUCCESS;
        case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: *static_cast<int*>(data) = device; return CUDA_SUCCESS;
        case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        case CU_POINTER_ATTRIBUTE_HOST_POINTER: *static_cast<void**>(data) = pointer(address); return CUDA_SUCCESS;
        default: return CUDA_ERROR_NOT_SUPPORTED;
    }
}
CUresult CUDAAPI cuMemcpyHtoD_v2(CUdeviceptr dst, const void* src, size_t n) { return copy_now(pointer(dst), src, n); }
CUresult CUDAAPI cuMemcpyDtoH_v2(void* dst, CUdeviceptr src, size_t n) { return copy_now(dst, pointer(src), n); }
CUresult CUDAAPI cuMemcpyDtoD_v2(CUdeviceptr dst, CUdeviceptr src, size_t n) {
    return copy_now(pointer(dst), pointer(src), n);
}
CUresult CUDAAPI cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t n, CUstream stream) {
    return on_stream(stream, [&](Stream* on) { copy(on, pointer(dst), pointer(src), n); });
}
CUresult CUDAAPI cuMemcpyHtoDAsync_v2(CUdeviceptr dst, const void* src, size_t n, CUstream stream) {
    return on_stream(stream, [&](Stream* on) { copy(on, pointer(dst), src, n); });
}
CUresult CUDAAPI cuMemcpyDtoHAsync_v2(void* dst, CUdeviceptr src, size_t n, CUstream stream) {
    return on_stream(stream, [&](Stream* on) { copy(on, dst, pointer(src), n); });
}
CUresult CUDAAPI cuMemsetD8Async(CUdeviceptr dst, unsigned char value, size_t n, CUstream stream) {
    return on_stream(stream, [&](Stream* on) { fill(on, pointer(dst), value, 1, n); });
}
CUresult CUDAAPI cuMemsetD32Async(CUdeviceptr dst, unsigned value, size_t n, CUstream stream) {
    return on_stream(stream, [&](Stream* on) { fill(on, pointer(dst), value, 4, n); });
}

}  // extern "C"
