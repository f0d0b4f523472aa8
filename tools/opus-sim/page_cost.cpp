// The section on cost and power of a job's network. All its figures are of run_json's "cost".
#include <algorithm>

#include "tools/opus-sim/page_plots.h"
#include "tools/opus-sim/page_sections.h"

namespace opus::job {
namespace {

using nlohmann::json;

// "1.23 M$", for pictures; tables say it whole.
std::string short_text(double value, const char* unit) {
    if (value >= 1e9) return number_text("%.4g G", value / 1e9) + unit;
    if (value >= 1e6) return number_text("%.3g M", value / 1e6) + unit;
    if (value >= 1e3) return number_text("%.3g k", value / 1e3) + unit;
    return number_text("%.3g ", value) + unit;
}

// "circuits, piezo": "piezo".
std::string technology_of(const std::string& network) { return escaped(network.substr(network.rfind(' ') + 1)); }

// A bar a network, a part a term: ports of switches, transceivers at GPUs, transceivers at ports.
std::string network_bars(const json& cost, const char* what, const char* unit, const char* title) {
    std::vector<Bar> bars;
    for (const char* kind : {"packet", "circuits"})
        for (const json& network : cost[kind]) {
            Bar bar{network["name"], {}, short_text(network[what].get<double>(), unit)};
            for (std::size_t i = 0; i < network["terms"].size(); ++i) {
                const json& term = network["terms"][i];
                const double value = term[what].get<double>();
                bar.parts.push_back({value, color(i), term["item"].get<std::string>() + ": " + short_text(value, unit)});
            }
            bars.push_back(std::move(bar));
        }
    return bar_plot(title, bars, 0);
}

std::string networks_table(const PageInput& in) {
    const json& cost = in.figures["/cost"];
    const std::string circuits = cost["circuits"][0]["name"];
    PageTable table({"network", "cost", "power", "cost that circuits save", "power that they save"});
    for (std::size_t i = 0; i < cost["packet"].size(); ++i) {
        const std::string place = "/cost/packet/" + std::to_string(i);
        const auto& ratios = cost["ratios"];
        const auto ratio = std::find_if(ratios.begin(), ratios.end(), [&](const json& r) {
            return r["packet"] == cost["packet"][i]["name"] && r["circuits"] == circuits;
        });
        const std::string saved = "/cost/ratios/" + std::to_string(ratio - ratios.begin());
        table.add({escaped(cost["packet"][i]["name"]), in.figures.figure(place + "/usd", Shown::usd),
                   in.figures.figure(place + "/watts", Shown::watts), in.figures.figure(saved + "/cost_saved", Shown::share),
                   in.figures.figure(saved + "/power_saved", Shown::share)});
    }
    for (std::size_t i = 0; i < cost["circuits"].size(); ++i) {
        const std::string place = "/cost/circuits/" + std::to_string(i);
        table.add({escaped(cost["circuits"][i]["name"]), in.figures.figure(place + "/usd", Shown::usd),
                   in.figures.figure(place + "/watts", Shown::watts), "", ""},
                  i == 0 ? "chosen" : "");
    }
    return table.html("The whole network between nodes; savings are those of circuits of " + technology_of(circuits) +
                      " switches");
}

std::string fabrics_table(const PageInput& in) {
    PageTable table({"technology", "ports of a switch", "one level of switches", "two levels", "three levels"});
    const json& fabrics = in.figures["/cost/fabrics"];
    for (std::size_t i = 0; i < fabrics.size(); ++i) {
        const std::string place = "/cost/fabrics/" + std::to_string(i);
        std::vector<std::string> row{escaped(fabrics[i]["technology"]), in.figures.figure(place + "/ports", Shown::count)};
        for (std::size_t level = 0; level < kCostLevels; ++level)
            row.push_back(in.figures.figure(place + "/gpus_by_levels/" + std::to_string(level), Shown::count));
        table.add(std::move(row));
    }
    return table.html("GPUs that one fabric joins, by technology");
}

std::string device_text(const PageInput& in, const std::string& place, bool ports) {
    return (ports ? in.figures.figure(place + "/ports", Shown::count) + " ports, " : std::string()) +
           in.figures.figure(place + "/usd", Shown::usd) + ", " + in.figures.figure(place + "/watts", Shown::watts);
}

std::string inputs_text(const PageInput& in) {
    const json& optical = in.figures["/cost/prices/optical_switch"];
    std::string text = "<p class=\"soft\">Prices " + escaped(in.figures["/cost/prices/source"]) +
                       ". A packet switch: " + device_text(in, "/cost/prices/packet_switch", true) +
                       ". A transceiver: " + device_text(in, "/cost/prices/transceiver", false) + "; one a GPU, and " +
                       in.figures.figure("/cost/transceivers_per_switch_port", Shown::count) +
                       " at each port of a packet switch. With circuits a GPU has " +
                       in.figures.figure("/cost/transceivers_per_gpu", Shown::count) + " (" +
                       device_text(in, "/cost/prices/circuit_transceiver", false) + ") and takes " +
                       in.figures.figure("/cost/optical_ports_per_gpu", Shown::count) + " ports of an optical switch.";
    for (const auto& [technology, price] : optical.items())
        text += " An optical switch, " + escaped(technology == "others" && optical.size() == 1 ? "any" : technology) +
                ": " + device_text(in, "/cost/prices/optical_switch/" + technology, true) + ".";
    return text + "</p>";
}

}  // namespace

PageSection cost_section(const PageInput& in) {
    if (!in.figures.has("/cost")) return {};
    const json& cost = in.figures["/cost"];
    const bool takes_more = cost["cheapest"]["cost_saved"] < 0 || cost["cheapest"]["power_saved"] < 0;
    std::string text =
        "<p>The network between " + in.figures.figure("/cost/servers", Shown::count) + " nodes of " +
        in.figures.figure("/cost/gpus_per_server", Shown::count) + " GPUs, " +
        in.figures.figure("/cost/nic_ports", Shown::count) + " ports of a GPU joined by circuits. Against <em>" +
        escaped(cost["cheapest"]["packet"]) + "</em>, the cheapest network of packet switches that " +
        (cost["cheapest"]["joins_all"].get<bool>() ? "joins them" : "is counted (no count joins them all)") +
        ", circuits of " + technology_of(cost["cheapest"]["circuits"]) + " switches save " +
        in.figures.figure("/cost/cheapest/cost_saved", Shown::share) + " of the cost and " +
        in.figures.figure("/cost/cheapest/power_saved", Shown::share) + " of the power" +
        (takes_more ? " (less than 0 %: they take more)" : "") + ".</p>";
    const auto plot = [&](const char* what, const char* unit, const char* title) {
        return "<h3>" + std::string(title) + "</h3>" + network_bars(cost, what, unit, title);
    };
    text += "<figure>" + plot("usd", "$", "Cost") + plot("watts", "W", "Power") +
            legend({{"ports of switches", color(std::size_t{0})},
                    {"transceivers at GPUs", color(1)},
                    {"transceivers at ports of switches", color(2)}}) +
            "<figcaption>A port costs and draws its share of its switch.</figcaption></figure>" + networks_table(in);
    std::string notes;
    for (const char* kind : {"packet", "circuits"})
        for (const json& network : cost[kind])
            for (const json& note : network["notes"]) notes += "<li>" + escaped(note) + "</li>";
    if (!notes.empty()) text += "<ul class=\"soft\">" + notes + "</ul>";
    text += fabrics_table(in) + inputs_text(in) +
            "<p class=\"soft\">Controllers, cables, a packet network beside the circuits, and what a longer iteration "
            "costs are in "
            "none of the sums.</p>";
    return {"cost", "Cost and power", text};
}

}  // namespace opus::job
