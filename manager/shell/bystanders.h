// Processes of this host that have mapped NCCL and have met no manager, as far as they can be seen: they run without
// Opus, or have made no communicator yet.
//
// A thread of its own looks for them: the maps of a large process take a millisecond to read, and launches wait for the
// manager's. It reads those of a process at its first sight and then ever more seldom, of one that was found every two
// seconds, or as often as that takes a thousandth of a core: PyTorch's launcher has so many that four managers on one
// computer, as under opus-emulate, took a hundredth of a core for it.
#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "opus/types.h"
#include "opus/wire.h"

namespace opus::manager {

// What `maps` (of /proc) says of a process. No library: it has none mapped, or is a rank.
wire::Bystander bystander_in(const std::string& maps);

class Bystanders {
public:
    Bystanders();  // no signal is delivered to its thread
    ~Bystanders();
    Bystanders(const Bystanders&) = delete;

    std::vector<wire::Bystander> found() const;  // by pid, kMaxBystanders at most

private:
    struct Known {
        TimeNs first_seen = 0, next_look = 0;
        wire::Bystander found;  // what the last look said
    };
    void watch();
    void look(TimeNs now);

    std::map<pid_t, Known> known_;  // of the thread

    mutable std::mutex mutex_;
    std::condition_variable changed_;
    bool stop_ = false;
    std::vector<wire::Bystander> found_;
    std::thread thread_;
};

}  // namespace opus::manager
