#include "controller/fabric/fabric_make.h"

#include <charconv>
#include <sstream>

#include "opus/steering.h"
#include "opus/technology.h"

namespace opus::fabric {
namespace {

struct Sides {
    std::uint32_t ingress = 0;
    std::uint32_t egress = 0;  // 0: any to any
};

// Ports that one rail's switch needs.
Sides needed(const FabricPlan& plan) {
    if (!plan.two_sided) return {std::max(2u, plan.nodes * plan.ports), 0};
    if (plan.ports == 1) return {(plan.nodes + 1) / 2, std::max(1u, plan.nodes / 2)};
    const std::uint32_t half = plan.nodes * plan.ports / 2;
    return {half, half};
}

std::uint32_t switch_port(const FabricPlan& plan, const Sides& sides, std::uint32_t node, std::uint32_t port) {
    if (!plan.two_sided) return node * plan.ports + port + 1;
    if (plan.ports == 1) return node / 2 + 1 + (node % 2 == 0 ? 0 : sides.ingress);
    return node * (plan.ports / 2) + port / 2 + 1 + (port % 2 == 0 ? 0 : sides.ingress);
}

// Address of a rail's switch: its own, or the only one with its port number counted up; empty: none.
std::string address(const FabricPlan& plan, std::uint32_t rail) {
    if (plan.addresses.size() == plan.gpus) return plan.addresses[rail];
    const std::string& base = plan.addresses[0];
    const auto colon = base.rfind(':');
    std::uint32_t port = 0;
    if (colon == std::string::npos) return "";
    const auto [end, failed] = std::from_chars(base.data() + colon + 1, base.data() + base.size(), port);
    if (failed != std::errc{} || end != base.data() + base.size() || port + rail > 65'535) return "";
    return base.substr(0, colon + 1) + std::to_string(port + rail);
}

std::string complaint(const FabricPlan& plan, const Sides& sides) {
    const Technology* technology = find_technology(plan.technology);
    const std::uint64_t ports = std::uint64_t{plan.nodes} * plan.ports;
    if (plan.nodes < 2) return "--nodes must be at least 2: circuits join nodes";
    if (plan.gpus < 1 || plan.gpus > steering::kMaxGpus)
        return "--gpus must be 1 to " + std::to_string(steering::kMaxGpus);
    if (plan.ports != 1 && plan.ports != 2 && plan.ports != 4) return "--ports must be 1, 2 or 4";
    if (!technology) return "unknown technology '" + plan.technology + "'";
    if (ports > 65'536) return std::to_string(ports) + " ports a rail are more than one switch can have (65536)";
    if (plan.size != 0 && plan.size < sides.ingress + sides.egress)
        return "--size " + std::to_string(plan.size) + ": the switch of a rail needs " +
               std::to_string(sides.ingress + sides.egress) + " ports";
    if (plan.size % 2 != 0 && plan.two_sided) return "--size must be even with --two-sided";
    if (plan.addresses.size() != 1 && plan.addresses.size() != plan.gpus)
        return std::to_string(plan.addresses.size()) + " addresses for " + std::to_string(plan.gpus) +
               " rails: give one for each, or one whose port counts up";
    if (address(plan, plan.gpus - 1).empty()) return "address '" + plan.addresses[0] + "' must be host:port";
    return "";
}

void write_timing(std::ostringstream& out, const FabricPlan& plan) {
    out << "technology = \"" << plan.technology << "\"\n";
    if (plan.dark_ms >= 0) out << "dark_ms = " << plan.dark_ms << "\n";
    if (plan.guard_ms >= 0) out << "guard_ms = " << plan.guard_ms << "\n";
    if (!plan.settle.empty()) out << "settle = \"" << plan.settle << "\"\n";
}

}  // namespace

std::variant<FabricText, std::string> make_fabric(const FabricPlan& given) {
    FabricPlan plan = given;
    if (plan.addresses.empty()) plan.addresses = {"127.0.0.1:5025"};
    Sides sides = needed(plan);
    if (std::string text = complaint(plan, sides); !text.empty()) return text;
    if (plan.size != 0) sides = plan.two_sided ? Sides{plan.size / 2, plan.size / 2} : Sides{plan.size, 0};

    std::ostringstream out;
    out << "# " << plan.nodes << " nodes x " << plan.gpus << " GPUs x " << plan.ports
        << " ports; rail r holds GPU r of every node.\n"
        << "version = 1\nname = \"" << plan.name << "\"\n";
    for (std::uint32_t r = 0; r < plan.gpus; ++r) {
        out << "\n[[switch]]\nname = \"ocs-r" << r << "\"\ndriver = \"" << plan.driver << "\"\naddress = \""
            << address(plan, r) << "\"\n";
        if (sides.egress == 0)
            out << "size = " << sides.ingress << "\n";
        else
            out << "size = \"" << sides.ingress << "x" << sides.egress << "\"\n";
        write_timing(out, plan);
    }
    for (std::uint32_t r = 0; r < plan.gpus; ++r)
        out << "\n[[rail]]\nname = \"r" << r << "\"\nswitches = [\"ocs-r" << r << "\"]\n";
    for (std::uint32_t n = 0; n < plan.nodes; ++n) {
        out << "\n[[node]]\nname = \"" << plan.node_prefix << n << "\"\n";
        if (plan.domain != 0) out << "domain = \"d" << n / plan.domain << "\"\n";
        for (std::uint32_t g = 0; g < plan.gpus; ++g) {
            out << "[[node.gpu]]\nrail = \"r" << g << "\"\nports = [";
            for (std::uint32_t p = 0; p < plan.ports; ++p)
                out << (p > 0 ? ", " : "") << "\"ocs-r" << g << ":" << switch_port(plan, sides, n, p) << "\"";
            out << "]\n";
        }
    }
    return FabricText{out.str()};
}

}  // namespace opus::fabric
