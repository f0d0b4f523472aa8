// What the network between nodes costs and draws, with packet switches and with circuits: counts of ports and transceivers by
// the method of 'Photonic Rails in ML Datacenters' (arXiv 2507.08119, 2602.12521), times prices. Pure: inputs in, terms out.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "opus/technology.h"

namespace opus::cost {

enum class Generation : std::uint8_t { h200, gb200 };
// fat_tree, rail, rail_only: as the papers count. leaf_spine: two tiers of whole switches, which the papers do not count.
enum class Baseline : std::uint8_t { fat_tree, rail, rail_only, leaf_spine };

inline constexpr Baseline kBaselines[] = {Baseline::fat_tree, Baseline::rail, Baseline::rail_only, Baseline::leaf_spine};

const char* name_of(Generation generation);  // "h200"
const char* name_of(Baseline baseline);      // "fat-tree"

// A port costs and draws its share.
struct Device {
    double ports = 1, usd = 0, watts = 0;
    double port_usd() const { return usd / ports; }
    double port_watts() const { return watts / ports; }
};

struct Prices {
    std::string source;  // for people
    Device packet_switch;
    Device transceiver;                                           // of a packet network
    Device circuit_transceiver;                                   // at a GPU that has circuits
    Device optical_switch;                                        // of any technology that has no price of its own
    std::map<std::string, Device, std::less<>> optical_switches;  // by name in kTechnologies

    const Device& optical(std::string_view technology) const;
};

// Both papers' prices; the optical switch is Polatis' (75 W and 192 ports, 520 USD a port).
Prices published_prices(Generation generation);

struct Inputs {
    std::uint32_t servers = 256, gpus = 8;  // GPUs of a server: its scale-up domain
    std::string technology = "piezo";       // of kTechnologies
    std::uint32_t nic_ports = 2;            // of a GPU, that circuits join
    bool bidirectional = true;  // a port of the NIC takes one port of an optical switch; else two, one a direction
    double circuit_transceivers = 1;  // of a GPU, with circuits
    double port_transceivers = 1;     // at each port of a packet switch; every GPU has one more
    std::uint32_t levels = 1;         // of optical switches; 0: as many as a rail's ports need
    Prices prices;
    Generation generation = Generation::h200;  // whose prices they were, where a file of one's own says nothing

    std::uint64_t world() const { return std::uint64_t{servers} * gpus; }
    std::uint32_t optical_ports() const { return nic_ports * (bidirectional ? 1 : 2); }  // of a GPU
};
Inputs published_inputs(Generation generation);

// What is wrong with inputs and what to do, in words; empty: nothing.
std::string problem_of(const Inputs& inputs);

struct Term {
    std::string item;
    double count = 0, usd_each = 0, watts_each = 0;
    double usd() const { return count * usd_each; }
    double watts() const { return count * watts_each; }
};
struct Network {
    std::string name;
    std::vector<Term> terms;
    std::vector<std::string> notes;  // what the count leaves out, a sentence each
    double usd() const;
    double watts() const;
};

// Both want inputs of which problem_of says nothing.
Network packet_network(const Inputs& inputs, Baseline baseline);
Network circuit_network(const Inputs& inputs);

// Ports that L levels of switches of a radix offer to GPUs without blocking: 2 (radix / 2)^L, a Clos network. Each
// takes 2L - 1 ports of switches. 0 levels or too many of them to count: 0.
std::uint64_t offered_ports(std::uint32_t radix, std::uint32_t levels);
// The fewest levels that offer `ports`; 0: none do.
std::uint32_t levels_for(std::uint64_t ports, std::uint32_t radix);

// GPUs that one fabric joins, a network of optical switches for each rail: v1's table 3 with one level. 0: not a switch.
std::uint64_t gpus_of_fabric(const Technology& technology, std::uint32_t domain, std::uint32_t optical_ports,
                             std::uint32_t levels);

}  // namespace opus::cost
