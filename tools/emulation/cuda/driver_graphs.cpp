// libcuda.so.1, a stand-in: stream capture, graphs and what they keep alive.
#pragma GCC visibility push(default)
#include <cuda.h>
// The headers declare only the newest forms; programs ask for the others by name.
#undef cuStreamGetCaptureInfo
#undef cuStreamGetCaptureInfo_v2
extern "C" {
CUresult CUDAAPI cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status);
CUresult CUDAAPI cuStreamGetCaptureInfo_v2(CUstream, CUstreamCaptureStatus*, cuuint64_t*, CUgraph*, const CUgraphNode**,
                                           size_t*);
}
#pragma GCC visibility pop

#include "driver_objects.h"
#include "engine/graph.h"

using namespace opus::standin;

namespace {

Graph* graph_of(CUgraph graph) { return reinterpret_cast<Graph*>(graph); }
GraphExec* exec_of(CUgraphExec exec) { return reinterpret_cast<GraphExec*>(exec); }
UserObject* object_of(CUuserObject object) { return reinterpret_cast<UserObject*>(object); }
CUresult result_of(int fault) { return static_cast<CUresult>(fault); }

}  // namespace

extern "C" {

CUresult CUDAAPI cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode) {
    Stream* on = resolve_stream(stream);
    return on ? result_of(begin_capture(on)) : CUDA_ERROR_INVALID_HANDLE;
}
CUresult CUDAAPI cuStreamEndCapture(CUstream stream, CUgraph* graph) {
    Stream* on = resolve_stream(stream);
    if (!on || !graph) return CUDA_ERROR_INVALID_VALUE;
    return result_of(end_capture(on, reinterpret_cast<Graph**>(graph)));
}
CUresult CUDAAPI cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* capture) {
    if (!capture) return CUDA_ERROR_INVALID_VALUE;
    Stream* on = resolve_stream(stream);
    if (!on) return CUDA_ERROR_INVALID_HANDLE;
    *capture = static_cast<CUstreamCaptureStatus>(capture_status(on));
    return result_of(submit_fault(on) == kCaptureImplicit ? kCaptureImplicit : 0);
}
CUresult CUDAAPI cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus* capture, cuuint64_t* id,
                                           CUgraph* graph, const CUgraphNode** nodes, size_t* count) {
    const CUresult result = cuStreamIsCapturing(stream, capture);
    if (result != CUDA_SUCCESS) return result;
    Graph* captured = graph_of_capture(resolve_stream(stream));
    if (id) *id = captured ? captured->id : 0;
    if (graph) *graph = reinterpret_cast<CUgraph>(captured);
    if (nodes) *nodes = nullptr;
    if (count) *count = 0;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph, unsigned long long) {
    if (!exec || !graph) return CUDA_ERROR_INVALID_VALUE;
    *exec = reinterpret_cast<CUgraphExec>(instantiate(*graph_of(graph)));
    return CUDA_SUCCESS;
}
CUresult CUDAAPI cuGraphLaunch(CUgraphExec exec, CUstream stream) {
    Stream* on = resolve_stream(stream);
    if (!exec || !on) return CUDA_ERROR_INVALID_VALUE;
    if (status() != CUDA_SUCCESS) return status();
    return result_of(launch_graph(*exec_of(exec), on));
}
CUresult CUDAAPI cuGraphDestroy(CUgraph graph) {
    if (!graph) return CUDA_ERROR_INVALID_VALUE;
    destroy_graph(graph_of(graph));
    return CUDA_SUCCESS;
}
CUresult CUDAAPI cuGraphExecDestroy(CUgraphExec exec) {
    if (!exec) return CUDA_ERROR_INVALID_VALUE;
    destroy_graph(exec_of(exec));
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuUserObjectCreate(CUuserObject* object, void* argument, CUhostFn destroy, unsigned references, unsigned) {
    if (!object || !destroy || references == 0) return CUDA_ERROR_INVALID_VALUE;
    *object = reinterpret_cast<CUuserObject>(make_object(destroy, argument, references));
    return CUDA_SUCCESS;
}
CUresult CUDAAPI cuUserObjectRetain(CUuserObject object, unsigned count) {
    if (!object) return CUDA_ERROR_INVALID_VALUE;
    retain_object(object_of(object), count);
    return CUDA_SUCCESS;
}
CUresult CUDAAPI cuUserObjectRelease(CUuserObject object, unsigned count) {
    if (!object) return CUDA_ERROR_INVALID_VALUE;
    release_object(object_of(object), count);
    return CUDA_SUCCESS;
}
CUresult CUDAAPI cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned count, unsigned flags) {
    if (!graph || !object) return CUDA_ERROR_INVALID_VALUE;
    return result_of(give_object(*graph_of(graph), object_of(object), count, (flags & CU_GRAPH_USER_OBJECT_MOVE) != 0));
}
CUresult CUDAAPI cuGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned count) {
    if (!graph || !object) return CUDA_ERROR_INVALID_VALUE;
    return result_of(take_object(*graph_of(graph), object_of(object), count));
}

}  // extern "C"
