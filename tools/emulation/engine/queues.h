// Inside of the engine: devices, their hardware queues, the pump. Only engine/*.cpp includes it.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <unordered_set>

#include "engine.h"

namespace opus::standin {

struct Queue {
    std::deque<OpRef> ops;
    OpRef running;  // only with STANDIN_QUEUE_HOLD=running
};

struct Device {
    int index = 0;
    int error = 0;  // sticky
    std::vector<Queue> queues;
    std::size_t next_queue = 0;
    Stream* legacy = nullptr;
    OpRef last_legacy;
    std::set<Stream*> streams;
    std::uint64_t unfinished = 0;
    std::int64_t busy_until_ns = 0;  // kernels that were started take so long
};

class Engine {
public:
    static Engine& get();  // never destroyed: threads outlive main()

    std::mutex mutex;
    std::condition_variable done;
    unsigned waiters = 0;
    std::vector<std::unique_ptr<Device>> devices;
    std::vector<int> physical;
    std::unordered_set<Stream*> streams;  // live handles
    bool hold_running = false;
    bool launch_blocking = false;

    // All under the mutex.
    void pump();
    void finish(const OpRef& op, int error);
    void kill(Device& device, int error);
    Stream* make_stream(Device& device, unsigned flags, int priority);

    // Waits for `ready` with the mutex held by `lock`.
    template <typename Ready>
    void await(std::unique_lock<std::mutex>& lock, Ready ready) {
        ++waiters;
        done.wait(lock, ready);
        --waiters;
    }

private:
    Engine();
    bool pump_queue(Device& device, Queue& queue);
    bool start(Queue& queue, const OpRef& op);
    void poll_loop();
    void add_work(const OpRef& op);
    void work_loop();
    void add_poll(const OpRef& op);

    bool pumping_ = false;
    bool again_ = false;
    std::vector<OpRef> polls_;
    std::atomic<std::uint32_t> poll_added_ = 0;  // the poller sleeps on it, and on what is polled
    bool poller_ = false;
    std::deque<OpRef> work_;
    std::condition_variable work_wake_;
    unsigned workers_ = 0, idle_workers_ = 0, max_workers_ = 8;
};

// Under the mutex (graph.cpp). The stream captures: `op` becomes part of that. `op` is captured, and the stream joins
// its capture.
void capture_locked(Stream& stream, const OpRef& op);
void join_capture_of(Stream& stream, const Op& op);
std::function<void()> forget_captures_of(Stream& stream);  // it goes; what comes back is called without the mutex

}  // namespace opus::standin
