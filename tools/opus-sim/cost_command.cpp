#include "tools/opus-sim/cost_command.h"

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>

#include "tools/ctl/table.h"
#include "tools/opus-sim/commands.h"
#include "tools/opus-sim/json_out.h"
#include "tools/opus-sim/number_text.h"
#include "tools/opus-sim/price_file.h"

namespace opus::job {
namespace {

using nlohmann::json;
using namespace cost;

constexpr Baseline kBaselines[] = {Baseline::fat_tree, Baseline::rail, Baseline::rail_only, Baseline::leaf_spine};
constexpr std::uint32_t kLevelsShown = 3;

std::string whole(double value) { return grouped(number_text("%.0f", value)); }

Inputs inputs_of(const CostOptions& o) {
    const Generation generation = o.generation == "gb200" ? Generation::gb200 : Generation::h200;
    Inputs in = published_inputs(generation);
    in.gpus = o.gpus.value_or(in.gpus);
    in.nic_ports = o.nic_ports, in.levels = o.levels, in.bidirectional = o.bidirectional;
    in.circuit_transceivers = o.transceivers;
    in.port_transceivers = o.switch_transceivers.value_or(in.port_transceivers);
    if (o.prices.empty()) return in;
    std::ifstream file(o.prices, std::ios::binary);
    std::stringstream text;
    if (file) text << file.rdbuf();
    if (!file || text.bad() || text.str().empty())
        throw BadFile(o.prices, "",
                      "it cannot be read, or is empty: give a file of prices (docs/opus-sim.md, \"Cost and power\")");
    const std::string held = text.str();
    in.prices = read_prices({o.prices, held}, std::move(in.prices));
    return in;
}

// One size: all packet networks, then all circuits.
struct Size {
    Inputs inputs;
    std::vector<Network> packets, circuits;
};

std::vector<Size> sizes_of(const CostOptions& o, const Inputs& common) {
    std::vector<Size> sizes;
    for (const std::uint32_t servers : o.servers) {
        Size s{common, {}, {}};
        s.inputs.servers = servers;
        for (const std::string& technology : o.technologies) {
            s.inputs.technology = technology;
            if (const std::string wrong = problem_of(s.inputs); !wrong.empty()) throw std::invalid_argument(wrong);
            s.circuits.push_back(circuit_network(s.inputs));
        }
        for (const Baseline b : kBaselines)
            if (std::count(o.baselines.begin(), o.baselines.end(), name_of(b)) != 0)
                s.packets.push_back(packet_network(s.inputs, b));
        sizes.push_back(std::move(s));
    }
    return sizes;
}

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

json json_of(const Size& s) {
    json all = {{"servers", s.inputs.servers}, {"gpus", s.inputs.world()}};
    for (const Network& n : s.packets) all["packet"].push_back(json_of(n));
    for (const Network& n : s.circuits) all["circuits"].push_back(json_of(n));
    for (const Network& p : s.packets)
        for (const Network& c : s.circuits)
            all["ratios"].push_back(
                {{"packet", p.name}, {"circuits", c.name}, {"cost", p.usd() / c.usd()}, {"power", p.watts() / c.watts()}});
    return all;
}

json fabrics_json(const Inputs& in) {
    json all = json::array();
    for (const Technology& t : kTechnologies) {
        if (t.ports == 0) continue;
        json gpus = json::array();
        for (std::uint32_t levels = 1; levels <= kLevelsShown; ++levels)
            gpus.push_back(gpus_of_fabric(t, in.gpus, in.optical_ports(), levels));
        all.push_back({{"technology", t.name}, {"dark_ns", t.dark_ns}, {"ports", t.ports}, {"gpus_by_levels", gpus}});
    }
    return all;
}

void print_json(const CostOptions& o, const Inputs& in, const std::vector<Size>& sizes) {
    json optical = {{"others", json_of(in.prices.optical_switch)}};
    for (const auto& [technology, device] : in.prices.optical_switches) optical[technology] = json_of(device);
    json all = {{"generation", o.generation},
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
                  {"optical_switch", optical}}},
                {"sizes", json::array()},
                {"fabrics", fabrics_json(in)}};
    for (const Size& s : sizes) all["sizes"].push_back(json_of(s));
    print_for_programs(all);
}

std::string price_text(const Device& d, bool switch_of_ports) {
    return (switch_of_ports ? number_text("%.0f ports, ", d.ports) : std::string()) + whole(d.usd) + " USD, " +
           number_text("%g W", d.watts);
}

void print_inputs(const CostOptions& o, const Inputs& in) {
    const Prices& p = in.prices;
    std::printf("servers of %u GPUs (%s); prices %s\n", in.gpus, o.generation.c_str(), p.source.c_str());
    std::printf("  packet switch: %s; transceiver: %s, one a GPU and %g at each port of a packet switch\n",
                price_text(p.packet_switch, true).c_str(), price_text(p.transceiver, false).c_str(), in.port_transceivers);
    for (const std::string& t : o.technologies)
        std::printf("  optical switch, %s: %s\n", t.c_str(), price_text(p.optical(t), true).c_str());
    std::printf("  circuits: %u port%s a GPU, %s: %u of an optical switch; %g transceiver%s a GPU, %s each\n\n",
                in.nic_ports, in.nic_ports == 1 ? "" : "s",
                in.bidirectional ? "both directions on one fibre" : "a fibre for each direction", in.optical_ports(),
                in.circuit_transceivers, in.circuit_transceivers == 1 ? "" : "s",
                price_text(p.circuit_transceiver, false).c_str());
}

