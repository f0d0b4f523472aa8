// The runtime's last error, of the calling thread.
#pragma once

#include <cuda_runtime_api.h>

#include "engine/engine.h"

namespace opus::standin {

// Remembers a failure for cudaGetLastError and hands it on.
cudaError_t noted(cudaError_t error);

// What a call on the current device returns when it has done its part: success, or what killed the device.
inline cudaError_t settled() { return noted(static_cast<cudaError_t>(device_error(current_device()))); }

inline cudaError_t wrong(cudaError_t error = cudaErrorInvalidValue) { return noted(error); }

}  // namespace opus::standin
