// A digest that tells one file from another (FNV-1a, 64 bits). Not against somebody who wants them to be alike.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace opus::job {

class Digest {
public:
    void add(std::string_view bytes) {
        for (const char c : bytes) sum_ = (sum_ ^ static_cast<unsigned char>(c)) * 0x100000001b3;
    }
    std::string text() const {
        char text[17];
        std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(sum_));
        return text;
    }

private:
    std::uint64_t sum_ = 0xcbf29ce484222325;
};

}  // namespace opus::job
