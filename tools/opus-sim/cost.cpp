#include "tools/opus-sim/cost.h"

#include <cmath>
#include <cstdio>

namespace opus::cost {
namespace {

constexpr std::uint32_t kMostServers = 1'000'000, kMostGpus = 1'024, kMostPorts = 64, kMostLevels = 8;
constexpr std::uint64_t kMostOffered = 1'000'000'000'000;

std::uint64_t up(std::uint64_t a, std::uint64_t b) { return (a + b - 1) / b; }
std::string text(std::uint64_t n) { return std::to_string(n); }

// Ports of packet switches, and how they were counted.
struct Ports {
    double count = 0;
    std::string how;
    std::string note;  // what the count leaves out
};

// Three tiers of switches of k ports hold k^3 / 4 GPUs. The method takes the nearest k, whatever a switch really has.
Ports fat_tree(const Inputs& in) {
    const auto k = static_cast<std::uint64_t>(std::lround(std::cbrt(4.0 * static_cast<double>(in.world()))));
    Ports p{static_cast<double>(k * (k * k + k * k / 4)), "three tiers of switches of " + text(k) + " ports", ""};
    if (k * k * k / 4 < in.world())
        p.note = "its tree of switches of " + text(k) + " ports holds " + text(k * k * k / 4) + " GPUs";
    return p;
}

// Two tiers for each rail, again of the nearest k.
Ports rail(const Inputs& in) {
    const std::uint64_t s = in.servers, g = in.gpus;
    const auto k = static_cast<std::uint64_t>(std::lround(std::sqrt(4.0 * static_cast<double>(s))));
    const std::uint64_t leaves = 2 * g * (s / (k / 2)), spines = g * s / k;
    Ports p{static_cast<double>(k * (leaves + spines)), text(leaves + spines) + " switches of " + text(k) + " ports",
            ""};
    if (const std::uint64_t held = s / (k / 2) * (k / 2); held < s)
        p.note = "its leaves of " + text(k) + " ports hold " + text(held) + " servers";
    return p;
}

Ports rail_only(const Inputs& in) {
    Ports p{static_cast<double>(in.world()), "one a GPU", ""};
    if (in.servers > in.prices.packet_switch.ports)
        p.note = "a rail has " + text(in.servers) + " GPUs and a packet switch " +
                 text(static_cast<std::uint64_t>(in.prices.packet_switch.ports)) + " ports: one tier cannot join them";
    return p;
}

Ports leaf_spine(const Inputs& in) {
    const auto radix = static_cast<std::uint64_t>(in.prices.packet_switch.ports);
    const std::uint64_t leaves = up(in.world(), radix / 2), spines = up(leaves * (radix / 2), radix);
    Ports p{static_cast<double>(radix * (leaves + spines)),
            text(leaves) + " leaves and " + text(spines) + " spines of " + text(radix) + " ports", ""};
    if (leaves > radix)
        p.note = "two tiers of switches of " + text(radix) + " ports hold " + text(radix * radix / 2) + " GPUs";
    return p;
}

Ports ports_of(const Inputs& in, Baseline baseline) {
    switch (baseline) {
        case Baseline::fat_tree: return fat_tree(in);
        case Baseline::rail: return rail(in);
        case Baseline::rail_only: return rail_only(in);
        case Baseline::leaf_spine: return leaf_spine(in);
    }
    return {};
}

bool priced(const Device& d) { return d.ports >= 1 && d.usd >= 0 && d.watts >= 0; }

std::string wrong_number(const char* what, double value, double least, double most) {
    if (value >= least && value <= most) return "";
    char line[160];
    std::snprintf(line, sizeof line, "%s: %.15g is not between %.15g and %.15g", what, value, least, most);
    return line;
}

}  // namespace

const char* name_of(Generation generation) { return generation == Generation::h200 ? "h200" : "gb200"; }

const char* name_of(Baseline baseline) {
    switch (baseline) {
        case Baseline::fat_tree: return "fat-tree";
        case Baseline::rail: return "rail";
        case Baseline::rail_only: return "rail-only";
        case Baseline::leaf_spine: return "leaf-spine";
    }
    return "";
}

const Device& Prices::optical(std::string_view technology) const {
    const auto own = optical_switches.find(technology);
    return own == optical_switches.end() ? optical_switch : own->second;
}

Prices published_prices(Generation generation) {
    Prices p;
    p.source = "as published with Photonic Rails in ML Datacenters (arXiv 2507.08119, 2602.12521)";
    p.optical_switch = {192, 192 * 520.0, 75};
    if (generation == Generation::h200)
        p.packet_switch = {64, 37'299, 2'524}, p.transceiver = {1, 879, 10};
    else
        p.packet_switch = {144, 149'939, 7'000}, p.transceiver = {1, 879, 16};
    p.circuit_transceiver = p.transceiver;
    return p;
}

Inputs published_inputs(Generation generation) {
    Inputs in;
    in.prices = published_prices(generation), in.generation = generation;
    if (generation == Generation::gb200) in.gpus = 72, in.port_transceivers = 0;
    return in;
}

std::string problem_of(const Inputs& in) {
    for (const std::string& wrong :
         {wrong_number("servers", in.servers, 1, kMostServers), wrong_number("GPUs of a server", in.gpus, 1, kMostGpus),
          wrong_number("ports of a NIC", in.nic_ports, 1, kMostPorts), wrong_number("levels", in.levels, 0, kMostLevels),
          wrong_number("transceivers of a GPU", in.circuit_transceivers, 0, kMostPorts),
          wrong_number("transceivers at a port", in.port_transceivers, 0, kMostPorts)})
        if (!wrong.empty()) return wrong;
    const Technology* t = find_technology(in.technology);
    if (t == nullptr) return "no switch technology is called " + in.technology;
    if (t->ports == 0) return in.technology + " is not a switch of its own: it has no ports that could be priced";
    const std::uint64_t ports = std::uint64_t{in.servers} * in.optical_ports();
    if (in.levels == 0 && levels_for(ports, t->ports) == 0)
        return "no number of levels of " + in.technology + " switches offers " + text(ports) + " ports";
    for (const Device* d : {&in.prices.packet_switch, &in.prices.transceiver, &in.prices.circuit_transceiver,
                            &in.prices.optical(in.technology)})
        if (!priced(*d)) return "a price, power or number of ports is below what can be";
    if (in.prices.packet_switch.ports < 2) return "a packet switch has two ports at least";
    return "";
}

double Network::usd() const {
    double sum = 0;
    for (const Term& t : terms) sum += t.usd();
    return sum;
}
double Network::watts() const {
    double sum = 0;
    for (const Term& t : terms) sum += t.watts();
    return sum;
}

Network packet_network(const Inputs& in, Baseline baseline) {
    const Ports ports = ports_of(in, baseline);
    Network n;
    n.name = name_of(baseline);
    const Prices& p = in.prices;
    n.terms.push_back({"ports of packet switches: " + ports.how, ports.count, p.packet_switch.port_usd(),
                       p.packet_switch.port_watts()});
    n.terms.push_back({"transceivers at GPUs", static_cast<double>(in.world()), p.transceiver.usd, p.transceiver.watts});
    if (in.port_transceivers > 0)
        n.terms.push_back({"transceivers at those ports", ports.count * in.port_transceivers, p.transceiver.usd,
                           p.transceiver.watts});
    if (!ports.note.empty()) n.notes.push_back(n.name + ": " + ports.note);
    return n;
}

Network circuit_network(const Inputs& in) {
    const Technology& t = *find_technology(in.technology);
    const Device& price = in.prices.optical(in.technology);
    const std::uint64_t rail_ports = std::uint64_t{in.servers} * in.optical_ports();
    const std::uint32_t needed = levels_for(rail_ports, t.ports), levels = in.levels == 0 ? needed : in.levels;
    Network n;
    n.name = "circuits, " + in.technology;
    const double ports = static_cast<double>(in.world() * in.optical_ports()) * (2.0 * levels - 1);
    n.terms.push_back({"ports of optical switches: " + text(in.optical_ports()) + " a GPU" +
                           (levels > 1 ? ", " + text(levels) + " levels" : std::string()),
                       ports, price.port_usd(), price.port_watts()});
    n.terms.push_back({"transceivers at GPUs", static_cast<double>(in.world()) * in.circuit_transceivers,
                       in.prices.circuit_transceiver.usd, in.prices.circuit_transceiver.watts});
    if (needed == 0 || levels < needed)
        n.notes.push_back(n.name + ": a rail needs " + text(rail_ports) + " ports, and the largest known " +
                          in.technology + " switch has " + text(t.ports) + ": that takes " +
                          (needed == 0 ? "another technology"
                                       : text(needed) + " levels, which are not counted (--levels 0 counts them)"));
    if (in.prices.optical_switches.find(in.technology) == in.prices.optical_switches.end() && in.technology != "piezo")
        n.notes.push_back(n.name +
                          ": no price of such a switch is published; that of piezo is taken (--prices says otherwise)");
    return n;
}

std::uint64_t offered_ports(std::uint32_t radix, std::uint32_t levels) {
    if (levels == 0) return 0;
    if (levels == 1) return radix;
    std::uint64_t ports = 2;
    for (std::uint32_t i = 0; i < levels; ++i) {
        ports *= radix / 2;
        if (ports > kMostOffered) return 0;
    }
    return ports;
}

std::uint32_t levels_for(std::uint64_t ports, std::uint32_t radix) {
    for (std::uint32_t levels = 1; levels <= kMostLevels; ++levels)
        if (offered_ports(radix, levels) >= ports) return levels;
    return 0;
}

std::uint64_t gpus_of_fabric(const Technology& technology, std::uint32_t domain, std::uint32_t optical_ports,
                             std::uint32_t levels) {
    return optical_ports == 0 ? 0 : domain * (offered_ports(technology.ports, levels) / optical_ports);
}

}  // namespace opus::cost
