// Any text as a file of prices: refused with words, or prices that can be counted with.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "tools/opus-sim/price_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace opus::cost;
    try {
        Inputs in = published_inputs(Generation::h200);
        in.prices = read_prices({"file", {reinterpret_cast<const char*>(data), size}}, in.prices);
        for (const opus::Technology& t : opus::kTechnologies) {
            in.technology = t.name;
            if (!problem_of(in).empty()) continue;
            for (const Network& n : {circuit_network(in), packet_network(in, Baseline::leaf_spine)})
                if (!std::isfinite(n.usd()) || !std::isfinite(n.watts()) || n.usd() < 0 || n.watts() < 0) std::abort();
        }
    } catch (const opus::job::BadFile&) {}
    return 0;
}
