// One thread's event loop: descriptors by epoll, moments by a timerfd (exact to far under a
// millisecond, and no wake-up when nothing is due).
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "opus/types.h"

namespace opus::emulator {

TimeNs monotonic_ns();

// What the loop calls when its descriptor is ready. Events of a round may still come after remove(): a
// watcher must live until the round is over.
class Watcher {
public:
    virtual ~Watcher() = default;
    virtual void ready(std::uint32_t epoll_events) = 0;
};

class Loop {
public:
    Loop();
    ~Loop();
    Loop(const Loop&) = delete;
    Loop& operator=(const Loop&) = delete;

    void add(int fd, std::uint32_t epoll_events, Watcher* watcher);
    void change(int fd, std::uint32_t epoll_events, Watcher* watcher);
    void remove(int fd);

    // Called once a round, after the events: does what is due and says when it wants to be called at the
    // latest; kNever if it need not. Called in the order of registration.
    void each_round(std::function<TimeNs(TimeNs now)> task) { tasks_.push_back(std::move(task)); }

    void run();
    void stop() { running_ = false; }

private:
    void arm(TimeNs due);

    int epoll_ = -1, timer_ = -1;
    TimeNs armed_ns_ = 0;
    bool running_ = false;
    std::vector<std::function<TimeNs(TimeNs)>> tasks_;
};

}  // namespace opus::emulator
