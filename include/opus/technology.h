// Switch technologies, once: what `technology = "..."` of a fabric file and `--technology` of the
// emulator may be, and what follows from it. Figures are those of the paper's table 3 and of the vendors
// (docs/drivers.md); dark_ms of the fabric file overrides. Standard library only.
#pragma once

#include <cstdint>
#include <string_view>

#include "opus/types.h"

namespace opus {

struct Technology {
    std::string_view name;
    TimeNs dark_ns;       // from the command to light, typical
    std::uint32_t ports;  // of the largest known switch; 0: not a switch of its own
    std::string_view note;
};

inline constexpr Technology kTechnologies[] = {
    {"plzt", 10, 16, "EpiPhotonics"},
    {"sip", 7'000, 32, "silicon photonics, Lightmatter"},
    {"rotornet", 10'000, 128, "InFocus"},
    {"transceiver", 70'000, 0, "OCS in the transceiver, InfiniteHBD: 60 to 80 us"},
    {"palomar", 1'200'000, 136, "Google; median, p99 under 3 ms"},
    {"mems", 15'000'000, 320, "3D MEMS, Calient; bulk sets take up to 200 ms"},
    {"piezo", 25'000'000, 576, "Polatis"},
    {"liquid-crystal", 100'000'000, 512, "Coherent"},
    {"robotic", 120'000'000'000, 1008, "Telescent"},
};

// Null for a name that is not in the list.
constexpr const Technology* find_technology(std::string_view name) {
    for (const Technology& t : kTechnologies)
        if (t.name == name) return &t;
    return nullptr;
}

}  // namespace opus
