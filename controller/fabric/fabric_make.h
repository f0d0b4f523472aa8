// Writes a fabric file for a regular cluster: `opus-ctl fabric make`. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace opus::fabric {

struct FabricPlan {
    std::string name = "fabric";
    std::uint32_t nodes = 4;
    std::uint32_t gpus = 4;   // a node; one rail each
    std::uint32_t ports = 2;  // a GPU: 1, 2 or 4
    std::uint32_t domain = 0;  // hosts of an NVLink domain; 0: NVLink ends at the host
    bool two_sided = false;   // even ports on the ingress side, odd ones on the egress side
    std::string driver = "polatis-scpi";
    std::string technology = "piezo";
    double dark_ms = -1;  // below 0: what the technology says
    double guard_ms = -1;
    std::string settle;                  // empty: the default
    std::vector<std::string> addresses;  // one a rail; or one, whose port number grows by 1 a rail
    std::string node_prefix = "n";
    std::uint32_t size = 0;  // ports of a switch; 0: just enough
};

// Any-to-any: GPU g of node n takes the ports after those of node n - 1, so that every two cables of a
// rail can be joined. Two-sided: port 0 goes in, port 1 comes out, so a ring n -> n + 1 goes from the
// ingress side to the egress side all the way round; with one port a GPU, even nodes go in and odd ones
// come out. The text, or what is wrong with the plan.
struct FabricText {
    std::string toml;
};
std::variant<FabricText, std::string> make_fabric(const FabricPlan& plan);

}  // namespace opus::fabric
