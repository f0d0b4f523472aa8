// What only the runtime of CUDA 13 has, or has otherwise. The build has the headers of CUDA 12: what differs is written
// down here, by the layout of the newer ones.
#pragma GCC visibility push(default)
#include <cuda_runtime_api.h>
#pragma GCC visibility pop

#include <cstddef>

#include "cudart/capture_info.h"
#include "cudart/properties.h"
#include "cudart/runtime_error.h"

using namespace opus::standin;

namespace {

// cudaDeviceProp of CUDA 13.
struct DeviceProperties {
    char name[256];
    cudaUUID_t uuid;
    char luid[8];
    unsigned luidDeviceNodeMask;
    std::size_t totalGlobalMem, sharedMemPerBlock;
    int regsPerBlock, warpSize;
    std::size_t memPitch;
    int maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3];
    std::size_t totalConstMem;
    int major, minor;
    std::size_t textureAlignment, texturePitchAlignment;
    int multiProcessorCount, integrated, canMapHostMemory, maxTexture1D, maxTexture1DMipmap, maxTexture2D[2],
        maxTexture2DMipmap[2], maxTexture2DLinear[3], maxTexture2DGather[2], maxTexture3D[3], maxTexture3DAlt[3],
        maxTextureCubemap, maxTexture1DLayered[2], maxTexture2DLayered[3], maxTextureCubemapLayered[2], maxSurface1D,
        maxSurface2D[2], maxSurface3D[3], maxSurface1DLayered[2], maxSurface2DLayered[3], maxSurfaceCubemap,
        maxSurfaceCubemapLayered[2];
    std::size_t surfaceAlignment;
    int concurrentKernels, ECCEnabled, pciBusID, pciDeviceID, pciDomainID, tccDriver, asyncEngineCount,
        unifiedAddressing, memoryBusWidth, l2CacheSize, persistingL2CacheMaxSize, maxThreadsPerMultiProcessor,
        streamPrioritiesSupported, globalL1CacheSupported, localL1CacheSupported;
    std::size_t sharedMemPerMultiprocessor;
    int regsPerMultiprocessor, managedMemory, isMultiGpuBoard, multiGpuBoardGroupID, hostNativeAtomicSupported,
        pageableMemoryAccess, concurrentManagedAccess, computePreemptionSupported, canUseHostPointerForRegisteredMem,
        cooperativeLaunch;
    std::size_t sharedMemPerBlockOptin;
    int pageableMemoryAccessUsesHostPageTables, directManagedMemAccessFromHost, maxBlocksPerMultiProcessor,
        accessPolicyMaxWindowSize;
    std::size_t reservedSharedMemPerBlock;
    int hostRegisterSupported, sparseCudaArraySupported, hostRegisterReadOnlySupported,
        timelineSemaphoreInteropSupported, memoryPoolsSupported, gpuDirectRDMASupported;
    unsigned gpuDirectRDMAFlushWritesOptions;
    int gpuDirectRDMAWritesOrdering;
    unsigned memoryPoolSupportedHandleTypes;
    int deferredMappingCudaArraySupported, ipcEventSupported, clusterLaunch, unifiedFunctionPointers, deviceNumaConfig,
        deviceNumaId, mpsEnabled, hostNumaId;
    unsigned gpuPciDeviceID, gpuPciSubsystemID;
    int hostNumaMultinodeIpcSupported, reserved[56];
};
static_assert(offsetof(DeviceProperties, pciBusID) == 568 && offsetof(DeviceProperties, gpuPciSubsystemID) == 776 &&
              sizeof(DeviceProperties) == 1008);

constexpr int kRuntimeVersion = 13020;

}  // namespace

extern "C" {

#undef cudaGetDeviceProperties
STANDIN_API cudaError_t cudaGetDeviceProperties(DeviceProperties* p, int device) {
    if (!p) return wrong();
    if (device < 0 || device >= device_count()) return wrong(cudaErrorInvalidDevice);
    fill_properties(*p, device);
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
    if (!version) return wrong();
    *version = kRuntimeVersion;
    return cudaSuccess;
}

// With the edges' data, which CUDA 12 had as _v3.
#undef cudaStreamGetCaptureInfo
STANDIN_API cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                                 unsigned long long* id, cudaGraph_t* graph,
                                                 const cudaGraphNode_t** nodes, const void** edges, size_t* count) {
    if (edges) *edges = nullptr;
    return capture_info(stream, status, id, graph, nodes, count);
}

// --- pools: one, without properties -------------------------------------------------------------------------

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
    if (!pool) return wrong();
    if (device < 0 || device >= device_count()) return wrong(cudaErrorInvalidDevice);
    *pool = reinterpret_cast<cudaMemPool_t>(static_cast<std::uintptr_t>(0xF001) + static_cast<unsigned>(device));
    return cudaSuccess;
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) { return cudaSuccess; }
cudaError_t cudaMemPoolSetAccess(cudaMemPool_t, const cudaMemAccessDesc*, size_t) { return cudaSuccess; }
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, size_t) { return cudaSuccess; }

STANDIN_API cudaError_t cudaProfilerStart(void) { return cudaSuccess; }
STANDIN_API cudaError_t cudaProfilerStop(void) { return cudaSuccess; }

}  // extern "C"
