#include "controller/fabric/fabric_names.h"

#include <algorithm>

namespace opus::fabric {
namespace {

template <class T>
std::uint32_t find_named(const std::vector<T>& list, std::string_view name) {
    const auto at = std::find_if(list.begin(), list.end(), [&](const T& x) { return x.name == name; });
    return at == list.end() ? kNone : static_cast<std::uint32_t>(at - list.begin());
}

}  // namespace

PortId find_port(const Fabric& fabric, std::string_view name) {
    if (const PortId found = find_named(fabric.ports, name); found != kNone) return found;
    for (PortId p = 0; p < fabric.ports.size(); ++p)
        if (switch_port_name(fabric, p) == name) return p;
    return kNone;
}
GpuId find_gpu(const Fabric& fabric, std::string_view name) { return find_named(fabric.gpus, name); }
NodeIndex find_node(const Fabric& fabric, std::string_view name) { return find_named(fabric.nodes, name); }

std::string switch_port_name(const Fabric& fabric, PortId port) {
    if (port >= fabric.ports.size()) return "-";
    const Port& p = fabric.ports[port];
    return fabric.switches[p.sw].name + ":" + std::to_string(p.sw_port);
}
std::string port_name(const Fabric& fabric, PortId port) {
    return port < fabric.ports.size() ? fabric.ports[port].name : "-";
}

}  // namespace opus::fabric
