// Any text as a sweep's file: refused with words, or points that all have a name of their own that a file can have.
#include <cstdint>
#include <cstdlib>
#include <set>
#include <string_view>

#include "tools/opus-sim/sweep_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace opus::job;
    try {
        const SweepFile sweep = read_sweep({"file", {reinterpret_cast<const char*>(data), size}});
        std::size_t points = 1;
        for (const SweepKey& key : sweep.keys)
            if ((points *= key.values.size()) > 10'000) return 0;  // its points take only time
        std::set<std::string> names;
        for (const SweepPoint& point : points_of(sweep)) {
            for (const auto& [column, value] : point.varied) value.json();
            if (point.name.empty() || point.name.size() > 200 || point.name.find('/') != std::string::npos)
                std::abort();
            if (!names.insert(point.name).second) std::abort();
        }
    } catch (const BadFile&) {}
    return 0;
}
