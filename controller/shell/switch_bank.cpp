#include "controller/shell/switch_bank.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace opus::controller {

SwitchBank::SwitchBank(const Fabric& fabric) : event_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (event_fd_ < 0) throw std::runtime_error(std::string("cannot make an eventfd: ") + std::strerror(errno));
    for (SwitchIndex sw = 0; sw < fabric.switches.size(); ++sw) {
        drivers_.push_back(
            make_switch_driver(fabric.switches[sw], [this, sw](const DriverEvent& event) { hear(sw, event); }));
        if (!drivers_.back())
            throw std::runtime_error("switch " + fabric.switches[sw].name + ": no driver is called " +
                                     fabric.switches[sw].driver);
    }
}

SwitchBank::~SwitchBank() {
    drivers_.clear();
    close(event_fd_);
}

void SwitchBank::start() {
    for (const auto& driver : drivers_) driver->start();
}

void SwitchBank::hear(SwitchIndex sw, const DriverEvent& event) {
    bool first = false;
    {
        const std::lock_guard lock(mutex_);
        first = waiting_.empty();
        waiting_.push_back({sw, event});
    }
    const std::uint64_t one = 1;
    if (first) [[maybe_unused]]
        const auto written = write(event_fd_, &one, sizeof one);
}

void SwitchBank::take(std::vector<SwitchEvent>& events) {
    std::uint64_t count = 0;
    [[maybe_unused]] const auto got = read(event_fd_, &count, sizeof count);
    events.clear();
    const std::lock_guard lock(mutex_);
    events.swap(waiting_);
}

void SwitchBank::program(const Program& program) {
    drivers_.at(program.sw)->apply(program.op, program.changes, program.timeout_ns);
}
void SwitchBank::read_map(const ReadMap& read) { drivers_.at(read.sw)->read_map(read.op, read.timeout_ns); }

}  // namespace opus::controller
