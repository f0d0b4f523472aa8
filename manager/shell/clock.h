// The clocks of the daemons; the cores are handed times and read none themselves.
#pragma once

#include <ctime>

#include "opus/types.h"

namespace opus::manager {

inline TimeNs clock_ns(clockid_t clock) {
    timespec t{};
    ::clock_gettime(clock, &t);
    return TimeNs(t.tv_sec) * 1'000'000'000 + t.tv_nsec;
}
inline TimeNs now_ns() { return clock_ns(CLOCK_MONOTONIC); }

}  // namespace opus::manager
