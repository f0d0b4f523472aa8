// A lock for slow paths: needs no initialisation, no pthread symbol, and works before any constructor.
#pragma once

#include <atomic>
#include <ctime>

namespace opus::shim {

class Lock {
public:
    constexpr Lock() = default;
    void acquire() {
        for (int turn = 0; held_.exchange(true, std::memory_order_acquire); ++turn) {
            const timespec pause{0, turn < 64 ? 1'000 : 100'000};
            if (turn > 8) nanosleep(&pause, nullptr);
        }
    }
    void release() { held_.store(false, std::memory_order_release); }
    // After fork the thread that held it may not exist.
    void reset() { release(); }

private:
    std::atomic<bool> held_{false};
};

class LockGuard {
public:
    explicit LockGuard(Lock& lock) : lock_(lock) { lock_.acquire(); }
    ~LockGuard() { lock_.release(); }
    LockGuard(const LockGuard&) = delete;
    LockGuard& operator=(const LockGuard&) = delete;

private:
    Lock& lock_;
};

}  // namespace opus::shim
