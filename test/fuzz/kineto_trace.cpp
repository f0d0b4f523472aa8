// Traces of PyTorch's profiler, and files of communicators: any text is read or refused with words.
#include <cstdint>
#include <string_view>

#include "tools/opus-sim/chakra.h"
#include "tools/opus-sim/kineto.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace opus::job;
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    try {
        is_kineto(text);
        KinetoReader reader;
        reader.read({"rank0.json", text});
        JobTrace trace = reader.trace();
        if (trace.world > 64) return 0;
        std::vector<std::string> assumed;
        check_trace(trace, true, assumed);
        reader.assumed(trace);
        workload_of(trace, choose_places(trace, {}, assumed));
    } catch (const BadFile&) {}
    try {
        read_communicators({"groups.json", text});
    } catch (const BadFile&) {}
    return 0;
}
