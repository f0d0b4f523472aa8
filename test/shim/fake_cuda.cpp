// A libcuda.so.1 that logs what reaches which stream and does at once what can be done at once: gates store
// `ready` and do not wait. Streams are small numbers cast to pointers; 0x100 + n is one that is being
// captured.
#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "test/shim/fake_log.h"

#define FAKE_EXPORT __attribute__((visibility("default")))

namespace {
const std::atomic<std::uint32_t>* last_open[256];  // of the gate that came last on each stream

thread_local CUstreamCaptureMode capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

// FAKE_CUDA_CAPTURES: another thread captures all the time. What may not be done meanwhile ends its capture.
CUresult unless_captured(const char* call) {
    if (capture_mode == CU_STREAM_CAPTURE_MODE_RELAXED || getenv("FAKE_CUDA_CAPTURES") == nullptr) return CUDA_SUCCESS;
    fake_log("%s ends a capture", call);
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

// FAKE_CUDA_FAILS names a call that does.
bool fails(const char* call) {
    const char* failing = getenv("FAKE_CUDA_FAILS");
    return failing != nullptr && strcmp(failing, call) == 0;
}

unsigned long long name(CUstream s) { return reinterpret_cast<std::uintptr_t>(s); }
}  // namespace

extern "C" {

FAKE_EXPORT CUresult fake_cuCtxGetCurrent(CUcontext* c) __asm__("cuCtxGetCurrent");
FAKE_EXPORT CUresult fake_cuCtxGetCurrent(CUcontext* c) { return *c = reinterpret_cast<CUcontext>(1), CUDA_SUCCESS; }
#undef cuCtxPushCurrent
#undef cuCtxPopCurrent
#undef cuMemHostRegister
#undef cuMemHostGetDevicePointer
#undef cuStreamWriteValue64
#undef cuStreamDestroy
FAKE_EXPORT CUresult cuCtxPushCurrent_v2(CUcontext) { return CUDA_SUCCESS; }
FAKE_EXPORT CUresult cuCtxPopCurrent_v2(CUcontext* c) { return *c = nullptr, CUDA_SUCCESS; }
FAKE_EXPORT CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute, CUdevice) {
    return *value = getenv("FAKE_CUDA_UNMAPPED") == nullptr, CUDA_SUCCESS;
}
FAKE_EXPORT CUresult cuCtxGetDevice(CUdevice* d) { return *d = 1, CUDA_SUCCESS; }
FAKE_EXPORT CUresult cuDeviceGet(CUdevice* d, int ordinal) { return *d = ordinal, CUDA_SUCCESS; }
FAKE_EXPORT CUresult cuDeviceGetPCIBusId(char* text, int length, CUdevice d) {
    return snprintf(text, size_t(length), "0000:%02X:0A.%d", d, d), CUDA_SUCCESS;
}
FAKE_EXPORT CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice d) {
    memset(uuid->bytes, d, sizeof uuid->bytes);
    return CUDA_SUCCESS;
}
FAKE_EXPORT CUresult cuModuleLoadData(CUmodule* m, const void* image) {
    if (strstr(static_cast<const char*>(image), ".entry opus_gate") == nullptr) return CUDA_ERROR_INVALID_IMAGE;
    return *m = reinterpret_cast<CUmodule>(2), unless_captured("cuModuleLoadData");
}
FAKE_EXPORT CUresult cuModuleGetFunction(CUfunction* f, CUmodule, const char* what) {
    if (strcmp(what, "opus_gate") != 0 || getenv("FAKE_CUDA_NO_GATE") != nullptr) return CUDA_ERROR_NOT_FOUND;
    return *f = reinterpret_cast<CUfunction>(3), CUDA_SUCCESS;
}
FAKE_EXPORT CUresult cuLaunchKernel(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                                    CUstream s, void** args, void**) {
    auto* ready = *static_cast<std::atomic<std::uint64_t>**>(args[0]);
    const std::uint64_t value = *static_cast<std::uint64_t*>(args[2]);
    const std::uint64_t hold_ns = *static_cast<std::uint64_t*>(args[6]);
    if (value != 0)
        fake_log("gate stream=%llu value=%llu hold_ms=%llu", name(s), (unsigned long long)value,
                 (unsigned long long)hold_ns / 1000000);
    last_open[name(s) & 0xff] = *static_cast<std::atomic<std::uint32_t>**>(args[5]);
    ready->store(value);
    return CUDA_SUCCESS;
}
// Whether the last gate on a stream of ours would be open without a go.
FAKE_EXPORT int fake_gate_is_open(unsigned stream) { return *last_open[stream & 0xff] != 0; }
FAKE_EXPORT CUresult cuLaunchHostFunc(CUstream s, CUhostFn function, void* data) {
    fake_log("host_function stream=%llu", name(s));
    function(data);
    return CUDA_SUCCESS;
}
FAKE_EXPORT CUresult cuMemHostRegister_v2(void*, size_t, unsigned) {
    return fails("cuMemHostRegister") ? CUDA_ERROR_INVALID_VALUE : unless_captured("cuMemHostRegister");
}
FAKE_EXPORT CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
    std::swap(capture_mode, *mode);
    return CUDA_SUCCESS;
}
FAKE_EXPORT int fake_capture_mode(void) { return int(capture_mode); }
FAKE_EXPORT CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* d, void* p, unsigned) {
    return *d = reinterpret_cast<CUdeviceptr>(p), CUDA_SUCCESS;
}
FAKE_EXPORT CUresult cuStreamWriteValue64_v2(CUstream s, CUdeviceptr at, cuuint64_t value, unsigned) {
    fake_log("done stream=%llu value=%llu", name(s), (unsigned long long)value);
    reinterpret_cast<std::atomic<std::uint64_t>*>(at)->store(value);
    return CUDA_SUCCESS;
}
FAKE_EXPORT CUresult cuStreamIsCapturing(CUstream s, CUstreamCaptureStatus* status) {
    *status = (name(s) & 0x100) != 0 ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}
FAKE_EXPORT CUresult cuStreamWaitEvent(CUstream s, CUevent, unsigned) {
    if (fails("cuStreamWaitEvent")) return CUDA_ERROR_INVALID_VALUE;
    fake_log("wait stream=%llu", name(s));
    return CUDA_SUCCESS;
}
FAKE_EXPORT CUresult cuStreamCreate(CUstream* s, unsigned) { return *s = reinterpret_cast<CUstream>(99), CUDA_SUCCESS; }
FAKE_EXPORT CUresult cuStreamSynchronize(CUstream) { return unless_captured("cuStreamSynchronize"); }
FAKE_EXPORT CUresult cuStreamDestroy_v2(CUstream) { return CUDA_SUCCESS; }
FAKE_EXPORT CUresult cuEventCreate(CUevent* e, unsigned) {
    *e = reinterpret_cast<CUevent>(4);
    return fails("cuEventCreate") ? CUDA_ERROR_OUT_OF_MEMORY : unless_captured("cuEventCreate");
}
FAKE_EXPORT CUresult cuEventRecord(CUevent, CUstream s) {
    if (fails("cuEventRecord")) return CUDA_ERROR_INVALID_VALUE;
    fake_log("record stream=%llu", name(s));
    return CUDA_SUCCESS;
}
}
