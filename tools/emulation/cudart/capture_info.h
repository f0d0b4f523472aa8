// What a stream captures, as both runtimes tell it: not after which nodes.
#pragma once

#include <cuda_runtime_api.h>

#include "engine/graph.h"
#include "runtime_error.h"

namespace opus::standin {

inline cudaError_t capture_info(cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long* id,
                                cudaGraph_t* graph, const cudaGraphNode_t** nodes, std::size_t* count) {
    const cudaError_t result = cudaStreamIsCapturing(stream, status);
    if (result != cudaSuccess) return result;
    Graph* captured = graph_of_capture(resolve_stream(stream));
    if (id) *id = captured ? captured->id : 0;
    if (graph) *graph = reinterpret_cast<cudaGraph_t>(captured);
    if (nodes) *nodes = nullptr;
    if (count) *count = 0;
    return cudaSuccess;
}

}  // namespace opus::standin
