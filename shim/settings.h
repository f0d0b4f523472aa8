// The OPUS_* variables as this process has them, from the one list of include/opus/settings.h.
#pragma once

#include <cstdint>

#include "opus/types.h"

namespace opus::shim {

enum class GateChoice { automatic, none, host, stream };
enum class Require { nothing, manager, enforcement };

struct Settings {
    using text = const char*;
    using number = std::uint64_t;
#define OPUS_SETTING(name, type, standard, who, help) type name = standard;
#include "opus/settings.h"

    // From the environment; a bad value is named in one line and its default used.
    void read();

    Mode mode() const;
    Policy policy() const;
    GateChoice gate() const;
    Require require() const;
};

// "123" to 123; false for anything else, and for what does not fit.
bool parse_number(const char* text, std::uint64_t& value);

}  // namespace opus::shim
