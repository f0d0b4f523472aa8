#include "tools/ctl/fabric_commands.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "controller/fabric/fabric_file.h"
#include "controller/fabric/fabric_make.h"
#include "opus/switch_driver.h"
#include "opus/technology.h"
#include "tools/ctl/exit_code.h"

namespace opus::ctl {
namespace {

using nlohmann::json;

json as_json(const std::vector<FabricError>& errors) {
    json list = json::array();
    for (const auto& e : errors) list.push_back({{"line", e.line}, {"column", e.column}, {"text", e.text}});
    return list;
}

int check(const std::string& path, bool json_output) {
    const auto load = fabric::read_fabric(path, switch_driver_names());
    if (json_output) {
        std::printf(
            "%s\n",
            json({{"ok", load.fabric.has_value()}, {"errors", as_json(load.errors)}, {"warnings", as_json(load.warnings)}})
                .dump(2, ' ', false, json::error_handler_t::replace)
                .c_str());
    } else {
        for (const auto& error : load.errors) std::printf("%s\n", fabric::error_line(path, error).c_str());
        for (const auto& warning : load.warnings)
            std::printf("%s (warning)\n", fabric::error_line(path, warning).c_str());
        if (load.fabric)
            std::printf("%s: good: %zu nodes, %zu GPUs, %zu ports, %zu rails, %zu switches\n", path.c_str(),
                        load.fabric->nodes.size(), load.fabric->gpus.size(), load.fabric->ports.size(),
                        load.fabric->rails.size(), load.fabric->switches.size());
        else
            std::printf("%s: %zu %s\n", path.c_str(), load.errors.size(), load.errors.size() == 1 ? "mistake" : "mistakes");
    }
    return load.fabric ? kOk : kNo;
}

int make(const fabric::FabricPlan& plan, const std::string& output) {
    const auto made = fabric::make_fabric(plan);
    if (const auto* wrong = std::get_if<std::string>(&made)) {
        std::fprintf(stderr, "opus-ctl: %s\n", wrong->c_str());
        return kUsage;
    }
    const std::string& toml = std::get<fabric::FabricText>(made).toml;
    if (output.empty() || output == "-") return std::fputs(toml.c_str(), stdout) < 0 ? kNo : kOk;
    std::ofstream file(output, std::ios::trunc);
    file << toml;
    if (file.flush()) return kOk;
    std::fprintf(stderr, "opus-ctl: cannot write %s: %s\n", output.c_str(), std::strerror(errno));
    return kNo;
}

std::vector<std::string> technology_names() {
    std::vector<std::string> names;
    for (const Technology& t : kTechnologies) names.emplace_back(t.name);
    return names;
}

void add_make(CLI::App& fabric, std::function<int()>& chosen) {
    auto* command = fabric.add_subcommand(
        "make", "write the fabric file of a regular cluster: one rail, with one switch, for each GPU of a node");
    const auto plan = std::make_shared<fabric::FabricPlan>();
    const auto output = std::make_shared<std::string>();
    command->add_option("--nodes", plan->nodes, "nodes")->capture_default_str();
    command->add_option("--gpus", plan->gpus, "GPUs of a node")->capture_default_str();
    command->add_option("--ports", plan->ports, "ports of a GPU: 1, 2 or 4")->capture_default_str();
    command->add_option("--domain", plan->domain, "hosts of an NVLink domain, as of NVL72; default: NVLink ends at the host");
    command->add_flag("--two-sided", plan->two_sided,
                      "switches with an ingress and an egress side; even ports go in, odd ones come out");
    command->add_option("--size", plan->size, "ports of a switch; default: just enough");
    command->add_option("--technology", plan->technology, "switch technology; gives the dark time")
        ->check(CLI::IsMember(technology_names()))
        ->capture_default_str();
    command->add_option("--dark-ms", plan->dark_ms, "dark time, instead of the technology's")->check(CLI::Range(0.0, 3'600'000.0));
    command->add_option("--guard-ms", plan->guard_ms, "added after the dark time with --settle time")
        ->check(CLI::Range(0.0, 3'600'000.0));
    command->add_option("--settle", plan->settle, "how the driver knows that light passes: power or time")
        ->check(CLI::IsMember({"power", "time"}));
    command->add_option("--driver", plan->driver, "protocol of the switches")
        ->check(CLI::IsMember(switch_driver_names()))
        ->capture_default_str();
    command
        ->add_option("--address", plan->addresses,
                     "host:port of the switches: one for each rail, or one whose port counts up")
        ->delimiter(',');
    command->add_option("--name", plan->name, "name of the fabric")->capture_default_str();
    command->add_option("--node-prefix", plan->node_prefix, "nodes are called PREFIX0, PREFIX1, ...")->capture_default_str();
    command->add_option("-o,--output", *output, "file to write; default: standard output");
    command->callback([plan, output, &chosen] { chosen = [plan, output] { return make(*plan, *output); }; });
}

}  // namespace

void add_fabric_commands(CLI::App& app, bool& json_output, std::function<int()>& chosen) {
    auto* fabric = app.add_subcommand("fabric", "check or make a fabric file; needs no controller");
    fabric->require_subcommand(1);
    auto* command = fabric->add_subcommand("check", "find every mistake of a fabric file; exit code 1 if there is one");
    const auto path = std::make_shared<std::string>();
    command->add_option("FILE", *path, "fabric description (TOML)")->required()->envname("OPUS_FABRIC");
    command->callback(
        [path, &json_output, &chosen] { chosen = [path, &json_output] { return check(*path, json_output); }; });
    add_make(*fabric, chosen);
}

}  // namespace opus::ctl
