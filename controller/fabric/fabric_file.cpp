// See fabric_file.h. Nothing is thrown on purpose; toml++ itself throws on bad syntax and that is caught at once.
#include "controller/fabric/fabric_file.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "controller/fabric/fabric_items.h"
#include "controller/fabric/spelling.h"
#include "opus/gpu_identity.h"
#include "opus/steering.h"
#include "opus/technology.h"

namespace opus::fabric {
namespace {

constexpr std::uint32_t kMaxSwitchPorts = 65'536;
constexpr double kMostGbps = 10'000;

PciAddress pci_of(const Gpu& gpu) { return parse_pci(gpu.pci.data(), gpu.pci.size()); }

class FabricReader : FabricItems {
public:
    explicit FabricReader(const std::vector<std::string>& drivers) : drivers_(drivers) {}
    FabricLoad read(const toml::table& root);

private:
    const std::vector<std::string>& drivers_;
    Fabric fabric_;
    Places switches_, rails_, nodes_, addresses_, domains_;
    std::map<std::pair<SwitchIndex, SwitchPort>, std::string> cables_;  // -> port name
    std::map<std::array<std::uint8_t, 16>, GpuId> uuids_;

    void read_switch(Item item);
    void read_size(const Item& item, Switch& s);
    void read_timing(const Item& item, Switch& s);
    void read_rail(Item item);
    void read_node(Item item);
    void read_domain(const Item& item, NodeIndex node);
    void read_gpu(const Item& item, NodeIndex node);
    void read_identity(const Item& item, GpuId id, Gpu& gpu);
    void read_cable(const toml::node& cable, GpuId gpu);
    static std::string counts(const Node& node, const Node& other);
    void judge_whole(const toml::table& root);
};

void FabricReader::read_size(const Item& item, Switch& s) {
    const toml::node* node = need(item, "size", "its number of ports (32), or \"16x16\" for ingress x egress");
    if (!node) return;
    if (const auto* number = node->as_integer()) {
        if (number->get() < 2 || number->get() > kMaxSwitchPorts)
            return wrong(*node, item.called + ": size " + std::to_string(number->get()) + " must be 2 to 65536 ports");
        s.ingress = static_cast<std::uint32_t>(number->get());
        return;
    }
    const auto* sides = node->as_string();
    if (!sides)
        return wrong(*node, item.called + ": size is " + type_name(*node) + ", must be a whole number or \"16x16\"");
    const std::string_view text = sides->get();
    const auto x = text.find('x');
    std::uint32_t in = 0, out = 0;
    if (x == std::string_view::npos || !whole_number(text.substr(0, x), in) || !whole_number(text.substr(x + 1), out) ||
        in == 0 || out == 0 || in > kMaxSwitchPorts || out > kMaxSwitchPorts)
        return wrong(*node, item.called + ": size " + in_quotes(text) +
                                " must be like 32 (any to any) or \"16x16\" (ingress x egress)");
    s.sidedness = Sidedness::two_sided;
    s.ingress = in;
    s.egress = out;
}

void FabricReader::read_timing(const Item& item, Switch& s) {
    const Technology* technology = nullptr;
    std::vector<std::string> known;
    for (const Technology& t : kTechnologies) known.emplace_back(t.name);
    if (text(item, "technology", "a technology", s.technology, false)) {
        technology = find_technology(s.technology);
        if (!technology)
            wrong(*item.table.get("technology"),
                  item.called + ": unknown technology " + in_quotes(s.technology) + suggestion(s.technology, known));
        else if (technology->ports != 0 && s.size() > technology->ports)
            warn(*item.table.get("technology"), item.called + ": " + std::to_string(s.size()) +
                                                    " ports, and the largest known " + s.technology + " switch has " +
                                                    std::to_string(technology->ports));
    }
    if (!milliseconds(item, "dark_ms", s.dark_ns)) {
        if (technology)
            s.dark_ns = technology->dark_ns;
        else if (!item.table.get("technology") && !item.table.get("dark_ms"))
            wrong(item.table, item.called + " has neither technology nor dark_ms: add technology = \"piezo\", say");
    }
    std::string settle;
    if (text(item, "settle", "\"power\" or \"time\"", settle, false)) {
        if (settle == "time")
            s.settle = Settle::time;
        else if (settle != "power")
            wrong(*item.table.get("settle"),
                  item.called + ": settle " + in_quotes(settle) + " must be \"power\" or \"time\"");
    }
    if (!milliseconds(item, "guard_ms", s.guard_ns) && s.settle == Settle::time) s.guard_ns = 30'000'000;
}

void FabricReader::read_switch(Item item) {
    Switch s;
    name(item, s.name, static_cast<std::uint32_t>(fabric_.switches.size()), switches_);
    only(item, {"name", "driver", "address", "size", "technology", "dark_ms", "guard_ms", "settle"});
    if (text(item, "driver", "the protocol it is driven by", s.driver) && !drivers_.empty() &&
        std::find(drivers_.begin(), drivers_.end(), s.driver) == drivers_.end())
        wrong(*item.table.get("driver"),
              item.called + ": unknown driver " + in_quotes(s.driver) + suggestion(s.driver, drivers_));
    if (text(item, "address", "host:port", s.address)) {
        const toml::node& node = *item.table.get("address");
        if (!is_address(s.address)) {
            wrong(node, item.called + ": address " + in_quotes(s.address) +
                            " must be host:port, like 192.0.2.7:5025 or [2001:db8::7]:5025");
        } else {
            const auto [place, fresh] =
                addresses_.try_emplace(s.address, Place{static_cast<std::uint32_t>(fabric_.switches.size())});
            if (!fresh)
                wrong(node, item.called + ": address " + s.address + " is that of " +
                                fabric_.switches[place->second.index].name + " already");
        }
    }
    read_size(item, s);
    read_timing(item, s);
    fabric_.switches.push_back(std::move(s));
}

void FabricReader::read_rail(Item item) {
    Rail rail;
    name(item, rail.name, static_cast<std::uint32_t>(fabric_.rails.size()), rails_);
    only(item, {"name", "switches", "gbps"});
    if (const toml::node* node = item.table.get("gbps")) {
        const auto number = node->value<double>();
        if (!number || !(*number > 0) || *number > kMostGbps)
            wrong(*node, item.called + ": gbps must be what one port carries, more than 0 and at most 10000 Gbit/s");
        else
            rail.gbps = *number;
    }
    if (const toml::node* node = need(item, "switches", "a list of switch names")) {
        const toml::array* list = node->as_array();
        if (!list)
            wrong(*node, item.called + ": switches is " + type_name(*node) + ", must be a list of switch names");
        else if (list->empty())
            wrong(*node, item.called + ": switches is empty: a rail needs at least one");
        for (std::size_t i = 0; list && i < list->size(); ++i) {
            const toml::node& element = *list->get(i);
            const auto* word = element.as_string();
            if (!word) {
                wrong(element, item.called + ": switches holds " + type_name(element) + ", must hold switch names");
                continue;
            }
            const auto place = switches_.find(word->get());
            std::vector<std::string> known;
            for (const auto& [known_name, unused] : switches_) known.push_back(known_name);
            if (place == switches_.end())
                wrong(element, item.called + ": unknown switch " + in_quotes(word->get()) + suggestion(word->get(), known));
            else if (std::count(rail.switches.begin(), rail.switches.end(), place->second.index))
                wrong(element, item.called + ": switch " + word->get() + " is listed twice");
            else
                rail.switches.push_back(place->second.index);
        }
    }
    fabric_.rails.push_back(std::move(rail));
}

void FabricReader::read_node(Item item) {
    Node node;
    const auto index = static_cast<NodeIndex>(fabric_.nodes.size());
    if (!name(item, node.name, index, nodes_) && node.name.empty()) node.name = "node " + std::to_string(index);
    item.called = node.name;
    only(item, {"name", "domain", "gpu"});
    fabric_.nodes.push_back(std::move(node));
    read_domain(item, index);
    const auto gpus = tables(item, "gpu", "node.gpu");
    if (gpus.size() > steering::kMaxGpus)
        wrong(item.table, item.called + " has " + std::to_string(gpus.size()) + " GPUs, at most " +
                              std::to_string(steering::kMaxGpus) + " are served");
    for (const Item& gpu : gpus) read_gpu(gpu, index);
}

// Hosts of one NVLink domain are named alike; it is known by the first of them.
void FabricReader::read_domain(const Item& item, NodeIndex node) {
    std::string domain;
    if (!text(item, "domain", "the name of an NVLink domain", domain, false)) return;
    const toml::node& at = *item.table.get("domain");
    if (!is_name(domain)) return wrong(at, item.called + ": domain " + in_quotes(domain) + kNameRule);
    const auto place = domains_.try_emplace(domain, Place{node, at.source().begin.line}).first;
    fabric_.nodes[node].domain = place->second.index;
}

// What its GPU is known by on its host. No two GPUs of a node have one PCI address, none at all one UUID.
void FabricReader::read_identity(const Item& item, GpuId id, Gpu& gpu) {
    const auto own = [&](const toml::node& node, const char* what, const std::string& value, const Gpu& other) {
        wrong(node, gpu.name + ": " + what + " " + value + " is that of " + other.name + " already");
    };
    if (text(item, "pci", "a PCI address", gpu.pci, false)) {
        const toml::node& node = *item.table.get("pci");
        const PciAddress pci = pci_of(gpu);
        if (pci == 0) wrong(node, gpu.name + ": pci " + in_quotes(gpu.pci) + " must be like 0000:17:00.0");
        for (const GpuId other : fabric_.nodes[gpu.node].gpus)
            if (other != id && pci != 0 && pci_of(fabric_.gpus[other]) == pci)
                own(node, "pci", gpu.pci, fabric_.gpus[other]);
    }
    if (text(item, "uuid", "a UUID", gpu.uuid, false)) {
        const toml::node& node = *item.table.get("uuid");
        const GpuUuid uuid = parse_uuid(gpu.uuid.data(), gpu.uuid.size());
        if (!uuid.known())
            wrong(node, gpu.name + ": uuid " + in_quotes(gpu.uuid) +
                            " must be as nvidia-smi -L prints it, GPU-8932f937-d72c-4106-c12f-20bd9faed9f6");
        const auto [other, fresh] = uuids_.try_emplace(std::to_array(uuid.bytes), id);
        if (uuid.known() && !fresh) own(node, "uuid", gpu.uuid, fabric_.gpus[other->second]);
    }
}

void FabricReader::read_gpu(const Item& table, NodeIndex node) {
    const auto id = static_cast<GpuId>(fabric_.gpus.size());
    Gpu gpu;
    gpu.node = node;
    gpu.local = static_cast<std::uint32_t>(fabric_.nodes[node].gpus.size());
    gpu.name = fabric_.nodes[node].name + ".g" + std::to_string(gpu.local);
    fabric_.nodes[node].gpus.push_back(id);
    const Item item{table.table, gpu.name};
    only(item, {"rail", "ports", "pci", "uuid"});

    if (const toml::node* rail = item.table.get("rail"); rail && rail->is_array()) {
        wrong(*rail, gpu.name + " is on " + std::to_string(rail->as_array()->size()) + " rails: a GPU is on one");
    } else if (std::string word; text(item, "rail", "a rail's name", word)) {
        const auto place = rails_.find(word);
        std::vector<std::string> known;
        for (const auto& [known_name, unused] : rails_) known.push_back(known_name);
        if (place == rails_.end()) {
            wrong(*rail, gpu.name + ": unknown rail " + in_quotes(word) + suggestion(word, known));
        } else {
            gpu.rail = place->second.index;
            fabric_.rails[gpu.rail].gpus.push_back(id);
            for (NodeIndex other = 0; other < node; ++other) {
                const auto& gpus = fabric_.nodes[other].gpus;
                if (gpu.local >= gpus.size() || fabric_.gpus[gpus[gpu.local]].rail == kNone) continue;
                const Gpu& first = fabric_.gpus[gpus[gpu.local]];
                if (first.rail != gpu.rail)
                    wrong(*rail, gpu.name + " is on rail " + word + " but " + first.name + " on rail " +
                                     fabric_.rails[first.rail].name + ": GPUs of one local index share a rail");
                break;
            }
        }
    }
    read_identity(item, id, gpu);
    fabric_.gpus.push_back(std::move(gpu));

    const toml::node* ports = need(item, "ports", "its cables, [\"switch:port\", ...]");
    if (!ports) return;
    const toml::array* list = ports->as_array();
    if (!list)
        return wrong(*ports, item.called + ": ports is " + type_name(*ports) +
                                 ", must be a list like [\"ocs-r0:1\", \"ocs-r0:2\"]");
    if (list->size() != 1 && list->size() != 2 && list->size() != 4)
        wrong(*ports, item.called + " has " + std::to_string(list->size()) + " ports: a GPU has 1, 2 or 4");
    for (const toml::node& cable : *list) read_cable(cable, id);
}

void FabricReader::read_cable(const toml::node& cable, GpuId gpu_id) {
    Gpu& gpu = fabric_.gpus[gpu_id];
    Port port;
    port.gpu = gpu_id;
    port.index = static_cast<std::uint32_t>(gpu.ports.size());
    port.name = gpu.name + ".p" + std::to_string(port.index);
    gpu.ports.push_back(static_cast<PortId>(fabric_.ports.size()));
    fabric_.ports.push_back(port);

    const auto* string = cable.as_string();
    if (!string) return wrong(cable, port.name + " is " + type_name(cable) + ", must be \"switch:port\"");
    const std::string_view text = string->get();
    const auto colon = text.rfind(':');
    std::uint32_t number = 0;
    if (colon == std::string_view::npos || colon == 0 || !whole_number(text.substr(colon + 1), number))
        return wrong(cable, port.name + ": cable " + in_quotes(text) + " must be \"switch:port\", like \"ocs-r0:1\"");
    const std::string_view switch_name = text.substr(0, colon);
    const auto place = switches_.find(switch_name);
    if (place == switches_.end()) {
        std::vector<std::string> known;
        for (const auto& [known_name, unused] : switches_) known.push_back(known_name);
        return wrong(cable, port.name + ": unknown switch " + in_quotes(switch_name) + suggestion(switch_name, known));
    }
    const SwitchIndex sw = place->second.index;
    const Switch& s = fabric_.switches[sw];
    fabric_.ports.back().sw = sw;
    fabric_.ports.back().sw_port = number;
    if (s.size() != 0 && (number < 1 || number > s.size()))
        wrong(cable, port.name + ": " + s.name + " has ports 1 to " + std::to_string(s.size()) + ", not " +
                         std::to_string(number));
    const auto [other, fresh] = cables_.try_emplace({sw, number}, port.name);
    if (!fresh)
        wrong(cable, "port " + std::to_string(number) + " of " + s.name + " is cabled twice (" + other->second +
                         " and " + port.name + ")");
    if (gpu.rail != kNone) {
        const Rail& rail = fabric_.rails[gpu.rail];
        if (!std::count(rail.switches.begin(), rail.switches.end(), sw))
            wrong(cable, port.name + " is cabled to " + s.name + ", which is not a switch of its rail " + rail.name);
    }
}

std::string FabricReader::counts(const Node& node, const Node& other) {
    return node.name + " has " + std::to_string(node.gpus.size()) + " GPUs, " + other.name + " has " +
           std::to_string(other.gpus.size());
}

// What only the whole file shows.
void FabricReader::judge_whole(const toml::table& root) {
    std::vector<int> sides(fabric_.switches.size() * 2), used(fabric_.switches.size());
    for (const Rail& rail : fabric_.rails)
        for (const SwitchIndex sw : rail.switches) used[sw] = 1;
    for (const Port& port : fabric_.ports)
        if (port.sw != kNone) ++sides[port.sw * 2 + (port.sw_port > fabric_.switches[port.sw].ingress ? 1 : 0)];
    for (SwitchIndex sw = 0; sw < fabric_.switches.size(); ++sw) {
        const Switch& s = fabric_.switches[sw];
        const auto place = switches_.find(s.name);
        const std::uint32_t line = place == switches_.end() ? 0 : place->second.line;
        if (!used[sw]) warn(line, s.name + " belongs to no rail");
        const std::size_t side = std::size_t{sw} * 2;
        const int in = sides[side], out = sides[side + 1];
        if (s.sidedness == Sidedness::two_sided && in + out > 0 && (in == 0 || out == 0))
            warn(line, s.name + " is cabled on its " + (out == 0 ? "ingress" : "egress") +
                           " side only: it can make no circuit");
    }
    const toml::array* nodes = root["node"].as_array();
    for (std::size_t n = 1; nodes && n < fabric_.nodes.size() && n < nodes->size(); ++n) {
        const Node &first = fabric_.nodes[0], &node = fabric_.nodes[n];
        if (node.domain != kNone && node.gpus.size() != fabric_.nodes[node.domain].gpus.size())
            wrong(*nodes->get(n), counts(node, fabric_.nodes[node.domain]) + ": hosts of one NVLink domain have equally many");
        else if (node.gpus.size() != first.gpus.size())
            warn(*nodes->get(n), counts(node, first));
        if ((node.domain == kNone) != (first.domain == kNone))
            warn(*nodes->get(n), (node.domain == kNone ? node : first).name + " has no domain, " +
                                     (node.domain == kNone ? first : node).name +
                                     " has: in communicators of both NCCL counts hosts, not domains");
    }
}

FabricLoad FabricReader::read(const toml::table& root) {
    const Item file{root, "the file"};
    only(file, {"version", "name", "switch", "rail", "node"});
    if (const toml::node* version = need(file, "version", "version = 1")) {
        const auto* number = version->as_integer();
        if (!number || number->get() != 1)
            wrong(*version, "version must be 1: this program reads fabric files of version 1");
    }
    text(file, "name", "text", fabric_.name, false);
    for (Item& item : tables(file, "switch", "switch")) read_switch(item);
    for (Item& item : tables(file, "rail", "rail")) read_rail(item);
    for (Item& item : tables(file, "node", "node")) read_node(item);
    judge_whole(root);

    FabricLoad load;
    load.errors = errors();
    load.warnings = warnings();
    if (load.errors.empty()) load.fabric = std::move(fabric_);
    return load;
}

}  // namespace

FabricLoad parse_fabric(std::string_view toml, const std::vector<std::string>& drivers) {
    std::string ascii(toml);
    if (const auto stray = to_ascii(ascii)) {
        FabricLoad load;
        load.errors.push_back(*stray);
        return load;
    }
    try {
        return FabricReader(drivers).read(toml::parse(ascii));
    } catch (const toml::parse_error& error) {
        FabricLoad load;
        const auto& begin = error.source().begin;
        load.errors.push_back({begin.line, begin.column, std::string(error.description())});
        return load;
    } catch (const std::logic_error& error) {
        FabricLoad load;
        load.errors.push_back({0, 0, error.what()});
        return load;
    }
}

FabricLoad read_fabric(const std::string& path, const std::vector<std::string>& drivers) {
    std::ifstream file(path, std::ios::binary);
    std::stringstream text;
    if (file) text << file.rdbuf();
    std::error_code unused;
    const bool is_directory = std::filesystem::is_directory(path, unused);
    if (!file || file.bad() || is_directory) {
        FabricLoad load;
        load.errors.push_back({0, 0, std::string("cannot be read: ") + std::strerror(is_directory ? EISDIR : errno)});
        return load;
    }
    return parse_fabric(text.str(), drivers);
}

}  // namespace opus::fabric
