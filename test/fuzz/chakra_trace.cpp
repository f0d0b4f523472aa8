// Chakra traces: any bytes are read or refused with words, and what is read can be ordered, written as a workload and played.
#include <cstdint>
#include <string_view>

#include "tools/opus-sim/chakra.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace opus::job;
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    // Two ranks: what comes before the first "|", and what comes after.
    const std::size_t bar = std::min(text.find('|'), text.size());
    try {
        is_chakra(text);
        ChakraReader reader({{"1", {0, 1}}, {"2", {0}}}, 2, {});
        reader.read({"a.0.et", text.substr(0, bar)});
        reader.read({"a.1.et", text.substr(std::min(bar + 1, text.size()))});
        JobTrace trace = reader.trace();
        std::vector<std::string> assumed;
        check_trace(trace, false, assumed);
        order_trace(trace);
        Figures figures;
        count_trace(trace, figures);
        workload_of(trace, choose_places(trace, {}, assumed));
    } catch (const BadFile&) { return 0; }
    return 0;
}
