// Ends a rank that makes no progress, or whose NCCL found an error in the background, as a good NCCL
// program does: a hung job that nobody notices costs more than a failed one.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace opus::replay {

class Watchdog {
public:
    // `error` is asked twice a second and returns what is wrong, or nothing. Ends the process by _exit.
    Watchdog(std::string who, double timeout_s, std::function<std::string()> error);
    ~Watchdog();
    void progress() { steps_.fetch_add(1, std::memory_order_relaxed); }

private:
    void watch();

    std::string who_;
    double timeout_s_;
    std::function<std::string()> error_;
    std::atomic<std::uint64_t> steps_{0};
    std::mutex mutex_;
    std::condition_variable stop_signal_;
    bool stop_ = false;
    std::thread thread_;
};

}  // namespace opus::replay
