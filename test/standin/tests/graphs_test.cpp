// Stream capture and graphs on the stand-in GPU, with its NCCL and without.
#include <doctest/doctest.h>

#include <cuda.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "ranks.h"

using namespace opus::standin::test;

namespace {

void must(cudaError_t error) {
    if (error != cudaSuccess) give_up(cudaGetErrorString(error), __FILE__, __LINE__);
}

cudaStream_t new_stream() {
    cudaStream_t stream = nullptr;
    must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
}

void order(cudaStream_t before, cudaStream_t after) {
    cudaEvent_t event = nullptr;
    must(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    must(cudaEventRecord(event, before));
    must(cudaStreamWaitEvent(after, event, 0));
    must(cudaEventDestroy(event));
}

template <class Body>
cudaGraph_t capture(cudaStream_t stream, Body body) {
    must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    body();
    cudaGraph_t graph = nullptr;
    must(cudaStreamEndCapture(stream, &graph));
    return graph;
}

cudaGraphExec_t executable(cudaGraph_t graph) {
    cudaGraphExec_t exec = nullptr;
    must(cudaGraphInstantiateWithFlags(&exec, graph, 0));
    return exec;
}

void count(void* counter) { ++*static_cast<std::atomic<int>*>(counter); }

void await(const std::atomic<int>& counter, int value) {
    while (counter < value) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}
void hold_up(void* counter) { await(*static_cast<std::atomic<int>*>(counter), 1); }

// What `graph` keeps alive: `gone` counts its end.
void keep(cudaGraph_t graph, std::atomic<int>& gone) {
    cudaUserObject_t object = nullptr;
    must(cudaUserObjectCreate(&object, &gone, count, 1, cudaUserObjectNoDestructorSync));
    must(cudaGraphRetainUserObject(graph, object, 1, cudaGraphUserObjectMove));
}

}  // namespace

TEST_CASE("what is captured runs at each launch of the graph, and not before") {
    CHECK(run_alone({}, [] {
              cudaStream_t s = new_stream(), t = new_stream();
              std::atomic<int> called{0};
              int a = 1, b = 0, c = 0;
              cudaGraph_t graph = capture(s, [&] {
                  must(cudaMemcpyAsync(&b, &a, sizeof a, cudaMemcpyDefault, s));
                  order(s, t);  // t is captured too
                  must(cudaMemcpyAsync(&c, &b, sizeof b, cudaMemcpyDefault, t));
                  must(cudaLaunchHostFunc(t, count, &called));
                  order(t, s);
                  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
                  must(cudaStreamIsCapturing(t, &status));
                  demand(status == cudaStreamCaptureStatusActive);
              });
              cudaGraphExec_t exec = executable(graph);
              must(cudaStreamSynchronize(s));
              demand(b == 0 && called == 0);
              for (int i = 1; i <= 5; ++i) {
                  a = i;
                  must(cudaGraphLaunch(exec, s));
                  must(cudaStreamSynchronize(s));
                  demand(b == i && c == i && called == i);
              }
              must(cudaGraphExecDestroy(exec));
              must(cudaGraphDestroy(graph));
          }) == 0);
}

TEST_CASE("what would end a capture on a GPU ends it here") {
    CHECK(run_alone({}, [] {
              cudaStream_t s = new_stream(), t = new_stream();
              cudaGraph_t graph = nullptr;
              int last = 1;
              cudaEvent_t eager = nullptr;
              must(cudaEventCreate(&eager));
              must(cudaEventRecord(eager, t));

              must(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
              order(s, t);
              must(cudaMemsetAsync(&last, 0, sizeof last, t));
              demand(cudaStreamEndCapture(s, &graph) == cudaErrorStreamCaptureUnjoined && graph == nullptr);

              must(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
              demand(cudaStreamSynchronize(s) == cudaErrorStreamCaptureUnsupported);
              demand(cudaStreamEndCapture(s, &graph) == cudaErrorStreamCaptureInvalidated);

              must(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
              demand(cudaStreamWaitEvent(s, eager, 0) == cudaErrorStreamCaptureIsolation);
              demand(cudaStreamEndCapture(s, &graph) == cudaErrorStreamCaptureInvalidated);
              must(cudaStreamSynchronize(s));  // it is a stream again
              must(cudaEventDestroy(eager));
          }) == 0);
}

TEST_CASE("a wait for an event, and an event that nobody waits for, leave a capture joined; a node does not") {
    CHECK(run_alone({}, [] {
              cudaStream_t s = new_stream(), t = new_stream();
              int a = 1, b = 0, c = 0;
              cudaEvent_t unused = nullptr;
              must(cudaEventCreate(&unused));
              cudaGraph_t graph = capture(s, [&] {
                  order(s, t);
                  must(cudaMemcpyAsync(&b, &a, sizeof a, cudaMemcpyDefault, t));
                  order(t, s);
                  must(cudaMemcpyAsync(&c, &b, sizeof b, cudaMemcpyDefault, s));
                  order(s, t);  // what t would do next is behind it; it does nothing
                  must(cudaEventRecord(unused, t));
              });
              cudaGraphExec_t exec = executable(graph);
              must(cudaGraphLaunch(exec, s));
              must(cudaStreamSynchronize(s));
              demand(c == 1);
              must(cudaGraphDestroy(graph));
              must(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
              order(s, t);
              must(cudaMemcpyAsync(&b, &a, sizeof a, cudaMemcpyDefault, t));
              must(cudaEventRecord(unused, t));
              demand(cudaStreamEndCapture(s, &graph) == cudaErrorStreamCaptureUnjoined);
              // A kernel is a node, though it takes no time and computes nothing.
              CUmodule module = nullptr;
              CUfunction kernel = nullptr;
              demand(cuModuleLoadData(&module, ".entry any() { ret; }") == CUDA_SUCCESS);
              demand(cuModuleGetFunction(&kernel, module, "any") == CUDA_SUCCESS);
              must(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
              order(s, t);
              demand(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, t, nullptr, nullptr) == CUDA_SUCCESS);
              demand(cudaStreamEndCapture(s, &graph) == cudaErrorStreamCaptureUnjoined);
              demand(cuModuleUnload(module) == CUDA_SUCCESS);
              must(cudaGraphExecDestroy(exec));
              must(cudaEventDestroy(unused));
          }) == 0);
}

TEST_CASE("an executable is updated to a graph of the same shape, and to no other") {
    CHECK(run_alone({}, [] {
              cudaStream_t s = new_stream();
              int from[2] = {7, 8}, to = 0;
              const auto copies = [&](int which) {
                  return capture(
                      s, [&, which] { must(cudaMemcpyAsync(&to, &from[which], sizeof to, cudaMemcpyDefault, s)); });
              };
              cudaGraph_t first = copies(0), second = copies(1);
              cudaGraphExec_t exec = executable(first);
              cudaGraphExecUpdateResultInfo info{};
              must(cudaGraphExecUpdate(exec, second, &info));
              must(cudaGraphLaunch(exec, s));
              must(cudaStreamSynchronize(s));
              demand(to == 8);
              std::atomic<int> called{0};
              cudaGraph_t other = capture(s, [&] { must(cudaLaunchHostFunc(s, count, &called)); });
              demand(cudaGraphExecUpdate(exec, other, &info) == cudaErrorGraphExecUpdateFailure);
              must(cudaGraphExecDestroy(exec));
              for (cudaGraph_t graph : {first, second, other}) must(cudaGraphDestroy(graph));
          }) == 0);
}

TEST_CASE("what a graph keeps alive goes with it and the last of its executables") {
    CHECK(run_alone({}, [] {
              cudaStream_t s = new_stream();
              std::atomic<int> gone{0}, called{0};
              cudaGraph_t graph = capture(s, [&] { must(cudaLaunchHostFunc(s, count, &called)); });
              keep(graph, gone);
              cudaGraphExec_t exec = executable(graph);
              must(cudaGraphDestroy(graph));
              demand(gone == 0);
              must(cudaGraphLaunch(exec, s));
              must(cudaStreamSynchronize(s));
              must(cudaGraphExecDestroy(exec));
              demand(gone == 1 && called == 1);
          }) == 0);
}

TEST_CASE("what an executable keeps alive stays for a launch that is in flight when it is updated or destroyed") {
    CHECK(run_alone({}, [] {
              cudaStream_t s = new_stream(), t = new_stream();
              std::atomic<int> gone[2]{0, 0}, go[2]{0, 0};
              cudaGraphExec_t exec = nullptr;
              for (int i = 0; i < 2; ++i) {
                  cudaGraph_t graph = capture(i == 0 ? s : t, [&] { must(cudaLaunchHostFunc(i == 0 ? s : t, hold_up, &go[i])); });
                  keep(graph, gone[i]);
                  cudaGraphExecUpdateResultInfo info{};
                  if (i == 0)
                      exec = executable(graph);
                  else
                      must(cudaGraphExecUpdate(exec, graph, &info));
                  must(cudaGraphDestroy(graph));
                  must(cudaGraphLaunch(exec, s));
              }
              must(cudaGraphExecDestroy(exec));
              demand(gone[0] == 0 && gone[1] == 0);
              go[0] = 1;
              await(gone[0], 1);
              demand(gone[1] == 0);
              go[1] = 1;
              await(gone[1], 1);
              must(cudaStreamSynchronize(s));
          }) == 0);
}

TEST_CASE("what the graph of a capture that fails keeps alive goes with it") {
    CHECK(run_alone({}, [] {
              cudaStream_t s = new_stream();
              std::atomic<int> gone{0};
              cudaGraph_t graph = nullptr;
              must(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
              cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
              must(cudaStreamGetCaptureInfo(s, &status, nullptr, &graph, nullptr, nullptr));
              keep(graph, gone);
              demand(cudaStreamSynchronize(s) == cudaErrorStreamCaptureUnsupported);
              demand(cudaStreamEndCapture(s, &graph) == cudaErrorStreamCaptureInvalidated);
              demand(gone == 1);
          }) == 0);
}

TEST_CASE("an event from outside of graphs is recorded, and waited for, at each launch of them") {
    CHECK(run_alone({}, [] {
              cudaStream_t s = new_stream(), t = new_stream();
              cudaEvent_t event = nullptr;
              must(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
              demand(cudaEventRecordWithFlags(event, s, cudaEventRecordExternal) == cudaErrorInvalidValue);
              std::atomic<int> go{0}, called{0};
              cudaGraph_t first = capture(s, [&] {
                  must(cudaLaunchHostFunc(s, hold_up, &go));
                  must(cudaEventRecordWithFlags(event, s, cudaEventRecordExternal));
              });
              cudaGraph_t second = capture(t, [&] {
                  must(cudaStreamWaitEvent(t, event, cudaEventWaitExternal));
                  must(cudaLaunchHostFunc(t, count, &called));
              });
              cudaGraphExec_t records = executable(first), waits = executable(second);
              must(cudaGraphLaunch(records, s));
              must(cudaGraphLaunch(waits, t));
              must(cudaEventRecord(event, t));  // later than both
              std::this_thread::sleep_for(std::chrono::milliseconds(20));
              demand(called == 0 && cudaEventQuery(event) == cudaErrorNotReady);
              go = 1;
              must(cudaStreamSynchronize(t));
              demand(called == 1 && cudaEventQuery(event) == cudaSuccess);
              for (cudaGraphExec_t exec : {records, waits}) must(cudaGraphExecDestroy(exec));
              for (cudaGraph_t graph : {first, second}) must(cudaGraphDestroy(graph));
              must(cudaEventDestroy(event));
          }) == 0);
}

TEST_CASE("captured collectives and transfers run again and again, among calls") {
    CHECK(all_well(run_ranks(nodes_of({1, 1}), [](const Rank& r) {
        ncclComm_t comm = r.comm();
        cudaStream_t s = new_stream();
        std::int64_t mine = 0, sum = 0, got = 0;
        const int peer = 1 - r.rank;
        const auto exchange = [&] {
            demand_nccl(ncclAllReduce(&mine, &sum, 1, ncclInt64, ncclSum, comm, s));
            demand_nccl(ncclGroupStart());
            demand_nccl(ncclSend(&mine, 1, ncclInt64, peer, comm, s));
            demand_nccl(ncclRecv(&got, 1, ncclInt64, peer, comm, s));
            demand_nccl(ncclGroupEnd());
        };
        const auto check = [&](int round) {
            must(cudaStreamSynchronize(s));
            demand(sum == 2 * round + 1 && got == round + peer);
        };
        cudaGraph_t graph = capture(s, exchange);
        cudaGraphExec_t exec = executable(graph);
        for (int round = 1; round < 20; ++round) {
            mine = round + r.rank;
            if (round % 3 == 0)
                exchange();
            else
                must(cudaGraphLaunch(exec, s));
            check(round);
        }
        must(cudaGraphExecDestroy(exec));
        must(cudaGraphDestroy(graph));
        demand_nccl(ncclCommDestroy(comm));
    })));
}
