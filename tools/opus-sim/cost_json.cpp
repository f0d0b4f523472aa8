#include "tools/opus-sim/cost_json.h"

#include <algorithm>

#include "tools/opus-sim/price_file.h"

namespace opus::job {
namespace {

using nlohmann::json;
using namespace cost;

json json_of(const Device& d) { return {{"ports", d.ports}, {"usd", d.usd}, {"watts", d.watts}}; }

json json_of(const Network& n) {
    json terms = json::array();
    for (const Term& t : n.terms)
        terms.push_back({{"item", t.item},
                         {"count", t.count},
                         {"usd_each", t.usd_each},
                         {"watts_each", t.watts_each},
                         {"usd", t.usd()},
                         {"watts", t.watts()}});
    return {{"name", n.name}, {"terms", terms}, {"usd", n.usd()}, {"watts", n.watts()}, {"notes", n.notes}};
}

json part(double of, double whole) { return whole > 0 ? json(of / whole) : json(); }
json saved(double packet, double circuits) { return packet > 0 ? json(1 - circuits / packet) : json(); }

// Of a job's circuits: what its conclusion speaks of comes first.
std::vector<std::string> technologies_of(const Conclusion& conclusion, const Inputs& priced) {
    std::vector<std::string> names;
    const auto add = [&](std::string_view name) {
        if (std::find(names.begin(), names.end(), name) == names.end()) names.emplace_back(name);
    };
    for (const TechnologyFit& t : conclusion.technologies)
        if (t.point != nullptr && t.point == conclusion.point && t.technology->ports != 0) add(t.technology->name);
    add("piezo");
    for (const auto& [name, price] : priced.prices.optical_switches) add(name);
    return names;
}

std::uint32_t gpus_of_node(const replay::Workload& workload) {
    std::map<std::uint32_t, std::uint32_t> gpus;
    std::uint32_t most = 0;
    for (const replay::Place& place : workload.places) most = std::max(most, ++gpus[place.node]);
    return most;
}

// The cheapest packet network whose count leaves nothing out, such as GPUs that it does not hold; else the cheapest.
json cheapest(const CostSize& size) {
    const auto worse = [](const Network& a, const Network& b) {
        return std::pair(!a.notes.empty(), a.usd()) < std::pair(!b.notes.empty(), b.usd());
    };
    const Network& p = *std::min_element(size.packets.begin(), size.packets.end(), worse);
    const Network& c = size.circuits.front();
    return {{"packet", p.name},
            {"circuits", c.name},
            {"joins_all", p.notes.empty()},
            {"cost_saved", saved(p.usd(), c.usd())},
            {"power_saved", saved(p.watts(), c.watts())}};
}

}  // namespace

Inputs priced_inputs(const std::string& generation, const std::string& prices) {
    Inputs in = published_inputs(generation == "gb200" ? Generation::gb200 : Generation::h200);
    if (prices.empty()) return in;
    const std::string held = whole_text(prices, "give a file of prices (docs/opus-sim.md, \"Cost and power\")");
    in.prices = read_prices({prices, held}, std::move(in.prices));
    return in;
}

json inputs_json(const Inputs& in) {
    json optical = {{"others", json_of(in.prices.optical_switch)}};
    for (const auto& [technology, device] : in.prices.optical_switches) optical[technology] = json_of(device);
    return {{"generation", name_of(in.generation)},
            {"gpus_per_server", in.gpus},
            {"nic_ports", in.nic_ports},
            {"bidirectional", in.bidirectional},
            {"optical_ports_per_gpu", in.optical_ports()},
            {"transceivers_per_gpu", in.circuit_transceivers},
            {"transceivers_per_switch_port", in.port_transceivers},
            {"levels", in.levels},
            {"prices",
             {{"source", in.prices.source},
              {"packet_switch", json_of(in.prices.packet_switch)},
              {"transceiver", json_of(in.prices.transceiver)},
              {"circuit_transceiver", json_of(in.prices.circuit_transceiver)},
              {"optical_switch", optical}}}};
}

json size_json(const CostSize& s) {
    json all = {{"servers", s.inputs.servers}, {"gpus", s.inputs.world()}};
    for (const Network& n : s.packets) all["packet"].push_back(json_of(n));
    for (const Network& n : s.circuits) all["circuits"].push_back(json_of(n));
    for (const Network& p : s.packets)
        for (const Network& c : s.circuits)
            all["ratios"].push_back({{"packet", p.name},
                                     {"circuits", c.name},
                                     {"cost", part(p.usd(), c.usd())},
                                     {"power", part(p.watts(), c.watts())},
                                     {"cost_saved", saved(p.usd(), c.usd())},
                                     {"power_saved", saved(p.watts(), c.watts())}});
    return all;
}

json fabrics_json(const Inputs& in) {
    json all = json::array();
    for (const Technology& t : kTechnologies) {
        if (t.ports == 0) continue;
        json gpus = json::array();
        for (std::uint32_t levels = 1; levels <= kCostLevels; ++levels)
            gpus.push_back(gpus_of_fabric(t, in.gpus, in.optical_ports(), levels));
        all.push_back({{"technology", t.name}, {"dark_ns", t.dark_ns}, {"ports", t.ports}, {"gpus_by_levels", gpus}});
    }
    return all;
}

json job_cost_json(const JobFile& job, const Run& run, const RunOptions& o, const Conclusion& conclusion,
                   const Inputs& priced) {
    if (run.nodes < 2) return {};
    CostSize size{priced, {}, {}};
    size.inputs.servers = run.nodes, size.inputs.gpus = gpus_of_node(job.workload);
    size.inputs.nic_ports = o.ports, size.inputs.levels = 0;  // as many as a rail needs
    for (const std::string& technology : technologies_of(conclusion, priced)) {
        Inputs in = size.inputs;
        in.technology = technology;
        if (!problem_of(in).empty()) in.levels = 1;  // no number of levels will do: the network's notes say so
        if (problem_of(in).empty()) size.circuits.push_back(circuit_network(in));
    }
    if (size.circuits.empty()) return {};  // larger than the calculator counts
    for (const Baseline b : kBaselines) size.packets.push_back(packet_network(size.inputs, b));
    json all = inputs_json(size.inputs);
    all.update(size_json(size));
    all["cheapest"] = cheapest(size), all["fabrics"] = fabrics_json(size.inputs);
    return all;
}

}  // namespace opus::job
