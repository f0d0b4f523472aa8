// Stream capture and graphs. What is submitted to a stream that captures becomes an operation of the capture's graph
// instead: a template, which never runs itself. A launch of the graph submits a copy of each, in the order of capture,
// each after the copies of what it came after there.
//
// Faults are CUDA's numbers, the same in both APIs; 0: none.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "engine.h"

namespace opus::standin {

inline constexpr int kInvalidValue = 1;
inline constexpr int kCaptureUnsupported = 900;
inline constexpr int kCaptureInvalidated = 901;
inline constexpr int kCaptureMerge = 902;
inline constexpr int kCaptureUnmatched = 903;
inline constexpr int kCaptureUnjoined = 904;
inline constexpr int kCaptureIsolation = 905;
inline constexpr int kCaptureImplicit = 906;
inline constexpr int kCapturedEvent = 907;
inline constexpr int kGraphUpdateFailure = 910;

// Counted by its holders: the program, graphs, their executables. Destroyed on the thread that lets go last.
struct UserObject {
    void (*destroy)(void*) = nullptr;
    void* argument = nullptr;
    unsigned references = 0;
};
using HeldObjects = std::map<UserObject*, unsigned>;  // and how often

// From the last on: each holds those that it comes after.
inline void forget(std::vector<OpRef>& ops) {
    while (!ops.empty()) ops.pop_back();
}

struct Graph {
    std::uint64_t id = 0;
    std::vector<OpRef> ops;
    HeldObjects objects;
    ~Graph() { forget(ops); }
};

struct GraphExec {
    Device* device = nullptr;
    std::vector<OpRef> ops;
    HeldObjects objects;
    std::vector<Stream*> lanes;  // one for each captured stream but the first, whose copies go to the stream of the launch
    OpRef last;                  // the end of the last launch: launches of one executable take turns
    ~GraphExec() { forget(ops); }
};

struct Capture {
    std::unique_ptr<Graph> graph;
    Stream* origin = nullptr;
    std::vector<Stream*> streams;
    unsigned lanes = 0;  // streams that ever came to it
    bool invalidated = false;
};

enum class CaptureStatus : std::uint8_t { none, active, invalidated };

STANDIN_API int begin_capture(Stream* stream);
STANDIN_API int end_capture(Stream* stream, Graph** graph);
STANDIN_API CaptureStatus capture_status(Stream* stream);
STANDIN_API Graph* graph_of_capture(Stream* stream);  // null: it captures nothing

// Whether something may be submitted to the stream; whether it may wait for `op`; whether the host may wait for it.
// What may not be ends the capture.
STANDIN_API int submit_fault(Stream* stream);
STANDIN_API int wait_fault(Stream* stream, const OpRef& op);
STANDIN_API int sync_fault(Stream* stream);
STANDIN_API int device_sync_fault();
inline int event_sync_fault(const OpRef& op) { return op && op->captured != 0 ? kCapturedEvent : 0; }

STANDIN_API GraphExec* instantiate(const Graph& graph);
STANDIN_API int launch_graph(GraphExec& exec, Stream* stream);
// False: the graph has other operations, or another order. On success the executable holds what the graph holds; what it held
// before it keeps until its last launch has ended.
STANDIN_API bool update_graph(GraphExec& exec, const Graph& graph);
STANDIN_API void destroy_graph(Graph* graph);
STANDIN_API void destroy_graph(GraphExec* exec);  // lets go of what it holds once its last launch has ended

STANDIN_API UserObject* make_object(void (*destroy)(void*), void* argument, unsigned references);
STANDIN_API void retain_object(UserObject* object, unsigned count);
STANDIN_API void release_object(UserObject* object, unsigned count);
// `move`: the references are the caller's until now.
STANDIN_API int give_object(Graph& graph, UserObject* object, unsigned count, bool move);
STANDIN_API int take_object(Graph& graph, UserObject* object, unsigned count);

}  // namespace opus::standin
