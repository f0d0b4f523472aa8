// Errors of CUDA and NCCL as PlayError.
#pragma once

#include <cuda_runtime.h>
#include <nccl.h>

#include "tools/replay/player.h"

namespace opus::replay {

inline void cuda(cudaError_t error, const char* what) {
    if (error != cudaSuccess) throw PlayError(kExitNccl, std::string(what) + ": " + cudaGetErrorString(error));
}
inline void nccl(ncclResult_t result, const std::string& what) {
    if (result != ncclSuccess && result != ncclInProgress)
        throw PlayError(kExitNccl, what + ": " + ncclGetErrorString(result));
}

}  // namespace opus::replay
