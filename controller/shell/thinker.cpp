#include "controller/shell/thinker.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace opus::controller {

Thinker::Thinker(const Fabric& fabric) : fabric_(fabric), event_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (event_fd_ < 0) throw std::runtime_error(std::string("cannot make an eventfd: ") + std::strerror(errno));
    thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

Thinker::~Thinker() {
    thread_.request_stop();
    thread_.join();
    close(event_fd_);
}

void Thinker::begin(Think think) {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(think));
    more_.notify_one();
}

void Thinker::take(std::vector<Thought>& thoughts) {
    std::uint64_t count = 0;
    [[maybe_unused]] const auto got = read(event_fd_, &count, sizeof count);
    thoughts.clear();
    const std::lock_guard lock(mutex_);
    thoughts.swap(thoughts_);
}

void Thinker::run(const std::stop_token& stop) {
    for (;;) {
        Think next;
        {
            std::unique_lock lock(mutex_);
            if (!more_.wait(lock, stop, [this] { return !waiting_.empty(); }) || stop.stop_requested()) return;
            next = std::move(waiting_.front());
            waiting_.pop_front();
        }
        if (next.task.use_count() == 1) continue;
        plan::Order order = plan::find_order(*next.task, fabric_);
        const std::lock_guard lock(mutex_);
        thoughts_.push_back({next.id, std::move(order)});
        const std::uint64_t one = 1;
        [[maybe_unused]] const auto written = write(event_fd_, &one, sizeof one);
    }
}

}  // namespace opus::controller
