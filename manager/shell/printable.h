// Text of others, for logs and files: at most `size` bytes, each one printable.
#pragma once

#include <cstring>
#include <string>

namespace opus::manager {

inline std::string printable(const char* text, std::size_t size) {
    std::string out(text, ::strnlen(text, size));
    for (char& c : out)
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
    return out;
}

}  // namespace opus::manager
