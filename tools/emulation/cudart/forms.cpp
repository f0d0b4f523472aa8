// What only the runtime of CUDA 12 has, or has otherwise.
#pragma GCC visibility push(default)
#include <cuda_runtime_api.h>
#pragma GCC visibility pop

#include <cstdio>
#include <cstring>

#include "capture_info.h"
#include "engine/model.h"
#include "properties.h"
#include "runtime_error.h"

using namespace opus::standin;

extern "C" {

#undef cudaGetDeviceProperties
STANDIN_API cudaError_t cudaGetDeviceProperties_v2(cudaDeviceProp* p, int device) {
    if (!p) return wrong();
    if (device < 0 || device >= device_count()) return wrong(cudaErrorInvalidDevice);
    fill_properties(*p, device);
    return cudaSuccess;
}
// What programs built before CUDA 12 ask for: the older struct is a prefix for all that is set here.
STANDIN_API cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int device) {
    return cudaGetDeviceProperties_v2(p, device);
}

cudaError_t cudaRuntimeGetVersion(int* version) {
    if (!version) return wrong();
    *version = CUDART_VERSION;
    return cudaSuccess;
}

#undef cudaStreamGetCaptureInfo
STANDIN_API cudaError_t cudaStreamGetCaptureInfo_v2(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                                    unsigned long long* id, cudaGraph_t* graph,
                                                    const cudaGraphNode_t** nodes, size_t* count) {
    return capture_info(stream, status, id, graph, nodes, count);
}

}  // extern "C"
