// The runtime, a stand-in: device memory is host memory, a device pointer is a host pointer.
#pragma GCC visibility push(default)
#include <cuda_runtime_api.h>
#pragma GCC visibility pop

#include <cstring>

#include "engine/graph.h"
#include "engine/model.h"
#include "runtime_error.h"

using namespace opus::standin;

namespace {

cudaError_t make(void** out, size_t bytes, Memory kind) {
    if (!out) return wrong();
    const cudaError_t dead = settled();
    if (dead != cudaSuccess) return dead;
    *out = bytes ? allocate(bytes, kind) : nullptr;
    return *out || !bytes ? cudaSuccess : wrong(cudaErrorMemoryAllocation);
}

cudaError_t queue_copy(void* dst, const void* src, size_t bytes, cudaStream_t stream, bool wait) {
    if (bytes && (!dst || !src)) return wrong();
    Stream* on = resolve_stream(stream);
    if (!on) return wrong(cudaErrorInvalidResourceHandle);
    const cudaError_t dead = settled();
    if (dead != cudaSuccess || !bytes) return dead;
    if (const int fault = wait ? sync_fault(on) : submit_fault(on)) return wrong(static_cast<cudaError_t>(fault));
    const OpRef op = copy(on, dst, src, bytes);
    // What goes to a program's own memory is there when the call returns, whatever it is called.
    wait |= op->captured == 0 && memory_of(dst, nullptr, nullptr, nullptr) == Memory::unknown;
    if (!wait) return cudaSuccess;
    sync_op(op);
    return settled();
}

cudaError_t queue_fill(void* dst, int value, size_t bytes, cudaStream_t stream, bool wait) {
    if (bytes && !dst) return wrong();
    Stream* on = resolve_stream(stream);
    if (!on) return wrong(cudaErrorInvalidResourceHandle);
    const cudaError_t dead = settled();
    if (dead != cudaSuccess || !bytes) return dead;
    if (const int fault = wait ? sync_fault(on) : submit_fault(on)) return wrong(static_cast<cudaError_t>(fault));
    const OpRef op = fill(on, dst, static_cast<unsigned char>(value), 1, bytes);
    if (!wait) return cudaSuccess;
    sync_op(op);
    return settled();
}

}  // namespace

extern "C" {

cudaError_t cudaMalloc(void** out, size_t bytes) { return make(out, bytes, Memory::device); }
cudaError_t cudaMallocManaged(void** out, size_t bytes, unsigned) { return make(out, bytes, Memory::managed); }
cudaError_t cudaMallocHost(void** out, size_t bytes) { return make(out, bytes, Memory::pinned); }
cudaError_t cudaHostAlloc(void** out, size_t bytes, unsigned) { return make(out, bytes, Memory::pinned); }
cudaError_t cudaMallocAsync(void** out, size_t bytes, cudaStream_t) { return make(out, bytes, Memory::device); }
cudaError_t cudaFree(void* pointer) { return !pointer || release(pointer) ? settled() : wrong(); }
cudaError_t cudaFreeHost(void* pointer) { return !pointer || release(pointer) ? settled() : wrong(); }

// Waits for the stream, where CUDA would not: nothing here frees memory in stream order.
cudaError_t cudaFreeAsync(void* pointer, cudaStream_t stream) {
    Stream* on = resolve_stream(stream);
    if (!on) return wrong(cudaErrorInvalidResourceHandle);
    if (!pointer) return settled();
    const OpRef reached = record(on);
    sync_op(reached);
    return release(pointer) ? settled() : wrong();
}

cudaError_t cudaHostRegister(void* pointer, size_t bytes, unsigned) {
    if (!pointer || !bytes) return wrong();
    return register_host(pointer, bytes) ? settled() : wrong(cudaErrorHostMemoryAlreadyRegistered);
}
cudaError_t cudaHostUnregister(void* pointer) {
    return unregister_host(pointer) ? settled() : wrong(cudaErrorHostMemoryNotRegistered);
}
cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned) {
    const Memory kind = memory_of(host, nullptr, nullptr, nullptr);
    if (!device || (kind != Memory::pinned && kind != Memory::registered)) return wrong();
    *device = host;
    return settled();
}
cudaError_t cudaHostGetFlags(unsigned* flags, void* host) {
    if (!flags || memory_of(host, nullptr, nullptr, nullptr) == Memory::unknown) return wrong();
    *flags = 0;
    return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
    if (!attributes) return wrong();
    std::memset(attributes, 0, sizeof *attributes);
    switch (memory_of(pointer, &attributes->device, nullptr, nullptr)) {
        case Memory::device: attributes->type = cudaMemoryTypeDevice; break;
        case Memory::managed: attributes->type = cudaMemoryTypeManaged; break;
        case Memory::pinned:
        case Memory::registered: attributes->type = cudaMemoryTypeHost; break;
        case Memory::unknown:
            attributes->type = cudaMemoryTypeUnregistered;
            attributes->device = -2;
            attributes->hostPointer = const_cast<void*>(pointer);
            return cudaSuccess;
    }
    attributes->devicePointer = attributes->hostPointer = const_cast<void*>(pointer);
    return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
    const std::size_t all = gpu_model().memory_bytes;
    if (free) *free = all - all / 5;
    if (total) *total = all;
    return settled();
}

cudaError_t cudaMemcpy(void* dst, const void* src, size_t bytes, cudaMemcpyKind) {
    return queue_copy(dst, src, bytes, nullptr, true);
}
cudaError_t cudaMemcpyAsync(void* dst, const void* src, size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
    return queue_copy(dst, src, bytes, stream, false);
}
cudaError_t cudaMemcpyPeer(void* dst, int, const void* src, int, size_t bytes) {
    return queue_copy(dst, src, bytes, nullptr, true);
}
cudaError_t cudaMemcpyPeerAsync(void* dst, int, const void* src, int, size_t bytes, cudaStream_t stream) {
    return queue_copy(dst, src, bytes, stream, false);
}
cudaError_t cudaMemcpy2DAsync(void* dst, size_t dst_pitch, const void* src, size_t src_pitch, size_t width,
                              size_t height, cudaMemcpyKind, cudaStream_t stream) {
    if (width > dst_pitch || width > src_pitch) return wrong();
    for (size_t row = 0; row < height; ++row) {
        const cudaError_t result = queue_copy(static_cast<char*>(dst) + row * dst_pitch,
                                              static_cast<const char*>(src) + row * src_pitch, width, stream, false);
        if (result != cudaSuccess) return result;
    }
    return settled();
}
cudaError_t cudaMemset(void* dst, int value, size_t bytes) { return queue_fill(dst, value, bytes, nullptr, false); }
cudaError_t cudaMemsetAsync(void* dst, int value, size_t bytes, cudaStream_t stream) {
    return queue_fill(dst, value, bytes, stream, false);
}

}  // extern "C"
