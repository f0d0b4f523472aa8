#include "tools/replay/watchdog.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>

#include "tools/replay/player.h"

namespace opus::replay {

Watchdog::Watchdog(std::string who, double timeout_s, std::function<std::string()> error)
    : who_(std::move(who)), timeout_s_(timeout_s), error_(std::move(error)), thread_([this] { watch(); }) {}

Watchdog::~Watchdog() {
    {
        const std::lock_guard lock(mutex_);
        stop_ = true;
    }
    stop_signal_.notify_all();
    thread_.join();
}

void Watchdog::watch() {
    using Clock = std::chrono::steady_clock;
    std::uint64_t seen = 0;
    auto since = Clock::now();
    std::unique_lock lock(mutex_);
    while (!stop_signal_.wait_for(lock, std::chrono::milliseconds(500), [this] { return stop_; })) {
        if (const std::string wrong = error_(); !wrong.empty()) {
            std::fprintf(stderr, "opus-replay: %s: %s\n", who_.c_str(), wrong.c_str());
            _exit(kExitNccl);
        }
        const std::uint64_t now = steps_.load(std::memory_order_relaxed);
        if (now != seen) {
            seen = now;
            since = Clock::now();
        } else if (timeout_s_ > 0 && std::chrono::duration<double>(Clock::now() - since).count() > timeout_s_) {
            std::fprintf(stderr, "opus-replay: %s: no progress for %g s\n", who_.c_str(), timeout_s_);
            _exit(kExitTimeout);
        }
    }
}

}  // namespace opus::replay
