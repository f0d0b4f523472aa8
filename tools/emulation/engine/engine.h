// The GPU that is not there: streams, events and hardware queues on host threads. One engine a process,
// in libcuda.so.1; the stand-in runtime, driver API and NCCL are three faces of it.
//
// Hardware queues (facts: CUDA_DEVICE_MAX_CONNECTIONS). Each device has a number of in-order queues, and
// streams alias onto them round robin. An operation leaves its queue when it starts. One whose stream
// predecessor, or awaited event, has not finished cannot start, so it holds its queue and with it every
// stream that shares it. A running operation holds nothing by itself, as on a GPU (STANDIN_QUEUE_HOLD=running:
// it does, the most pessimistic hardware).
//
// Whoever changes something pumps the queues, so short operations run on the thread that made them
// possible; copies above a size and host functions run on a few workers, gates and value waits on one
// poller that sleeps in between. All state is guarded by one mutex. Callbacks named *_locked run under it:
// they may not call the engine.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#define STANDIN_API __attribute__((visibility("default")))

namespace opus::standin {

struct Op;
struct Capture;
struct Stream;
struct Device;
using OpRef = std::shared_ptr<Op>;

enum class OpState : std::uint8_t { queued, running, done };

struct Op {
    Stream* stream = nullptr;
    Device* device = nullptr;
    std::vector<OpRef> after;                                       // not to start before these are done
    std::function<void()> instant;                                  // runs at once, under the lock
    std::function<void()> work;                                     // runs on a worker
    std::function<void(const OpRef&)> kernel_locked;                // starts it; whoever it told calls complete()
    std::function<int(Op& self, std::int64_t now_ns)> poll_locked;  // kPending, or the error to finish with (0: none)
    bool poll_in_queue = false;  // a wait: stays at the head of its queue until poll says so
    // What poll_locked waits for, where its writer wakes those who sleep on it; else it is looked at now and then.
    const std::atomic<std::uint32_t>* futex = nullptr;
    OpState state = OpState::queued;
    int error = 0;             // CUDA error it ended with
    std::int64_t done_ns = 0;  // CLOCK_MONOTONIC
    std::int64_t polled_since_ns = 0;
    std::int64_t due_ns = 0;  // when poll_locked will say so by itself; 0: not by the clock
    bool in_poller = false;
    std::function<void()> then;  // runs on a worker once it is done

    // Of a captured one (graph.h), which the launches of its graph copy: these callbacks may not refer to the Op they are in.
    std::uint64_t captured = 0;                        // graph; 0: it is none
    std::size_t place = 0;                             // in the graph
    unsigned lane = 0;                                 // captured stream
    std::function<void(const OpRef& copy)> at_launch;  // before the copy is submitted
};

inline constexpr int kPending = -1;
inline constexpr int kLaunchFailure = 719;  // CUDA_ERROR_LAUNCH_FAILED, cudaErrorLaunchFailure

struct Stream {
    Device* device = nullptr;
    std::size_t queue = 0;
    unsigned flags = 0;  // bit 0: does not synchronise with the legacy stream
    int priority = 0;
    std::uint64_t id = 0;
    OpRef last;
    Capture* capture = nullptr;  // what is submitted becomes part of it
    OpRef captured;              // the last of that
    unsigned lane = 0;           // place among the captured streams
};

struct Event {
    unsigned flags = 0;
    OpRef op;  // of the last record
};

// --- devices ---------------------------------------------------------------------------------------

STANDIN_API std::int64_t now_ns();
STANDIN_API int device_count();               // visible ones
STANDIN_API int physical_device(int device);  // index on the node, through CUDA_VISIBLE_DEVICES
STANDIN_API int current_device();
STANDIN_API bool set_current_device(int device);
STANDIN_API int device_error(int device);  // sticky: 0, or what killed it
STANDIN_API int hardware_queues();

// --- streams: null, legacy (1) and per-thread (2) handles are resolved; a dead handle gives null -----

STANDIN_API Stream* resolve_stream(void* handle);
STANDIN_API Stream* create_stream(unsigned flags, int priority);
STANDIN_API bool destroy_stream(void* handle);
STANDIN_API void sync_stream(Stream* stream);
STANDIN_API bool stream_idle(Stream* stream);
STANDIN_API void sync_device(int device);

// --- operations --------------------------------------------------------------------------------------

STANDIN_API OpRef submit(Stream* stream, std::shared_ptr<Op> op);
STANDIN_API OpRef record(Stream* stream);                    // done when all before it is
STANDIN_API void wait_for(Stream* stream, const OpRef& op);  // what follows starts after op is done
// A kernel of the program's own. `run`, which may be null, is what it does to memory: at its start, under the lock. It
// takes the device for so long: such kernels run one after another, on whatever streams.
STANDIN_API OpRef compute(Stream* stream, std::int64_t busy_ns, std::function<void()> run);
STANDIN_API void complete(const OpRef& op, int error = 0);
STANDIN_API void sync_op(const OpRef& op);
STANDIN_API bool op_done(const OpRef& op);
STANDIN_API void when_done(const OpRef& op, std::function<void()> then);  // here and now if it is
STANDIN_API OpRef copy(Stream* stream, void* dst, const void* src, std::size_t bytes);
STANDIN_API OpRef fill(Stream* stream, void* dst, std::uint64_t pattern, unsigned pattern_bytes, std::size_t count);
STANDIN_API OpRef host_function(Stream* stream, void (*function)(void*), void* argument);

// --- events --------------------------------------------------------------------------------------------

STANDIN_API void record_event(Event* event, Stream* stream);
// Of streams that capture, of an event outside: it is recorded, or waited for, by each launch of the graph.
STANDIN_API void record_outside(Event* event, Stream* stream);
STANDIN_API void wait_for_outside(Stream* stream, Event* event);
STANDIN_API OpRef event_op(Event* event);

// --- memory --------------------------------------------------------------------------------------------

enum class Memory : std::uint8_t { unknown, device, pinned, registered, managed };
STANDIN_API void* allocate(std::size_t bytes, Memory kind);
STANDIN_API bool release(void* pointer);  // waits for the device first, as cudaFree does
STANDIN_API bool register_host(void* pointer, std::size_t bytes);
STANDIN_API bool unregister_host(void* pointer);
STANDIN_API Memory memory_of(const void* pointer, int* device, void** base, std::size_t* bytes);

}  // namespace opus::standin
