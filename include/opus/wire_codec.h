// Frames to bytes and back. include/impl/wire_codec.cpp is the only file that includes msgpack.
// encode() cannot fail but for memory; decode() survives any bytes and says what is wrong with them.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <variant>

#include "opus/wire.h"

namespace opus::wire {

struct DecodeError {
    std::string text;            // "message 5 (Demand): launches[2].keys: more than 65536"
    bool other_version = false;  // the peer speaks another major: text names both
};

// Into `out`, which is cleared first and may be reused to save allocation.
void encode(const Frame& frame, std::string& out);
std::variant<Frame, DecodeError> decode(std::string_view bytes);
const char* message_name(const Message& message);

}  // namespace opus::wire
