#include "tools/opus-sim/cost_command.h"

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "tools/ctl/table.h"
#include "tools/opus-sim/commands.h"
#include "tools/opus-sim/cost_json.h"
#include "tools/opus-sim/json_out.h"
#include "tools/opus-sim/number_text.h"

namespace opus::job {
namespace {

using nlohmann::json;
using namespace cost;

std::string whole(double value) { return grouped(number_text("%.0f", value)); }

Inputs inputs_of(const CostOptions& o) {
    Inputs in = priced_inputs(o.generation, o.prices);
    in.gpus = o.gpus.value_or(in.gpus);
    in.nic_ports = o.nic_ports, in.levels = o.levels, in.bidirectional = o.bidirectional;
    in.circuit_transceivers = o.transceivers;
    in.port_transceivers = o.switch_transceivers.value_or(in.port_transceivers);
    return in;
}

std::vector<CostSize> sizes_of(const CostOptions& o, const Inputs& common) {
    std::vector<CostSize> sizes;
    for (const std::uint32_t servers : o.servers) {
        CostSize s{common, {}, {}};
        s.inputs.servers = servers;
        for (const std::string& technology : o.technologies) {
            s.inputs.technology = technology;
            if (const std::string wrong = problem_of(s.inputs); !wrong.empty()) throw std::invalid_argument(wrong);
            s.circuits.push_back(circuit_network(s.inputs));
        }
        for (const Baseline b : cost::kBaselines)
            if (std::count(o.baselines.begin(), o.baselines.end(), name_of(b)) != 0)
                s.packets.push_back(packet_network(s.inputs, b));
        sizes.push_back(std::move(s));
    }
    return sizes;
}

void print_json(const Inputs& in, const std::vector<CostSize>& sizes) {
    json all = inputs_json(in);
    all["sizes"] = json::array(), all["fabrics"] = fabrics_json(in);
    for (const CostSize& s : sizes) all["sizes"].push_back(size_json(s));
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

void print_size(const CostSize& s) {
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
        for (std::uint32_t levels = 1; levels <= kCostLevels; ++levels)
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

void price_arguments(CLI::App& app, std::string& generation, std::string& prices) {
    app.add_option("--generation", generation, "whose published prices: h200 (400 Gbit/s a GPU), gb200 (800)")
        ->check(CLI::IsMember({"h200", "gb200"}))
        ->capture_default_str();
    app.add_option("--prices", prices, "TOML file of your own prices; what it does not say stays as published");
}

void cost_arguments(CLI::App& app, CostOptions& o) {
    std::vector<std::string> baselines, technologies;
    for (const Baseline b : cost::kBaselines) baselines.emplace_back(name_of(b));
    for (const Technology& t : kTechnologies)
        if (t.ports != 0) technologies.emplace_back(t.name);
    app.add_option("--servers", o.servers, "how many; several, such as 32,64,128")->delimiter(',')->capture_default_str();
    app.add_option("--gpus", o.gpus, "GPUs of a server, its scale-up domain; without it 8, and 72 of gb200");
    price_arguments(app, o.generation, o.prices);
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
}

int cost_command(const CostOptions& o, bool as_json) {
    const Inputs in = inputs_of(o);
    const std::vector<CostSize> sizes = sizes_of(o, in);
    if (as_json) {
        print_json(in, sizes);
        return kExitOk;
    }
    print_inputs(o, in);
    for (const CostSize& s : sizes) print_size(s);
    print_fabrics(in);
    return kExitOk;
}

}  // namespace opus::job
