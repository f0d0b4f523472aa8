// SCPI text from the network: parsers take any line, and what they accept is written and read alike.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "drivers/line_buffer.h"
#include "drivers/scpi_text.h"

namespace scpi = opus::drivers::scpi;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    opus::drivers::LineBuffer lines(scpi::kMaxLine);
    lines.append({reinterpret_cast<const char*>(data), size});
    while (const auto line = lines.next()) {
        scpi::parse_number(*line);
        scpi::parse_error(*line);
        scpi::parse_identity(*line);
        scpi::parse_size(*line);
        scpi::parse_powers(*line);
        scpi::split(*line, ';');
        if (const auto list = scpi::parse_list(*line); list && scpi::parse_list(scpi::format_list(*list)) != list)
            std::abort();
        if (const auto map = scpi::parse_map(*line); map && scpi::parse_map(scpi::format_map(*map)) != map)
            std::abort();
    }
    return 0;
}
