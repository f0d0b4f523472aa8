// Any bytes as a frame from the network: an error or a frame that survives being encoded again.
#include <cstdint>
#include <cstdlib>

#include "opus/wire_codec.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace opus::wire;
    const auto result = decode({reinterpret_cast<const char*>(data), size});
    if (const auto* frame = std::get_if<Frame>(&result)) {
        std::string bytes;
        encode(*frame, bytes);
        if (!std::holds_alternative<Frame>(decode(bytes))) std::abort();
    } else if (std::get<DecodeError>(result).text.empty()) {
        std::abort();
    }
    return 0;
}
