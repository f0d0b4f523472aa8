// libcuda.so.1, a stand-in: the part of the driver API that a preload, a runtime and NCCL programs use, on
// the engine. Anything else is absent from the library and from cuGetProcAddress.
#pragma GCC visibility push(default)
#include <cuda.h>
#pragma GCC visibility pop

#include <dlfcn.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <utility>

#include "driver_objects.h"
#include "driver_version.h"
#include "engine/engine.h"
#include "engine/graph.h"
#include "engine/model.h"
#include "engine/node_gpus.h"

using namespace opus::standin;

namespace opus::standin {

CUresult status(int device) { return static_cast<CUresult>(device_error(device)); }
CUresult status() { return status(current_device()); }

bool valid_device(int device) { return device >= 0 && device < device_count(); }

// One primary context a device; the handle is a tagged index.
CUcontext context_of(int device) { return reinterpret_cast<CUcontext>(0xC0DE0000ul + static_cast<unsigned>(device)); }
int device_of(CUcontext context) { return static_cast<int>(reinterpret_cast<std::uintptr_t>(context) - 0xC0DE0000ul); }

}  // namespace opus::standin

extern "C" {

CUresult CUDAAPI cuInit(unsigned int flags) {
    if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
    return device_count() == 0 ? CUDA_ERROR_NO_DEVICE : CUDA_SUCCESS;
}

CUresult CUDAAPI cuDriverGetVersion(int* version) {
    if (!version) return CUDA_ERROR_INVALID_VALUE;
    *version = kDriverVersion;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetCount(int* count) {
    if (!count) return CUDA_ERROR_INVALID_VALUE;
    *count = device_count();
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGet(CUdevice* device, int ordinal) {
    if (!device) return CUDA_ERROR_INVALID_VALUE;
    if (!valid_device(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetName(char* name, int length, CUdevice device) {
    if (!name || length <= 0) return CUDA_ERROR_INVALID_VALUE;
    if (!valid_device(device)) return CUDA_ERROR_INVALID_DEVICE;
    std::snprintf(name, static_cast<std::size_t>(length), "Opus stand-in GPU %d", physical_device(device));
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceTotalMem_v2(size_t* bytes, CUdevice device) {
    if (!bytes) return CUDA_ERROR_INVALID_VALUE;
    if (!valid_device(device)) return CUDA_ERROR_INVALID_DEVICE;
    *bytes = gpu_model().memory_bytes;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetPCIBusId(char* text, int length, CUdevice device) {
    if (!text || length <= 0) return CUDA_ERROR_INVALID_VALUE;
    if (!valid_device(device)) return CUDA_ERROR_INVALID_DEVICE;
    std::snprintf(text, static_cast<std::size_t>(length), "%s", pci_of(physical_device(device)).c_str());
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
    if (!uuid) return CUDA_ERROR_INVALID_VALUE;
    if (!valid_device(device)) return CUDA_ERROR_INVALID_DEVICE;
    std::memcpy(uuid->bytes, uuid_of(physical_device(device)).data(), sizeof uuid->bytes);
    return CUDA_SUCCESS;
}
CUresult CUDAAPI cuDeviceGetUuid(CUuuid* uuid, CUdevice device) { return cuDeviceGetUuid_v2(uuid, device); }

CUresult CUDAAPI cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
    if (!value) return CUDA_ERROR_INVALID_VALUE;
    if (!valid_device(device)) return CUDA_ERROR_INVALID_DEVICE;
    switch (static_cast<int>(attribute)) {
        case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = 1024; break;
        case CU_DEVICE_ATTRIBUTE_WARP_SIZE: *value = 32; break;
        case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = gpu_model().multiprocessors; break;
        case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = gpu_model().major; break;
        case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = gpu_model().minor; break;
        case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR: *value = 2048; break;
        case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
        case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y: *value = 1024; break;
        case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z: *value = 64; break;
        case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X: *value = 0x7fffffff; break;
        case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
        case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z: *value = 65535; break;
        case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK: *value = 48 << 10; break;
        case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: *value = gpu_model().shared_bytes - 1024; break;
        case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR: *value = gpu_model().shared_bytes; break;
        case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: *value = gpu_model().l2_bytes; break;
        case CU_DEVICE_ATTRIBUTE_CLOCK_RATE: *value = 1'980'000; break;
        case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE: *value = 2'619'000; break;
        case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH: *value = 5120; break;
        case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID: *value = 0x10 + physical_device(device); break;
        case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
        case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
        case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
        case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS:
        case CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED:
        case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:
        case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
        case CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1:
        case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS_V1:
        case CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR_V1:
        case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS:
        case CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR: *value = 1; break;
        default: *value = 0; break;
    }
    return CUDA_SUCCESS;
}

// --- contexts ----------------------------------------------------------------------------------------

CUresult CUDAAPI cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
    if (!context) return CUDA_ERROR_INVALID_VALUE;
    if (!valid_device(device)) return CUDA_ERROR_INVALID_DEVICE;
    *context = context_of(device);
    return CUDA_SUCCESS;
}
CUresult CUDAAPI cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    return valid_device(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
CUresult CUDAAPI cuDevicePrimaryCtxGetState(CUdevice device, unsigned int* flags, int* active) {
    if (!valid_device(device)) return CUDA_ERROR_INVALID_DEVICE;
    if (flags) *flags = 0;
    if (active) *active = 1;
    return CUDA_SUCCESS;
}
CUresult CUDAAPI cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned int) {
    return valid_device(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult CUDAAPI cuCtxGetCurrent(CUcontext* context) {
    if (!context) return CUDA_ERROR_INVALID_VALUE;
    *context = device_count() ? context_of(current_device()) : nullptr;
    return CUDA_SUCCESS;
}
CUresult CUDAAPI cuCtxSetCurrent(CUcontext context) {
    if (!context) return CUDA_SUCCESS;
    return set_current_device(device_of(context)) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}
CUresult CUDAAPI cuCtxPushCurrent_v2(CUcontext context) {
    if (!context || !valid_device(device_of(context))) return CUDA_ERROR_INVALID_CONTEXT;
    context_stack().push_back(current_device());
    set_current_device(device_of(context));
    return CUDA_SUCCESS;
}
CUresult CUDAAPI cuCtxPopCurrent_v2(CUcontext* context) {
    if (context_stack().empty()) return CUDA_ERROR_INVALID_CONTEXT;
    if (context) *context = context_of(current_device());
    set_current_device(context_stack().back());
    context_stack().pop_back();
    return CUDA_SUCCESS;
}
CUresult CUDAAPI cuCtxGetDevice(CUdevice* device) {
    if (!device) return CUDA_ERROR_INVALID_VALUE;
    *device = current_device();
    return CUDA_SUCCESS;
}
CUresult CUDAAPI cuCtxGetFlags(unsigned int* flags) {
    if (!flags) return CUDA_ERROR_INVALID_VALUE;
    *flags = 0;
    return CUDA_SUCCESS;
}
CUresult CUDAAPI cuCtxGetApiVersion(CUcontext, unsigned int* version) {
    if (!version) return CUDA_ERROR_INVALID_VALUE;
    *version = CUDA_VERSION;
    return CUDA_SUCCESS;
}
// Of a heap, a stack, a buffer for printf: nothing here has one.
CUresult CUDAAPI cuCtxSetLimit(CUlimit, size_t) { return CUDA_SUCCESS; }
CUresult CUDAAPI cuCtxGetLimit(size_t* value, CUlimit) {
    if (!value) return CUDA_ERROR_INVALID_VALUE;
    *value = 0;
    return CUDA_SUCCESS;
}
CUresult CUDAAPI cuCtxGetStreamPriorityRange(int* least, int* greatest) {
    if (least) *least = 0;
    if (greatest) *greatest = -5;
    return CUDA_SUCCESS;
}
CUresult CUDAAPI cuCtxSynchronize(void) {
    if (const int fault = device_sync_fault()) return static_cast<CUresult>(fault);
    sync_device(current_device());
    return status();
}
CUresult CUDAAPI cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
    if (!mode) return CUDA_ERROR_INVALID_VALUE;
    std::swap(capture_mode(), *mode);
    return CUDA_SUCCESS;
}

// --- strings, lookup -------------------------------------------------------------------------------------

CUresult CUDAAPI cuGetErrorName(CUresult error, const char** text) {
    if (!text) return CUDA_ERROR_INVALID_VALUE;
    *text = error_name(error);
    return *text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult CUDAAPI cuGetErrorString(CUresult error, const char** text) {
    if (!text) return CUDA_ERROR_INVALID_VALUE;
    *text = error_text(error);
    return *text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

#undef cuGetProcAddress
#undef cuGetProcAddress_v2

// Newest form first: cuStreamWriteValue64 means cuStreamWriteValue64_v2.
CUresult CUDAAPI cuGetProcAddress_v2(const char* symbol, void** function, int, cuuint64_t,
                                     CUdriverProcAddressQueryResult* result) {
    if (!symbol || !function) return CUDA_ERROR_INVALID_VALUE;
    static void* self = [] {
        Dl_info info;
        dladdr(reinterpret_cast<void*>(&cuInit), &info);
        return dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    }();
    *function = self ? dlsym(self, (std::string(symbol) + "_v2").c_str()) : nullptr;
    if (self && !*function) *function = dlsym(self, symbol);
    if (result) *result = *function ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return *function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
__attribute__((visibility("default"))) CUresult CUDAAPI cuGetProcAddress(const char* symbol, void** function,
                                                                         int version, cuuint64_t flags) {
    return cuGetProcAddress_v2(symbol, function, version, flags, nullptr);
}

}  // extern "C"
