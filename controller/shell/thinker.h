// Orders of circuits are looked for here, in a thread of its own, one after the other: the main thread goes on meanwhile. What
// is found waits, and descriptor() becomes readable, until the main thread takes it.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <stop_token>
#include <thread>
#include <vector>

#include "controller/core/core.h"
#include "opus/fabric.h"

namespace opus::controller {

class Thinker {
public:
    explicit Thinker(const Fabric& fabric);  // keeps a reference; throws std::runtime_error: no descriptor
    ~Thinker();                              // ends what it is about first: a search takes a second or two at most
    Thinker(const Thinker&) = delete;
    Thinker& operator=(const Thinker&) = delete;

    int descriptor() const { return event_fd_; }
    // Not looked for if nobody else keeps its task by then: who asked has asked anew, or wants none any more.
    void begin(Think think);
    void take(std::vector<Thought>& thoughts);

private:
    void run(const std::stop_token& stop);

    const Fabric& fabric_;
    int event_fd_ = -1;
    std::mutex mutex_;
    std::condition_variable_any more_;
    std::deque<Think> waiting_;      // guarded by mutex_
    std::vector<Thought> thoughts_;  // guarded by mutex_
    std::jthread thread_;            // last: it uses the rest
};

}  // namespace opus::controller
