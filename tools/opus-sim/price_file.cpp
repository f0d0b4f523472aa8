#include "tools/opus-sim/price_file.h"

#include <cmath>
#include <cstdio>

#include "controller/fabric/spelling.h"
#include "tools/opus-sim/checked_toml.h"

namespace opus::cost {
namespace {

constexpr double kMost = 1e9;

class PriceReader {
public:
    explicit PriceReader(const std::string& file) : file_(file) {}

    Prices read(const toml::table& root, Prices prices) {
        const std::vector<std::string> known{"name", "packet_switch", "transceiver", "circuit_transceiver",
                                             "optical_switch"};
        prices.source = file_;
        bool own_optics = false;
        for (const auto& [key, node] : root) {
            const std::string name(key.str());
            if (name == "name")
                prices.source = text(node) + " (" + file_ + ")";
            else if (name == "packet_switch")
                device(node, name, prices.packet_switch);
            else if (name == "transceiver")
                device(node, name, prices.transceiver);
            else if (name == "circuit_transceiver")
                own_optics = true;
            else if (name == "optical_switch")
                optical(node, prices);
            else
                unknown(node, "", name, known);
        }
        // Of what is not said about it the packet network's says it, wherever in the file that stands.
        prices.circuit_transceiver = prices.transceiver;
        if (own_optics) device(*root.get("circuit_transceiver"), "circuit_transceiver", prices.circuit_transceiver);
        return prices;
    }

private:
    const std::string& file_;

    [[noreturn]] void fail(const toml::node& at, const std::string& text) const {
        throw job::BadFile(file_, job::line_of(at), text);
    }
    [[noreturn]] void unknown(const toml::node& at, const std::string& within, const std::string& word,
                              const std::vector<std::string>& known) const {
        fail(at, within + "unknown key '" + word + "'" + fabric::suggestion(word, known));
    }
    std::string text(const toml::node& node) const {
        if (!node.is_string()) fail(node, "name must be text, such as \"quote of October\"");
        return node.as_string()->get();
    }
    const toml::table& table(const toml::node& node, const std::string& name) const {
        if (!node.is_table()) fail(node, name + " must be a table: [" + name + "], then usd = and watts =");
        return *node.as_table();
    }
    // One of the three numbers of a device; false for another key.
    bool number(const toml::node& node, const std::string& within, const std::string& key, Device& d) const {
        double* const to = key == "ports" ? &d.ports : key == "usd" ? &d.usd : key == "watts" ? &d.watts : nullptr;
        if (to == nullptr) return false;
        const auto value = node.value<double>();
        if (!value || !node.is_number()) fail(node, within + ": " + key + " must be a number");
        const double least = key == "ports" ? 1 : 0;
        if (!std::isfinite(*value) || *value < least || *value > kMost || (key == "ports" && *value != std::floor(*value))) {
            char range[96];
            std::snprintf(range, sizeof range, "%.15g must be %s from %g to %g", *value,
                          key == "ports" ? "a whole number" : "a number", least, kMost);
            fail(node, within + ": " + key + ": " + range);
        }
        *to = *value;
        return true;
    }
    void device(const toml::node& node, const std::string& name, Device& d) const {
        for (const auto& [key, value] : table(node, name))
            if (!number(value, name, std::string(key.str()), d))
                unknown(value, name + ": ", std::string(key.str()), {"ports", "usd", "watts"});
    }
    void optical(const toml::node& node, Prices& prices) const {
        std::vector<std::string> known{"ports", "usd", "watts"};
        for (const Technology& t : kTechnologies)
            if (t.ports != 0) known.emplace_back(t.name);
        const toml::table& all = table(node, "optical_switch");
        // What a technology does not say is as for all, wherever in the table that stands.
        for (const auto& [key, value] : all)
            if (!number(value, "optical_switch", std::string(key.str()), prices.optical_switch) && !value.is_table())
                unknown(value, "optical_switch: ", std::string(key.str()), known);
        for (const auto& [key, value] : all) {
            if (!value.is_table()) continue;
            const std::string name(key.str());
            const Technology* t = find_technology(name);
            if (t == nullptr || t->ports == 0) unknown(value, "optical_switch: ", name, known);
            Device d = prices.optical_switch;
            device(value, "optical_switch." + name, d);
            prices.optical_switches[name] = d;
        }
    }
};

}  // namespace

// None but a comment or the name holds what is outside ASCII.
Prices read_prices(const job::NamedText& file, Prices published) {
    return PriceReader(file.name).read(job::parse_toml(file), std::move(published));
}

}  // namespace opus::cost
