// What the data plane has counted. Payload bytes only.
#pragma once

#include <cstdint>

namespace opus::emulator {

struct Counters {
    std::uint64_t delivered_frames = 0, delivered_bytes = 0;
    std::uint64_t lost_frames = 0, lost_bytes = 0;                  // sent in the dark
    std::uint64_t misdelivered_frames = 0, misdelivered_bytes = 0;  // came out where `dst` is not
};

}  // namespace opus::emulator
