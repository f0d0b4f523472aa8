#include "queues.h"

#include <linux/futex.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <limits>
#include <string>
#include <utility>

#include "node_gpus.h"

namespace opus::standin {

namespace {

constexpr std::int64_t kPollShortest_ns = 20'000;
constexpr std::int64_t kPollLongest_ns = 1'000'000;
constexpr std::int64_t kWokenLongest_ns = 10'000'000;  // for what nobody is woken for: heartbeats, a communicator's end

unsigned long number_of(const char* name, unsigned long otherwise) {
    const char* text = std::getenv(name);
    if (!text || !*text) return otherwise;
    return std::strtoul(text, nullptr, 10);
}

// Words of other processes, or of this one, to sleep on all at once.
class PolledWords {
public:
    static constexpr std::size_t kMost = 64;

    void clear() { count_ = 0; }
    std::size_t size() const { return count_; }
    void add(const std::atomic<std::uint32_t>& word, std::uint32_t flags) {
        if (count_ == kMost) return;
        words_[count_++] = {word.load(), reinterpret_cast<std::uintptr_t>(&word), FUTEX_32 | flags, 0};
    }
    // Until one of them is no longer what it was, or its writer wakes us. 0: however long that takes.
    void sleep(std::int64_t longest_ns) const {
        timespec until{};
        const std::int64_t at = now_ns() + longest_ns;
        until.tv_sec = at / 1'000'000'000;
        until.tv_nsec = at % 1'000'000'000;
        const long woken =
            ::syscall(SYS_futex_waitv, words_.data(), count_, 0, longest_ns == 0 ? nullptr : &until, CLOCK_MONOTONIC);
        if (woken >= 0 || errno == EAGAIN || errno == ETIMEDOUT || errno == EINTR) return;
        // Before Linux 5.16, or a word that has been unmapped meanwhile.
        const std::int64_t nap = longest_ns == 0 ? kPollLongest_ns : std::min(longest_ns, kPollLongest_ns / 10);
        const timespec while_{0, nap};
        ::nanosleep(&while_, nullptr);
    }

private:
    std::array<futex_waitv, kMost> words_{};
    std::size_t count_ = 0;
};

}  // namespace

std::int64_t now_ns() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1'000'000'000ll + t.tv_nsec;
}

Engine& Engine::get() {
    static Engine* engine = new Engine;
    return *engine;
}

Engine::Engine() {
    const int present = static_cast<int>(std::min(number_of("STANDIN_GPUS", 8), 64ul));
    const unsigned long queues = std::clamp(number_of("CUDA_DEVICE_MAX_CONNECTIONS", 8), 1ul, 32ul);
    const char* hold = std::getenv("STANDIN_QUEUE_HOLD");
    hold_running = hold && std::strcmp(hold, "running") == 0;
    launch_blocking = number_of("CUDA_LAUNCH_BLOCKING", 0) != 0;
    max_workers_ = static_cast<unsigned>(std::clamp(number_of("STANDIN_WORKERS", 8), 1ul, 64ul));
    physical = visible_gpus(present);
    for (std::size_t i = 0; i < physical.size(); ++i) {
        auto device = std::make_unique<Device>();
        device->index = static_cast<int>(i);
        device->queues.resize(queues);
        devices.push_back(std::move(device));
    }
    for (auto& device : devices) device->legacy = make_stream(*device, 0, 0);
}

Stream* Engine::make_stream(Device& device, unsigned flags, int priority) {
    static std::uint64_t ids = 0;
    auto* stream = new Stream;
    stream->device = &device;
    stream->queue = device.next_queue++ % device.queues.size();
    stream->flags = flags;
    stream->priority = priority;
    stream->id = ++ids;
    device.streams.insert(stream);
    streams.insert(stream);
    return stream;
}

void Engine::pump() {
    if (pumping_) {  // a start or a finish inside: the outer call goes round once more
        again_ = true;
        return;
    }
    pumping_ = true;
    do {
        again_ = false;
        for (auto& device : devices) {
            if (device->unfinished == 0) continue;
            for (auto& queue : device->queues)
                while (pump_queue(*device, queue)) again_ = true;
        }
    } while (again_);
    pumping_ = false;
}

// Starts the head of the queue, if it may. False: nothing moved.
bool Engine::pump_queue(Device& device, Queue& queue) {
    if (queue.running && queue.running->state == OpState::done) queue.running.reset();
    if (queue.ops.empty() || (hold_running && queue.running)) return false;
    const OpRef op = queue.ops.front();
    if (device.error != 0) {
        queue.ops.pop_front();
        finish(op, device.error);
        return true;
    }
    if (op->in_poller) return false;
    std::erase_if(op->after, [](const OpRef& before) { return before->state == OpState::done; });
    if (!op->after.empty()) return false;
    return start(queue, op);
}

