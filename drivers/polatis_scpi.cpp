#include "drivers/polatis_scpi.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <limits>
#include <mutex>
#include <system_error>
#include <thread>

#include "drivers/polatis_session.h"
#include "drivers/tcp_client.h"

namespace opus::drivers {

namespace {

constexpr TimeNs kMs = 1'000'000;
constexpr TimeNs kNever = std::numeric_limits<TimeNs>::max();
constexpr TimeNs kFirstBackoffNs = 50 * kMs, kLastBackoffNs = 2'000 * kMs;
constexpr TimeNs kConnectNs = 2'000 * kMs;
constexpr TimeNs kSteadyNs = 1'000 * kMs;  // a session that lived so long starts the back-off over

TimeNs monotonic_ns() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return TimeNs(t.tv_sec) * 1'000'000'000 + t.tv_nsec;
}

class PolatisScpi : public SwitchDriver {
public:
    PolatisScpi(const Switch& description, Sink sink)
        : description_(description),
          sink_(std::move(sink)),
          session_(description, sink_),
          wake_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
        if (wake_ < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
    }

    ~PolatisScpi() override {
        stopping_ = true;
        wake();
        if (thread_.joinable()) thread_.join();
        close(wake_);
    }

    void start() override {
        if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
    }

    void read_map(OpId op, TimeNs timeout_ns) override {
        post([this, op, deadline = deadline(timeout_ns)] { session_.read_map(op, deadline, now_); });
    }
    void apply(OpId op, const ChangeSet& changes, TimeNs timeout_ns) override {
        post([this, op, changes, deadline = deadline(timeout_ns)] { session_.apply(op, changes, deadline, now_); });
    }
    void read_power(OpId op, const std::vector<SwitchPort>& ports, TimeNs timeout_ns) override {
        post([this, op, ports, deadline = deadline(timeout_ns)] { session_.read_power(op, ports, deadline, now_); });
    }
    void cancel(OpId op) override {
        post([this, op] { session_.cancel(op, now_); });
    }

private:
    static TimeNs deadline(TimeNs timeout_ns) {
        const TimeNs now = monotonic_ns();
        return timeout_ns > kNever - now ? kNever : now + timeout_ns;
    }

    void wake() {
        const std::uint64_t one = 1;
        [[maybe_unused]] const auto written = write(wake_, &one, sizeof one);
    }

    void post(std::function<void()> request) {
        {
            const std::lock_guard lock(mutex_);
            requests_.push_back(std::move(request));
        }
        wake();
    }

    void run() {
        prctl(PR_SET_NAME, "opus-polatis");
        prctl(PR_SET_TIMERSLACK, 1000);  // ns; the light is looked for at exact moments
        while (!stopping_) {
            now_ = monotonic_ns();
            take_requests();
            session_.advance(now_);
            pump();
            if (!stopping_) wait();
        }
    }

    void take_requests() {
        std::vector<std::function<void()>> requests;
        {
            const std::lock_guard lock(mutex_);
            requests.swap(requests_);
        }
        for (auto& request : requests) request();
    }

    // Moves the connection on: opens it when its time has come, sends, ends it when it is over.
    void pump() {
        if (client_.fd() < 0) {
            if (now_ < attempt_ns_) return;
            attempt_until_ns_ = now_ + kConnectNs;
            if (auto e = client_.connect(description_.address); !e.empty()) return end(e);
            if (client_.connected()) session_.open(now_);
        }
        if (!client_.connected()) {
            if (now_ >= attempt_until_ns_) end("cannot connect to " + description_.address + ": no answer");
            return;
        }
        if (auto e = client_.send(session_.output()); !e.empty()) return end(e);
        if (!session_.fault().empty()) return end(std::string(session_.fault()));
        if (session_.up() && up_since_ns_ == 0) {
            up_since_ns_ = now_;
            reported_.clear();
        }
    }

    void end(const std::string& reason) {
        const bool steady = up_since_ns_ && now_ - up_since_ns_ >= kSteadyNs;
        const bool was_up = session_.up() || up_since_ns_;
        client_.close();
        session_.close(reason);
        backoff_ns_ = steady ? kFirstBackoffNs : std::min(backoff_ns_ * 2, kLastBackoffNs);
        attempt_ns_ = now_ + backoff_ns_;
        up_since_ns_ = 0;
        // The same failure again and again is said once.
        if (was_up || reason != reported_) sink_(SessionDown{reason});
        reported_ = reason;
    }

    TimeNs due() const {
        TimeNs due = session_.next_due();
        if (client_.fd() < 0)
            due = std::min(due, attempt_ns_);
        else if (!client_.connected())
            due = std::min(due, attempt_until_ns_);
        return due;
    }

    void wait() {
        pollfd fds[2] = {{wake_, POLLIN, 0}, {client_.fd(), client_.events(!session_.output().empty()), 0}};
        const TimeNs due_ns = due();
        const TimeNs left = std::max<TimeNs>(0, due_ns == kNever ? 0 : due_ns - monotonic_ns());
        const timespec timeout{left / 1'000'000'000, left % 1'000'000'000};
        if (ppoll(fds, client_.fd() < 0 ? 1 : 2, due_ns == kNever ? nullptr : &timeout, nullptr) <= 0) return;
        now_ = monotonic_ns();
        if (fds[0].revents) {
            std::uint64_t count;
            [[maybe_unused]] const auto taken = read(wake_, &count, sizeof count);
        }
        if (!fds[1].revents || client_.fd() < 0) return;
        if (!client_.connected()) {
            if (auto e = client_.finish_connect(); !e.empty()) return end(e);
            session_.open(now_);
        } else if (fds[1].revents & ~POLLOUT) {
            std::string bytes;
            const auto e = client_.receive(bytes);
            if (!bytes.empty()) session_.receive(bytes, now_);
            if (!e.empty()) end(session_.fault().empty() ? e : std::string(session_.fault()));
        }
    }

    const Switch description_;
    const Sink sink_;
    std::mutex mutex_;
    std::vector<std::function<void()>> requests_;  // under mutex_
    std::atomic<bool> stopping_ = false;

    // The thread's own.
    PolatisSession session_;
    TcpClient client_;
    TimeNs now_ = 0;
    TimeNs backoff_ns_ = kFirstBackoffNs / 2, attempt_ns_ = 0, attempt_until_ns_ = 0, up_since_ns_ = 0;
    std::string reported_;

    int wake_;
    std::thread thread_;
};

}  // namespace

std::unique_ptr<SwitchDriver> make_polatis_scpi(const Switch& description, SwitchDriver::Sink sink) {
    return std::make_unique<PolatisScpi>(description, std::move(sink));
}

}  // namespace opus::drivers
