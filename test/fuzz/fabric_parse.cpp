// Any text as a fabric file: errors, or a fabric whose indices all lead somewhere.
#include <cstdint>
#include <cstdlib>

#include "controller/fabric/fabric_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const auto load = opus::fabric::parse_fabric({reinterpret_cast<const char*>(data), size}, {"polatis-scpi"});
    if (load.fabric.has_value() != load.errors.empty()) std::abort();
    if (!load.fabric) return 0;
    const opus::Fabric& f = *load.fabric;
    for (const auto& port : f.ports)
        if (port.sw_port < 1 || port.sw_port > f.switches.at(port.sw).size() ||
            port.index >= f.gpus.at(port.gpu).ports.size())
            std::abort();
    for (const auto& gpu : f.gpus)
        if (gpu.local >= f.nodes.at(gpu.node).gpus.size() || gpu.rail >= f.rails.size()) std::abort();
    return 0;
}
