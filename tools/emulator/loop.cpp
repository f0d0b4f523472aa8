#include "tools/emulator/loop.h"

#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "tools/emulator/optical_plane.h"

namespace opus::emulator {

TimeNs monotonic_ns() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return TimeNs(t.tv_sec) * 1'000'000'000 + t.tv_nsec;
}

Loop::Loop()
    : epoll_(epoll_create1(EPOLL_CLOEXEC)), timer_(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)) {
    if (epoll_ < 0 || timer_ < 0) throw std::system_error(errno, std::generic_category(), "event loop");
    add(timer_, EPOLLIN, nullptr);
}

Loop::~Loop() {
    close(timer_);
    close(epoll_);
}

void Loop::add(int fd, std::uint32_t events, Watcher* watcher) {
    epoll_event e{};
    e.events = events;
    e.data.ptr = watcher;
    if (epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &e)) throw std::system_error(errno, std::generic_category(), "epoll_ctl");
}

void Loop::change(int fd, std::uint32_t events, Watcher* watcher) {
    epoll_event e{};
    e.events = events;
    e.data.ptr = watcher;
    epoll_ctl(epoll_, EPOLL_CTL_MOD, fd, &e);
}

void Loop::remove(int fd) { epoll_ctl(epoll_, EPOLL_CTL_DEL, fd, nullptr); }

void Loop::arm(TimeNs due) {
    if (due == armed_ns_) return;
    itimerspec t{};
    if (due != kNever) {
        due = std::max<TimeNs>(due, 1);  // 0 would disarm
        t.it_value = {due / 1'000'000'000, due % 1'000'000'000};
    }
    timerfd_settime(timer_, TFD_TIMER_ABSTIME, &t, nullptr);
    armed_ns_ = due;
}

void Loop::run() {
    running_ = true;
    epoll_event events[64];
    while (running_) {
        TimeNs due = kNever;
        for (auto& task : tasks_) due = std::min(due, task(monotonic_ns()));
        arm(due);
        const int count = epoll_wait(epoll_, events, 64, -1);
        for (int i = 0; i < count; ++i) {
            if (auto* watcher = static_cast<Watcher*>(events[i].data.ptr)) {
                watcher->ready(events[i].events);
            } else {
                std::uint64_t expirations;
                if (read(timer_, &expirations, sizeof expirations) > 0) armed_ns_ = kNever;
            }
        }
    }
}

}  // namespace opus::emulator
