#include "test/sim/fabrics.h"

#include <array>
#include <string>

namespace opus::sim {
namespace {

TimeNs some_dark(Random& random) {
    static constexpr std::array<TimeNs, 4> kDark{10'000, 1'000'000, 5'000'000, 25'000'000};
    return kDark[random.below(4)];
}

Rail make_rail(Fabric& fabric, const Shape& shape, std::uint32_t index) {
    Rail rail;
    rail.name = "r" + std::to_string(index);
    for (std::uint32_t i = 0; i < shape.switches; ++i) {
        Switch sw;
        sw.name = "ocs-r" + std::to_string(index) + (shape.switches > 1 ? "." + std::to_string(i) : "");
        sw.driver = "null";
        sw.ingress = shape.sided ? shape.nodes : shape.nodes * shape.ports + 2;  // two spare ports: another client's
        sw.egress = shape.sided ? shape.nodes : 0;
        sw.sidedness = shape.sided ? Sidedness::two_sided : Sidedness::any_to_any;
        sw.dark_ns = shape.dark_ns;
        rail.switches.push_back(static_cast<SwitchIndex>(fabric.switches.size()));
        fabric.switches.push_back(std::move(sw));
    }
    return rail;
}

void add_ports(Fabric& fabric, const Shape& shape, Gpu& gpu, GpuId id) {
    const std::uint32_t of_a_switch = shape.ports / shape.switches;
    for (std::uint32_t p = 0; p < shape.ports; ++p) {
        Port port;
        port.name = gpu.name + ".p" + std::to_string(p);
        port.gpu = id;
        port.index = p;
        port.sw = fabric.rails[gpu.rail].switches[p / of_a_switch];
        port.sw_port = shape.sided ? gpu.node + 1 + p * shape.nodes : gpu.node * of_a_switch + p % of_a_switch + 1;
        gpu.ports.push_back(static_cast<PortId>(fabric.ports.size()));
        fabric.ports.push_back(std::move(port));
    }
}

}  // namespace

Shape some_shape(Random& random, bool three_nodes) {
    Shape shape;
    shape.nodes = three_nodes ? 3 + random.below(2) : 2 + random.below(3);
    shape.gpus = 1 + random.below(2);
    shape.ports = three_nodes ? 1 + random.chance(200) : 1 + random.below(2);
    if (shape.ports == 2 && shape.nodes != 3 && random.chance(200)) shape.switches = 2;  // no ring of three can be made
    shape.sided = shape.ports == 2 && shape.switches == 1 && random.chance(200);
    shape.dark_ns = some_dark(random);
    if (!three_nodes && shape.switches == 1 && !shape.sided && shape.nodes > 2 && random.chance(200)) shape.domain = 2;
    return shape;
}

Shape wide_shape(Random& random) {
    static constexpr std::array<std::uint32_t, 8> kPorts{1, 2, 2, 3, 3, 4, 4, 4};
    Shape shape;
    shape.nodes = 3 + random.below(4);
    shape.gpus = 1 + random.chance(250);
    shape.ports = kPorts[random.below(kPorts.size())];
    if (random.chance(500)) shape.switches = shape.ports == 4 && random.chance(500) ? 2 : shape.ports;
    shape.dark_ns = some_dark(random);
    return shape;
}

Fabric make_fabric(const Shape& shape) {
    Fabric fabric;
    fabric.name = "sim";
    for (std::uint32_t g = 0; g < shape.gpus; ++g) fabric.rails.push_back(make_rail(fabric, shape, g));
    for (std::uint32_t n = 0; n < shape.nodes; ++n) {
        Node node;
        node.name = "n" + std::to_string(n);
        if (shape.domain != 0) node.domain = n / shape.domain * shape.domain;
        for (std::uint32_t g = 0; g < shape.gpus; ++g) {
            Gpu gpu;
            const auto id = static_cast<GpuId>(fabric.gpus.size());
            gpu.name = node.name + ".g" + std::to_string(g);
            gpu.node = n;
            gpu.local = g;
            gpu.rail = g;
            add_ports(fabric, shape, gpu, id);
            node.gpus.push_back(id);
            fabric.rails[g].gpus.push_back(id);
            fabric.gpus.push_back(std::move(gpu));
        }
        fabric.nodes.push_back(std::move(node));
    }
    return fabric;
}

}  // namespace opus::sim
