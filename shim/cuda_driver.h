// The CUDA driver, by handle: no CUDA library is linked, and a program without one never meets it.
// Everything but the launch path is optional: what is missing closes the way that needs it.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "opus/gpu_identity.h"

namespace opus::shim {

// name, symbols to try in order. The prototype is the first symbol's in cuda.h.
#define OPUS_DRIVER_CALLS(X)                                                                  \
    X(cuCtxGetCurrent, "cuCtxGetCurrent", nullptr)                                            \
    X(cuCtxGetDevice, "cuCtxGetDevice", nullptr)                                              \
    X(cuDeviceGet, "cuDeviceGet", nullptr)                                                    \
    X(cuDeviceGetPCIBusId, "cuDeviceGetPCIBusId", nullptr)                                    \
    X(cuDeviceGetUuid, "cuDeviceGetUuid", "cuDeviceGetUuid_v2")                               \
    X(cuDeviceGetAttribute, "cuDeviceGetAttribute", nullptr)                                  \
    X(cuCtxPushCurrent, "cuCtxPushCurrent_v2", "cuCtxPushCurrent")                            \
    X(cuCtxPopCurrent, "cuCtxPopCurrent_v2", "cuCtxPopCurrent")                               \
    X(cuModuleLoadData, "cuModuleLoadData", nullptr)                                          \
    X(cuModuleGetFunction, "cuModuleGetFunction", nullptr)                                    \
    X(cuLaunchKernel, "cuLaunchKernel", nullptr)                                              \
    X(cuLaunchHostFunc, "cuLaunchHostFunc", nullptr)                                          \
    X(cuMemHostRegister, "cuMemHostRegister_v2", "cuMemHostRegister")                         \
    X(cuMemHostGetDevicePointer, "cuMemHostGetDevicePointer_v2", "cuMemHostGetDevicePointer") \
    X(cuStreamWriteValue64, "cuStreamWriteValue64_v2", "cuStreamWriteValue64")                \
    X(cuStreamIsCapturing, "cuStreamIsCapturing", nullptr)                                    \
    X(cuStreamWaitEvent, "cuStreamWaitEvent", nullptr)                                        \
    X(cuStreamCreate, "cuStreamCreate", nullptr)                                              \
    X(cuStreamSynchronize, "cuStreamSynchronize", nullptr)                                    \
    X(cuStreamDestroy, "cuStreamDestroy_v2", "cuStreamDestroy")                               \
    X(cuThreadExchangeStreamCaptureMode, "cuThreadExchangeStreamCaptureMode", nullptr)        \
    X(cuEventCreate, "cuEventCreate", nullptr)                                                \
    X(cuEventRecord, "cuEventRecord", nullptr)                                                \
    X(cuEventRecordWithFlags, "cuEventRecordWithFlags", nullptr)                              \
    X(cuUserObjectCreate, "cuUserObjectCreate", nullptr)                                      \
    X(cuUserObjectRelease, "cuUserObjectRelease", nullptr)                                    \
    X(cuGraphRetainUserObject, "cuGraphRetainUserObject", nullptr)

#undef cuStreamGetCaptureInfo_v2

struct Driver {
#define OPUS_DRIVER_MEMBER(name, symbol, older) decltype(&::name) name;
    OPUS_DRIVER_CALLS(OPUS_DRIVER_MEMBER)
#undef OPUS_DRIVER_MEMBER

    // Of CUDA 11.3. What the header calls so depends on its version.
    CUresult (*cuStreamGetCaptureInfo_v2)(CUstream, CUstreamCaptureStatus*, cuuint64_t*, CUgraph*, const CUgraphNode**,
                                          size_t*);

    // The runtime's, where it is a library of its own.
    cudaError_t (*cudaGetDevice)(int*);
    cudaError_t (*cudaLaunchHostFunc)(cudaStream_t, cudaHostFn_t, void*);
};

[[gnu::visibility("hidden")]] extern Driver driver;
[[gnu::visibility("hidden")]] extern bool stream_writes;  // the segment is registered and streams can write to it
[[gnu::visibility("hidden")]] extern bool has_driver;     // streams exist: done is theirs to say

// One CUDA context of this process, and what is loaded in it. Never freed.
struct DriverContext {
    CUcontext handle = nullptr;                                  // null: this driver knows no contexts
    CUfunction gate = nullptr;                                   // null: no stream gate here
    CUfunction gate_replayed = nullptr, replay_ended = nullptr;  // of captured launches; null: none here
    bool gate_traps = false;  // the gate fails, rather than opens, when the hold time is over
};

// Looks the libraries up and registers the segment, once, at the first communicator; then finds or makes
// the current context's entry. Under the creation lock. Never null.
DriverContext* driver_context();

// CUDA ordinal of the calling thread's device; 0 where nobody knows.
std::uint32_t current_device();
// What the driver calls the GPU at that ordinal; of a part of one (MIG) the address is the GPU's.
GpuIdentity identity_of(std::uint32_t device);

// Whether its memory can be mapped as NCCL's cuMem wants it; also true where nobody knows.
bool gpu_maps_memory();

// Makes a communicator's context current for a few calls.
class InContext {
public:
    explicit InContext(const DriverContext& context);
    ~InContext();
    InContext(const InContext&) = delete;
    InContext& operator=(const InContext&) = delete;

private:
    bool pushed_ = false;
};

// For calls that would end a capture, even of another thread (cudaStreamCaptureModeGlobal): modules, registrations, events.
class BesideCaptures {
public:
    BesideCaptures() { exchange(); }
    ~BesideCaptures() { exchange(); }
    BesideCaptures(const BesideCaptures&) = delete;
    BesideCaptures& operator=(const BesideCaptures&) = delete;

private:
    void exchange() {
        if (driver.cuThreadExchangeStreamCaptureMode != nullptr) driver.cuThreadExchangeStreamCaptureMode(&mode_);
    }
    CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;  // in between, the thread's own
};

// The device's address of a word of the segment; 0: the segment is not registered.
CUdeviceptr device_address(const void* word);
// The same of a segment that is known to be registered.
[[gnu::visibility("hidden")]] extern std::uint64_t device_offset;
inline CUdeviceptr device_address_at_once(const void* word) {
    return reinterpret_cast<std::uintptr_t>(word) + device_offset;
}

// The gate kernel's parameters (gate_ptx.h), in order.
struct GateArguments {
    CUdeviceptr ready, go;
    std::uint64_t value;
    CUdeviceptr heartbeat, open_segment, open_comm;
    std::uint64_t hold_ns;
    CUdeviceptr gave_up;

    using List = void* [8];
    void list(List& at) {  // as cuLaunchKernel wants them
        auto* words = reinterpret_cast<std::uint64_t*>(this);
        for (unsigned i = 0; i < 8; ++i) at[i] = words + i;
    }
};
static_assert(sizeof(GateArguments) == 8 * sizeof(std::uint64_t));

bool capturing(cudaStream_t stream);

}  // namespace opus::shim
