// STANDIN_* variables, read once. README.md explains them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace opus::standin {

// A NIC port of the fabric: line "node gpu port host:dataport switchport" of the STANDIN_PORTS file.
struct PortLine {
    std::uint32_t node = 0, gpu = 0, port = 0;
    std::string host;
    std::uint16_t tcp_port = 0;
    std::uint32_t switch_port = 0;
};

struct Settings {
    std::uint32_t node = 0;
    int gpu = -1;                 // -1: the current device's physical index
    bool fabric = false;          // STANDIN_PORTS is set: nodes speak over the data plane
    std::vector<PortLine> ports;  // of this node only
    std::string steering;
    std::int64_t rto_ns = 200'000'000;
    std::int64_t attach_ns = 10'000'000'000;
    std::uint32_t window = 16;  // frames of a link under way
    std::string stats;
    std::uint8_t domain = 0;  // NVLink domain, from 1; 0: none, or NCCL is not to join hosts
    bool own_nic = false;  // NCCL_PXN_DISABLE, NCCL_P2P_PXN_LEVEL, NCCL_CROSS_NIC: no NIC but its own
    bool drains = false;   // a call that makes connections waits for the device
    bool in_order = false;  // launches of a device take turns, though NCCL was not told so
    std::string error;     // what is wrong with the ports file

    static const Settings& get();
};

}  // namespace opus::standin
