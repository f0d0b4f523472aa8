// When the core looks again at what. A timer outlives what it was set for: whoever is woken looks whether there is anything to do.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <tuple>

#include "opus/types.h"

namespace opus::controller {

enum class TimerKind : std::uint8_t {
    gang_break,
    gang_hold,
    gang_retry,
    run_quantum,
    comm_register,
    node_grace,
    node_hold,
    switch_read,
    switches_again,
    port_trial,
    waiting,
    call_kept
};

class Timers {
public:
    struct Timer {
        TimeNs at = 0;
        TimerKind kind{};
        std::uint64_t id = 0;  // of what it is about
    };

    void arm(TimeNs at, TimerKind kind, std::uint64_t id) { timers_.emplace(at, kind, id); }
    void disarm(TimeNs at, TimerKind kind, std::uint64_t id) { timers_.erase({at, kind, id}); }
    std::optional<TimeNs> next() const {
        return timers_.empty() ? std::nullopt : std::optional(std::get<0>(*timers_.begin()));
    }
    // The first that is due, which is taken out.
    std::optional<Timer> take_due(TimeNs now) {
        if (timers_.empty() || std::get<0>(*timers_.begin()) > now) return std::nullopt;
        const auto [at, kind, id] = *timers_.begin();
        timers_.erase(timers_.begin());
        return Timer{at, kind, id};
    }

private:
    std::set<std::tuple<TimeNs, TimerKind, std::uint64_t>> timers_;
};

}  // namespace opus::controller