void print_size(const Size& s) {
    std::printf("%s servers, %s GPUs\n", whole(s.inputs.servers).c_str(),
                whole(static_cast<double>(s.inputs.world())).c_str());
    ctl::Table table({"network", "item", "count", "USD each", "W each", "USD", "W"});
    std::vector<std::string> notes;
    for (const auto* networks : {&s.packets, &s.circuits})
        for (const Network& n : *networks) {
            for (const Term& t : n.terms)
                table.add({&t == n.terms.data() ? n.name : "", t.item, whole(t.count), number_text("%.2f", t.usd_each),
                           number_text("%.2f", t.watts_each), whole(t.usd()), whole(t.watts())});
            table.add({"", "all", "", "", "", whole(n.usd()), whole(n.watts())});
            notes.insert(notes.end(), n.notes.begin(), n.notes.end());
        }
    table.print(stdout);
    for (const std::string& note : notes) std::printf("note: %s\n", note.c_str());
    std::printf("\n");
    ctl::Table ratios({"", "against", "cost", "power", "cost saved", "power saved"});
    for (const Network& c : s.circuits)
        for (const Network& p : s.packets)
            ratios.add({c.name, p.name, number_text("%.2fx", p.usd() / c.usd()),
                        number_text("%.1fx", p.watts() / c.watts()), number_text("%.1f %%", 100 * (1 - c.usd() / p.usd())),
                        number_text("%.2f %%", 100 * (1 - c.watts() / p.watts()))});
    if (!s.packets.empty()) ratios.print(stdout);
    std::printf("\n");
}

void print_fabrics(const Inputs& in) {
    std::printf(
        "GPUs that one fabric joins, in servers (scale-up domains) of %u, %u port%s of optical switches a GPU\n",
        in.gpus, in.optical_ports(), in.optical_ports() == 1 ? "" : "s");
    ctl::Table table({"technology", "dark time", "ports", "one level", "two levels", "three levels", "known from"});
    for (const Technology& t : kTechnologies) {
        if (t.ports == 0) continue;
        std::vector<std::string> row{std::string(t.name), ctl::duration(static_cast<double>(t.dark_ns) / 1e6),
                                     std::to_string(t.ports)};
        if (t.dark_ns < 1'000) row[1] = std::to_string(t.dark_ns) + " ns";
        for (std::uint32_t levels = 1; levels <= kLevelsShown; ++levels)
            row.push_back(whole(static_cast<double>(gpus_of_fabric(t, in.gpus, in.optical_ports(), levels))));
        row.emplace_back(t.note);
        table.add(std::move(row));
    }
    table.print(stdout);
    std::printf(
        "Each level beyond the first takes two more ports of switches for a port of a GPU (a Clos network), and light "
        "two more passes.\n");
}

}  // namespace

void cost_arguments(CLI::App& app, CostOptions& o) {
    std::vector<std::string> baselines, technologies;
    for (const Baseline b : kBaselines) baselines.emplace_back(name_of(b));
    for (const Technology& t : kTechnologies)
        if (t.ports != 0) technologies.emplace_back(t.name);
    app.add_option("--servers", o.servers, "how many; several, such as 32,64,128")->delimiter(',')->capture_default_str();
    app.add_option("--gpus", o.gpus, "GPUs of a server, its scale-up domain; without it 8, and 72 of gb200");
    app.add_option("--generation", o.generation, "whose published prices: h200 (400 Gbit/s a GPU), gb200 (800)")
        ->check(CLI::IsMember({"h200", "gb200"}))
        ->capture_default_str();
    app.add_option("--baseline", o.baselines,
                   "packet networks to compare with: fat-tree, rail, rail-only (one tier), leaf-spine (two tiers of "
                   "whole switches)")
        ->delimiter(',')
        ->check(CLI::IsMember(baselines))
        ->capture_default_str();
    app.add_option("--technology", o.technologies, "of the optical switches")
        ->delimiter(',')
        ->check(CLI::IsMember(technologies))
        ->capture_default_str();
    app.add_option("--nic-ports", o.nic_ports, "ports of a GPU that circuits join")->capture_default_str();
    app.add_flag("--bidirectional,!--one-way", o.bidirectional,
                 "both directions on one fibre, so on one port of an optical switch (the default); else two");
    app.add_option("--transceivers", o.transceivers, "of a GPU, with circuits")->capture_default_str();
    app.add_option("--switch-transceivers", o.switch_transceivers,
                   "at each port of a packet switch; without it 1, and 0 of gb200, as published");
    app.add_option("--levels", o.levels, "of optical switches; 0: as many as the technology needs")->capture_default_str();
    app.add_option("--prices", o.prices, "TOML file of your own prices; what it does not say stays as published");
}

int cost_command(const CostOptions& o, bool as_json) {
    const Inputs in = inputs_of(o);
    const std::vector<Size> sizes = sizes_of(o, in);
    if (as_json) {
        print_json(o, in, sizes);
        return kExitOk;
    }
    print_inputs(o, in);
    for (const Size& s : sizes) print_size(s);
    print_fabrics(in);
    return kExitOk;
}

}  // namespace opus::job
