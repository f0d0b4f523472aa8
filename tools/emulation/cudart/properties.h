// What a device says of itself, in the layout of either runtime.
#pragma once

#include <cuda.h>

#include <cstdio>
#include <cstring>

#include "engine/model.h"

namespace opus::standin {

template <typename Properties>
void fill_properties(Properties& p, int device) {
    const GpuModel& gpu = gpu_model();
    std::memset(&p, 0, sizeof p);
    std::snprintf(p.name, sizeof p.name, "Opus stand-in GPU %d (as %s)", physical_device(device), gpu.name);
    CUuuid uuid;
    if (cuDeviceGetUuid(&uuid, device) == CUDA_SUCCESS) std::memcpy(p.uuid.bytes, uuid.bytes, sizeof p.uuid.bytes);
    p.totalGlobalMem = gpu.memory_bytes;
    p.sharedMemPerBlock = 48 << 10;
    p.sharedMemPerBlockOptin = static_cast<size_t>(gpu.shared_bytes) - 1024;
    p.sharedMemPerMultiprocessor = static_cast<size_t>(gpu.shared_bytes);
    p.reservedSharedMemPerBlock = 1024;
    p.regsPerBlock = p.regsPerMultiprocessor = 65536;
    p.warpSize = 32;
    p.memPitch = 0x7fffffff;
    p.maxThreadsPerBlock = 1024;
    p.maxThreadsPerMultiProcessor = 2048;
    p.maxBlocksPerMultiProcessor = 32;
    p.maxThreadsDim[0] = p.maxThreadsDim[1] = 1024;
    p.maxThreadsDim[2] = 64;
    p.maxGridSize[0] = 0x7fffffff;
    p.maxGridSize[1] = p.maxGridSize[2] = 65535;
    p.totalConstMem = 64 << 10;
    p.textureAlignment = p.surfaceAlignment = 512;
    p.texturePitchAlignment = 32;
    p.major = gpu.major;
    p.minor = gpu.minor;
    p.multiProcessorCount = gpu.multiprocessors;
    p.l2CacheSize = gpu.l2_bytes;
    p.memoryBusWidth = 5120;
    p.pciBusID = 0x10 + physical_device(device);
    p.canMapHostMemory = p.unifiedAddressing = p.concurrentKernels = p.streamPrioritiesSupported = 1;
    p.hostRegisterSupported = p.canUseHostPointerForRegisteredMem = p.cooperativeLaunch = 1;
    p.asyncEngineCount = 1;
}

}  // namespace opus::standin
