// The runtime, a stand-in: devices, errors, versions.
#pragma GCC visibility push(default)
#include <cuda_runtime_api.h>
#pragma GCC visibility pop

#include <cuda.h>

#include <cstdio>
#include <cstring>
#include <utility>

#include "cuda/driver_version.h"
#include "engine/graph.h"

#include "runtime_error.h"

using namespace opus::standin;

namespace {

thread_local cudaError_t last_error = cudaSuccess;
thread_local cudaStreamCaptureMode capture_mode = cudaStreamCaptureModeGlobal;

bool valid(int device) { return device >= 0 && device < device_count(); }

}  // namespace

namespace opus::standin {

cudaError_t noted(cudaError_t error) {
    if (error != cudaSuccess && error != cudaErrorNotReady) last_error = error;
    return error;
}

}  // namespace opus::standin

extern "C" {

cudaError_t cudaGetLastError(void) {
    const cudaError_t error = std::exchange(last_error, cudaSuccess);
    const auto sticky = static_cast<cudaError_t>(device_error(current_device()));
    return sticky != cudaSuccess ? sticky : error;
}
cudaError_t cudaPeekAtLastError(void) {
    const auto sticky = static_cast<cudaError_t>(device_error(current_device()));
    return sticky != cudaSuccess ? sticky : last_error;
}

#define STANDIN_CUDA_ERRORS(X)                                                                 \
    X(cudaSuccess, "no error")                                                                 \
    X(cudaErrorInvalidValue, "invalid argument")                                               \
    X(cudaErrorMemoryAllocation, "out of memory")                                              \
    X(cudaErrorInitializationError, "initialization error")                                    \
    X(cudaErrorInvalidDevicePointer, "invalid device pointer")                                 \
    X(cudaErrorNoDevice, "no stand-in device is visible (STANDIN_GPUS, CUDA_VISIBLE_DEVICES)") \
    X(cudaErrorInvalidDevice, "invalid device ordinal")                                        \
    X(cudaErrorInvalidDeviceFunction, "no such kernel was registered with the stand-in")       \
    X(cudaErrorInvalidConfiguration, "invalid configuration argument")                         \
    X(cudaErrorInvalidSymbol, "invalid device symbol")                                         \
    X(cudaErrorInvalidResourceHandle, "invalid resource handle")                               \
    X(cudaErrorNotReady, "device not ready")                                                   \
    X(cudaErrorLaunchFailure, "unspecified launch failure")                                    \
    X(cudaErrorHostMemoryAlreadyRegistered, "part or all of the memory is already registered") \
    X(cudaErrorHostMemoryNotRegistered, "pointer is not registered host memory")               \
    X(cudaErrorPeerAccessAlreadyEnabled, "peer access is already enabled")                     \
    X(cudaErrorNotSupported, "operation not supported by the stand-in")                        \
    X(cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing")   \
    X(cudaErrorStreamCaptureInvalidated, "a stream's capture was invalidated before")          \
    X(cudaErrorStreamCaptureMerge, "operation would merge two captures")                       \
    X(cudaErrorStreamCaptureUnmatched, "capture was not begun in this stream")                 \
    X(cudaErrorStreamCaptureUnjoined, "capture has work that its first stream never joined")   \
    X(cudaErrorStreamCaptureIsolation, "a captured operation would depend on one that is not") \
    X(cudaErrorStreamCaptureImplicit, "the legacy stream would depend on a capture")           \
    X(cudaErrorCapturedEvent, "the event was last recorded in a capture")                      \
    X(cudaErrorGraphExecUpdateFailure, "the graph differs too much to update the executable")  \
    X(cudaErrorUnknown, "unknown error")

const char* cudaGetErrorName(cudaError_t error) {
    switch (error) {
#define STANDIN_CASE(code, text) \
    case code: return #code;
        STANDIN_CUDA_ERRORS(STANDIN_CASE)
#undef STANDIN_CASE
        default: return "unrecognized error code";
    }
}
const char* cudaGetErrorString(cudaError_t error) {
    switch (error) {
#define STANDIN_CASE(code, text) \
    case code: return text;
        STANDIN_CUDA_ERRORS(STANDIN_CASE)
#undef STANDIN_CASE
        default: return "unrecognized error code";
    }
}

// --- devices -------------------------------------------------------------------------------------------

cudaError_t cudaGetDeviceCount(int* count) {
    if (!count) return wrong();
    *count = device_count();
    return *count ? cudaSuccess : wrong(cudaErrorNoDevice);
}
cudaError_t cudaSetDevice(int device) { return set_current_device(device) ? settled() : wrong(cudaErrorInvalidDevice); }
cudaError_t cudaInitDevice(int device, unsigned, unsigned) {
    return valid(device) ? cudaSuccess : wrong(cudaErrorInvalidDevice);
}
cudaError_t cudaGetDevice(int* device) {
    if (!device) return wrong();
    *device = current_device();
    return cudaSuccess;
}
cudaError_t cudaSetDeviceFlags(unsigned) { return cudaSuccess; }
cudaError_t cudaGetDeviceFlags(unsigned* flags) {
    if (!flags) return wrong();
    *flags = 0;
    return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize(void) {
    if (const int fault = device_sync_fault()) return wrong(static_cast<cudaError_t>(fault));
    sync_device(current_device());
    return settled();
}
cudaError_t cudaDeviceReset(void) { return cudaDeviceSynchronize(); }
cudaError_t cudaDeviceSetLimit(cudaLimit, size_t) { return cudaSuccess; }
cudaError_t cudaDeviceGetLimit(size_t* value, cudaLimit) {
    if (!value) return wrong();
    *value = 0;
    return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
    if (least) *least = 0;
    if (greatest) *greatest = -5;
    return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device) {
    if (!text || length <= 0) return wrong();
    if (!valid(device)) return wrong(cudaErrorInvalidDevice);
    return noted(static_cast<cudaError_t>(cuDeviceGetPCIBusId(text, length, device)));
}
cudaError_t cudaDeviceGetByPCIBusId(int* device, const char* text) {
    if (!device || !text) return wrong();
    for (int i = 0; i < device_count(); ++i) {
        char id[16];
        cudaDeviceGetPCIBusId(id, sizeof id, i);
        if (std::strcmp(id, text) != 0) continue;
        *device = i;
        return cudaSuccess;
    }
    return wrong(cudaErrorInvalidDevice);
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
    if (!value) return wrong();
    if (!valid(device)) return wrong(cudaErrorInvalidDevice);
    return noted(static_cast<cudaError_t>(cuDeviceGetAttribute(value, static_cast<CUdevice_attribute>(attribute), device)));
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
    if (!can) return wrong();
    if (!valid(device) || !valid(peer)) return wrong(cudaErrorInvalidDevice);
    *can = device != peer;
    return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned) {
    return valid(peer) ? cudaSuccess : wrong(cudaErrorInvalidDevice);
}
cudaError_t cudaDeviceDisablePeerAccess(int peer) { return valid(peer) ? cudaSuccess : wrong(cudaErrorInvalidDevice); }

// --- versions ------------------------------------------------------------------------------------------

cudaError_t cudaDriverGetVersion(int* version) {
    if (!version) return wrong();
    *version = kDriverVersion;
    return cudaSuccess;
}
#undef cudaGetDriverEntryPoint
#undef cudaGetDriverEntryPointByVersion
__attribute__((visibility("default"))) cudaError_t cudaGetDriverEntryPoint(const char* symbol, void** function,
                                                                           unsigned long long flags,
                                                                           cudaDriverEntryPointQueryResult* result) {
    CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    const CUresult status = cuGetProcAddress_v2(symbol, function, kDriverVersion, flags, &found);
    if (result) *result = static_cast<cudaDriverEntryPointQueryResult>(found);
    return status == CUDA_ERROR_INVALID_VALUE ? wrong() : cudaSuccess;
}
__attribute__((visibility("default"))) cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function,
                                                                                    unsigned, unsigned long long flags,
                                                                                    cudaDriverEntryPointQueryResult* result) {
    return cudaGetDriverEntryPoint(symbol, function, flags, result);
}

// --- capture -----------------------------------------------------------------------------------------

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
    if (!mode) return wrong();
    std::swap(capture_mode, *mode);
    return cudaSuccess;
}
}  // extern "C"
