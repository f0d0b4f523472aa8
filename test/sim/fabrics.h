// Fabrics that schedules are played on.
#pragma once

#include <cstdint>

#include "opus/fabric.h"
#include "test/sim/random.h"

namespace opus::sim {

struct Shape {
    std::uint32_t nodes = 2, gpus = 1, ports = 1;  // GPUs of a node, ports of a GPU
    std::uint32_t switches = 1;                    // of a rail: each takes as many of a GPU's ports
    bool sided = false;                            // port 0 in, port 1 out
    std::uint32_t domain = 0;  // hosts of an NVLink domain; 0: NVLink ends at the host
    TimeNs dark_ns = 0;
};

Shape some_shape(Random& random, bool three_nodes);  // up to two ports; with three nodes, ports that are wanted for
                                                     // more than one thing
Shape wide_shape(Random& random);                    // up to six nodes, four ports and four switches a rail
Fabric make_fabric(const Shape& shape);

}  // namespace opus::sim