bool Engine::start(Queue& queue, const OpRef& op) {
    if (op->poll_in_queue) {
        const int result = op->poll_locked(*op, now_ns());
        if (result == kPending) {
            add_poll(op);
            return false;
        }
        queue.ops.pop_front();
        finish(op, result);
        return true;
    }
    queue.ops.pop_front();
    op->state = OpState::running;
    if (op->instant) op->instant();
    if (op->poll_locked) {
        const int result = op->poll_locked(*op, now_ns());
        if (result == kPending) {
            if (hold_running) queue.running = op;
            add_poll(op);
        } else {
            finish(op, result);
        }
    } else if (op->work) {
        if (hold_running) queue.running = op;
        add_work(op);
    } else if (op->kernel_locked) {
        if (hold_running) queue.running = op;
        op->kernel_locked(op);
    } else {
        finish(op, 0);
    }
    return true;
}

void Engine::add_work(const OpRef& op) {
    work_.push_back(op);
    if (idle_workers_ >= work_.size()) {
        work_wake_.notify_one();
    } else if (workers_ < max_workers_) {
        ++workers_;
        std::thread([this] { work_loop(); }).detach();
    }
}

void Engine::finish(const OpRef& op, int error) {
    if (op->state == OpState::done) return;
    op->state = OpState::done;
    op->error = error;
    op->done_ns = now_ns();
    op->after.clear();
    op->instant = nullptr;
    op->work = nullptr;
    op->kernel_locked = nullptr;
    --op->device->unfinished;
    if (op->then) {
        auto follower = std::make_shared<Op>();
        follower->device = op->device;
        follower->work = std::exchange(op->then, nullptr);
        ++op->device->unfinished;
        add_work(follower);
    }
    if (error == kLaunchFailure && op->device->error == 0) kill(*op->device, error);
    if (waiters != 0) done.notify_all();
    if (pumping_) again_ = true;
}

// A trap: the context is dead. What waits ends with the error, what polls is dropped.
void Engine::kill(Device& device, int error) {
    device.error = error;
    if (waiters != 0) done.notify_all();
    const auto polled = polls_;
    for (const OpRef& op : polled)
        if (op->device == &device && op->state == OpState::running) finish(op, error);
    for (const OpRef& op : polled)
        if (op->device == &device) op->in_poller = false;
    std::erase_if(polls_, [&](const OpRef& op) { return op->device == &device; });
    again_ = true;
}

void Engine::add_poll(const OpRef& op) {
    op->in_poller = true;
    op->polled_since_ns = now_ns();
    polls_.push_back(op);
    if (!poller_) {
        poller_ = true;
        std::thread([this] { poll_loop(); }).detach();
    }
    poll_added_.fetch_add(1);
    ::syscall(SYS_futex, &poll_added_, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

// A GPU spins on its words and takes nothing of the host's cores. Here a thread sleeps: on the words whose writers
// wake it; for others between looks, the longer the longer the youngest has waited. No core is ever burnt, and the
// time lost stays a small part of the time waited.
void Engine::poll_loop() {
    prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0);
    std::unique_lock lock(mutex);
    PolledWords words;
    for (;;) {
        // Before they are looked at: one that changes meanwhile lets nobody fall asleep.
        words.clear();
        words.add(poll_added_, FUTEX_PRIVATE_FLAG);
        for (const OpRef& op : polls_)
            if (op->futex) words.add(*op->futex, 0);
        const std::int64_t now = now_ns();
        std::int64_t youngest = std::numeric_limits<std::int64_t>::max(), due = youngest;
        const auto timed = static_cast<std::size_t>(
            std::count_if(polls_.begin(), polls_.end(), [](const OpRef& op) { return op->due_ns != 0; }));
        const bool all_woken = words.size() + timed == polls_.size() + 1;
        const auto polled = polls_;
        bool moved = false;
        for (const OpRef& op : polled) {
            const int result = op->state == OpState::done ? op->error : op->poll_locked(*op, now);
            if (result == kPending) {
                if (op->due_ns != 0)
                    due = std::min(due, op->due_ns - now);
                else if (!op->futex)
                    youngest = std::min(youngest, now - op->polled_since_ns);
                continue;
            }
            std::erase(polls_, op);
            op->in_poller = false;
            moved = true;
            // A wait is still at the head of its queue: the pump takes it from there.
            if (op->poll_in_queue)
                op->poll_locked = [result](Op&, std::int64_t) { return result; };
            else
                finish(op, result);
        }
        if (moved) {
            pump();
            continue;
        }
        const auto look = all_woken ? kWokenLongest_ns : std::clamp(youngest / 16, kPollShortest_ns, kPollLongest_ns);
        const auto nap = std::max<std::int64_t>(std::min(look, due), 1);
        const bool nothing = polls_.empty();
        lock.unlock();
        words.sleep(nothing ? 0 : nap);
        lock.lock();
    }
}

void Engine::work_loop() {
    std::unique_lock lock(mutex);
    for (;;) {
        if (work_.empty()) {
            ++idle_workers_;
            work_wake_.wait(lock);
            --idle_workers_;
            continue;
        }
        const OpRef op = work_.front();
        work_.pop_front();
        const auto work = std::move(op->work);
        op->work = nullptr;
        lock.unlock();
        work();
        lock.lock();
        finish(op, 0);
        pump();
    }
}

}  // namespace opus::standin
