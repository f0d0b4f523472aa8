// The runtime, a stand-in: stream capture, graphs and what they keep alive. Graphs come from captures only; what nodes
// they have is not told.
#pragma GCC visibility push(default)
#include <cuda_runtime_api.h>
#pragma GCC visibility pop

#include "engine/graph.h"
#include "runtime_error.h"

using namespace opus::standin;

namespace {

Graph* graph_of(cudaGraph_t graph) { return reinterpret_cast<Graph*>(graph); }
GraphExec* exec_of(cudaGraphExec_t exec) { return reinterpret_cast<GraphExec*>(exec); }
UserObject* object_of(cudaUserObject_t object) { return reinterpret_cast<UserObject*>(object); }
cudaError_t result_of(int fault) { return fault == 0 ? cudaSuccess : wrong(static_cast<cudaError_t>(fault)); }

}  // namespace

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
    Stream* on = resolve_stream(stream);
    return on ? result_of(begin_capture(on)) : wrong(cudaErrorInvalidResourceHandle);
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
    Stream* on = resolve_stream(stream);
    if (!on || !graph) return wrong();
    return result_of(end_capture(on, reinterpret_cast<Graph**>(graph)));
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
    if (!status) return wrong();
    Stream* on = resolve_stream(stream);
    if (!on) return wrong(cudaErrorInvalidResourceHandle);
    *status = static_cast<cudaStreamCaptureStatus>(capture_status(on));
    return result_of(submit_fault(on) == kCaptureImplicit ? kCaptureImplicit : 0);
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
    if (!exec || !graph) return wrong();
    *exec = reinterpret_cast<cudaGraphExec_t>(instantiate(*graph_of(graph)));
    return settled();
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long flags) {
    return cudaGraphInstantiateWithFlags(exec, graph, flags);
}
cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t) { return exec ? settled() : wrong(); }
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
    Stream* on = resolve_stream(stream);
    if (!exec || !on) return wrong();
    const cudaError_t dead = settled();
    return dead != cudaSuccess ? dead : result_of(launch_graph(*exec_of(exec), on));
}
cudaError_t cudaGraphExecUpdate(cudaGraphExec_t exec, cudaGraph_t graph, cudaGraphExecUpdateResultInfo* info) {
    if (!exec || !graph) return wrong();
    const bool updated = update_graph(*exec_of(exec), *graph_of(graph));
    if (info)
        *info = {updated ? cudaGraphExecUpdateSuccess : cudaGraphExecUpdateErrorTopologyChanged, nullptr, nullptr};
    return updated ? settled() : wrong(cudaErrorGraphExecUpdateFailure);
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    if (!graph) return wrong();
    destroy_graph(graph_of(graph));
    return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
    if (!exec) return wrong();
    destroy_graph(exec_of(exec));
    return cudaSuccess;
}
// Their number only.
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
    if (!graph || !count) return wrong();
    if (nodes) return wrong(cudaErrorNotSupported);
    *count = graph_of(graph)->ops.size();
    return cudaSuccess;
}

cudaError_t cudaUserObjectCreate(cudaUserObject_t* object, void* argument, cudaHostFn_t destroy, unsigned references,
                                 unsigned) {
    if (!object || !destroy || references == 0) return wrong();
    *object = reinterpret_cast<cudaUserObject_t>(make_object(destroy, argument, references));
    return cudaSuccess;
}
cudaError_t cudaUserObjectRetain(cudaUserObject_t object, unsigned count) {
    if (!object) return wrong();
    retain_object(object_of(object), count);
    return cudaSuccess;
}
cudaError_t cudaUserObjectRelease(cudaUserObject_t object, unsigned count) {
    if (!object) return wrong();
    release_object(object_of(object), count);
    return cudaSuccess;
}
cudaError_t cudaGraphRetainUserObject(cudaGraph_t graph, cudaUserObject_t object, unsigned count, unsigned flags) {
    if (!graph || !object) return wrong();
    return result_of(give_object(*graph_of(graph), object_of(object), count, (flags & cudaGraphUserObjectMove) != 0));
}
cudaError_t cudaGraphReleaseUserObject(cudaGraph_t graph, cudaUserObject_t object, unsigned count) {
    if (!graph || !object) return wrong();
    return result_of(take_object(*graph_of(graph), object_of(object), count));
}

}  // extern "C"
