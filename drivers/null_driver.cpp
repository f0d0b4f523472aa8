#include "drivers/null_driver.h"

#include <chrono>
#include <condition_variable>
#include <list>
#include <map>
#include <mutex>
#include <thread>

namespace opus::drivers {

namespace {

TimeNs monotonic_ns() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The pattern: the caller's threads only leave work behind; one thread does it and is the only one that
// calls the sink, never while a lock is held, so that the sink may call the driver.
class NullDriver : public SwitchDriver {
public:
    NullDriver(const Switch& description, Sink sink) : description_(description), sink_(std::move(sink)) {}

    // Ends the thread; what is not answered by now is never answered.
    ~NullDriver() override {
        {
            const std::lock_guard lock(mutex_);
            stopping_ = true;
        }
        changed_.notify_all();
        if (thread_.joinable()) thread_.join();
    }

    // A real driver connects here, in its thread; says SessionUp when it knows whom it talks to and that
    // the size is the description's, SessionDown with a reason for people when it is over; and tries again.
    void start() override {
        if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
    }

    // Each op is answered exactly once, by its deadline at the latest, without a session too.
    void read_map(OpId op, TimeNs) override {
        add(op, 0, [this, op] {
            MapRead read{op, DriverError::none, {}, {}};
            for (const auto& [a, b] : peer_)
                if (a < b) read.circuits.emplace_back(a, b);
            return DriverEvent(read);
        });
    }

    // A real driver sends one command for the whole set, waits for the fence, compares what the switch says
    // with what was asked, and then waits for light. Change sets to other ports go out meanwhile.
    void apply(OpId op, const ChangeSet& changes, TimeNs timeout_ns) override {
        const TimeNs sent = monotonic_ns();
        for (const auto& [a, b] : changes.connect) {
            if (can_join(a, b)) continue;
            return add(op, 0, [=] {
                return DriverEvent(Applied{op, DriverError::refused, "no such circuit", sent, 0, 0});
            });
        }
        if (description_.dark_ns > timeout_ns)
            return add(op, timeout_ns, [=] {
                return DriverEvent(Applied{op, DriverError::timeout, "not done by the deadline", sent, sent, 0});
            });
        add(op, changes.connect.empty() ? 0 : description_.dark_ns, [this, op, changes, sent] {
            for (SwitchPort p : changes.disconnect) cut(p);
            for (const auto& [a, b] : changes.connect) {
                cut(a);
                cut(b);
                peer_[a] = b;
                peer_[b] = a;
            }
            return DriverEvent(Applied{op, DriverError::none, {}, sent, sent, monotonic_ns()});
        });
    }

    void read_power(OpId op, const std::vector<SwitchPort>& ports, TimeNs) override {
        add(op, 0, [this, op, ports] {
            PortPower power{op, DriverError::none, {}};
            for (SwitchPort p : ports) power.dbm.emplace_back(p, peer_.contains(p) ? -3.0 : -60.0);
            return DriverEvent(power);
        });
    }

    // What the switch has begun, it finishes: after this the caller reads the map back.
    void cancel(OpId op) override {
        {
            const std::lock_guard lock(mutex_);
            for (auto it = work_.begin(); it != work_.end(); ++it)
                if (it->op == op) {
                    it->due_ns = 0;
                    it->cancelled = true;
                    work_.splice(work_.begin(), work_, it);
                    break;
                }
        }
        changed_.notify_all();
    }

private:
    struct Work {
        OpId op = 0;
        TimeNs due_ns = 0;
        std::function<DriverEvent()> finish;  // in the thread
        bool cancelled = false;
    };

    void add(OpId op, TimeNs after_ns, std::function<DriverEvent()> finish) {
        {
            const std::lock_guard lock(mutex_);
            work_.push_back({op, monotonic_ns() + after_ns, std::move(finish), false});
        }
        changed_.notify_all();
    }

    void run() {
        sink_(SessionUp{{"Opus", "null", description_.name, "0", description_.ingress, description_.egress}});
        std::unique_lock lock(mutex_);
        while (!stopping_) {
            auto first = work_.begin();
            for (auto it = work_.begin(); it != work_.end(); ++it)
                if (it->due_ns < first->due_ns) first = it;
            if (first == work_.end()) {
                changed_.wait(lock);
            } else if (const TimeNs left = first->due_ns - monotonic_ns(); left > 0) {
                changed_.wait_for(lock, std::chrono::nanoseconds(left));
            } else {
                const Work work = std::move(*first);
                work_.erase(first);
                lock.unlock();
                DriverEvent event = work.finish();
                if (work.cancelled)
                    std::visit(
                        [](auto& e) {
                            if constexpr (requires { e.error; }) e.error = DriverError::cancelled;
                        },
                        event);
                sink_(event);
                lock.lock();
            }
        }
    }

    bool can_join(SwitchPort a, SwitchPort b) const {
        if (a == b || a < 1 || b < 1 || a > description_.size() || b > description_.size()) return false;
        return description_.sidedness == Sidedness::any_to_any || (a <= description_.ingress) != (b <= description_.ingress);
    }

    void cut(SwitchPort p) {
        if (const auto it = peer_.find(p); it != peer_.end()) {
            peer_.erase(it->second);
            peer_.erase(p);
        }
    }

    const Switch description_;
    const Sink sink_;
    std::map<SwitchPort, SwitchPort> peer_;  // the thread's own
    std::mutex mutex_;
    std::condition_variable changed_;
    std::list<Work> work_;   // under mutex_
    bool stopping_ = false;  // under mutex_
    std::thread thread_;
};

}  // namespace

std::unique_ptr<SwitchDriver> make_null_driver(const Switch& description, SwitchDriver::Sink sink) {
    return std::make_unique<NullDriver>(description, std::move(sink));
}

}  // namespace opus::drivers
