// The fabric description: nodes, GPUs, NIC ports, rails, switches, and which cable joins what.
// One TOML file, read by opus-controller and opus-ctl (controller/fabric/). Immutable once loaded;
// share it by const reference between threads. Its order is the order of the file, so indices are
// stable as long as the file is.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "opus/types.h"

namespace opus {

// Which light paths a switch can make.
enum class Sidedness : std::uint8_t {
    any_to_any,  // ports 1..N, any two
    two_sided,   // ingress 1..N, egress N+1..N+M, one of each
};

// How the driver knows that light passes.
enum class Settle : std::uint8_t {
    power,  // ask the power monitor until both ends see light (deadline: 4 x dark time)
    time,   // wait the dark time and the guard after the fence
};

struct Switch {
    std::string name;
    std::string driver;         // "polatis-scpi"
    std::string address;        // host:port
    std::uint32_t ingress = 0;  // N
    std::uint32_t egress = 0;   // M; 0 when any_to_any
    Sidedness sidedness = Sidedness::any_to_any;
    std::string technology;  // piezo, mems, ... (opus/technology.h)
    TimeNs dark_ns = 0;      // command to light, from the technology or dark_ms
    TimeNs guard_ns = 0;     // added under Settle::time
    Settle settle = Settle::power;

    std::uint32_t size() const { return ingress + egress; }
};

struct Rail {
    std::string name;
    std::vector<SwitchIndex> switches;
    std::vector<GpuId> gpus;  // in node order
    double gbps = 400;        // what one port carries, each way
};

struct Port {
    std::string name;  // "n0.g1.p0"
    GpuId gpu = kNone;
    std::uint32_t index = 0;  // among the GPU's ports
    SwitchIndex sw = kNone;
    SwitchPort sw_port = 0;  // from 1
};

struct Gpu {
    std::string name;  // "n0.g1"
    NodeIndex node = kNone;
    std::uint32_t local = 0;  // index on its node
    RailIndex rail = kNone;
    std::string pci;            // optional PCI address
    std::string uuid;           // optional, as nvidia-smi -L prints it
    std::vector<PortId> ports;  // 1, 2 or 4
};

struct Node {
    std::string name;
    std::vector<GpuId> gpus;    // in local order
    NodeIndex domain = kNone;  // the first node of its NVLink domain; kNone: NVLink ends at the host
};

struct Fabric {
    std::string name;
    std::vector<Node> nodes;
    std::vector<Gpu> gpus;
    std::vector<Port> ports;
    std::vector<Rail> rails;
    std::vector<Switch> switches;

    const Switch& switch_of(PortId p) const { return switches[ports[p].sw]; }
    // Ports two of which a switch could join: same switch, other port, and opposite sides where it has
    // sides.
    bool can_join(PortId x, PortId y) const {
        const Port &p = ports[x], &q = ports[y];
        if (x == y || p.sw != q.sw || p.sw_port == q.sw_port) return false;
        const Switch& s = switches[p.sw];
        return s.sidedness == Sidedness::any_to_any || (p.sw_port <= s.ingress) != (q.sw_port <= s.ingress);
    }
};

// One mistake of a fabric file. line/column from 1; 0 where none applies.
struct FabricError {
    std::uint32_t line = 0;
    std::uint32_t column = 0;
    std::string text;  // names the thing, the value, and what to do
};

}  // namespace opus
