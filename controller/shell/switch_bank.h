// The switches of a fabric, each behind its driver. Drivers answer from threads of their own; what they
// say waits here, and descriptor() becomes readable, until the main thread takes it.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "controller/core/core.h"
#include "opus/fabric.h"
#include "opus/switch_driver.h"

namespace opus::controller {

class SwitchBank {
public:
    explicit SwitchBank(const Fabric& fabric);  // throws std::runtime_error: a driver that nobody has
    ~SwitchBank();                              // ends all sessions
    SwitchBank(const SwitchBank&) = delete;
    SwitchBank& operator=(const SwitchBank&) = delete;

    void start();
    int descriptor() const { return event_fd_; }
    void take(std::vector<SwitchEvent>& events);  // all that has come, in order

    void program(const Program& program);
    void read_map(const ReadMap& read);

private:
    int event_fd_ = -1;
    std::mutex mutex_;
    std::vector<SwitchEvent> waiting_;                    // guarded by mutex_
    std::vector<std::unique_ptr<SwitchDriver>> drivers_;  // last: their threads use the rest

    void hear(SwitchIndex sw, const DriverEvent& event);
};

}  // namespace opus::controller
