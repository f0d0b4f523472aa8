// Names of ports and GPUs as people write them: n0.g1.p0, n0.g1.
#pragma once

#include <string>
#include <string_view>

#include "opus/fabric.h"

namespace opus::fabric {

PortId find_port(const Fabric& fabric, std::string_view name);  // also "switch:port"; kNone when there is none
GpuId find_gpu(const Fabric& fabric, std::string_view name);
NodeIndex find_node(const Fabric& fabric, std::string_view name);

// "ocs-r0:3", or "-" for kNone.
std::string switch_port_name(const Fabric& fabric, PortId port);
// Name of a port, or "-" for kNone.
std::string port_name(const Fabric& fabric, PortId port);

}  // namespace opus::fabric
