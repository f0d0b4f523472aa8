// The clocks of the daemon; the core is handed the first one and reads none itself.
#pragma once

#include <ctime>

#include "opus/types.h"

namespace opus::controller {

inline TimeNs read_clock(clockid_t clock) {
    timespec t{};
    clock_gettime(clock, &t);
    return t.tv_sec * 1'000'000'000 + t.tv_nsec;
}
inline TimeNs monotonic_ns() { return read_clock(CLOCK_MONOTONIC); }
inline TimeNs realtime_ns() { return read_clock(CLOCK_REALTIME); }

}  // namespace opus::controller
