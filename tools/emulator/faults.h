// Faults that tests ask for, at the start (--fault "stuck (@3)") or at run time (:emulator:fault:...).
// Counts run down as they strike.
#pragma once

#include <cstdint>

#include "opus/types.h"

namespace opus::emulator {

struct Faults {
    TimeNs slow_ns = 0;          // each line is taken so much later
    TimeNs late_ns = 0;          // the next line that changes the map is taken so much later
    std::uint32_t refuse = 0;    // next changes of the map: refused
    std::uint32_t drop = 0;      // the n-th next change of the map: done, then its session dies without an answer
    std::uint32_t readback = 0;  // next answers about the map: without the circuits that changed last
    std::uint32_t garbage = 0;   // next replies: bytes that mean nothing
    std::uint32_t mute = 0;      // next replies: never sent
};

}  // namespace opus::emulator
