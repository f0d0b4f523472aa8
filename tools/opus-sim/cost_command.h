// `opus-sim cost`: arguments in, tables or JSON out.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace opus::job {

struct CostOptions {
    std::vector<std::uint32_t> servers{256};
    std::optional<std::uint32_t> gpus;  // of a server; what the generation has
    std::string generation = "h200", prices;
    std::vector<std::string> baselines{"fat-tree", "rail", "rail-only", "leaf-spine"}, technologies{"piezo"};
    std::uint32_t nic_ports = 2, levels = 1;
    bool bidirectional = true;
    double transceivers = 1;
    std::optional<double> switch_transceivers;  // at a port of a packet switch; what the generation has
};

// --generation and --prices, which `run` and `report` have, too.
void price_arguments(CLI::App& app, std::string& generation, std::string& prices);
void cost_arguments(CLI::App& app, CostOptions& options);
// Throws std::invalid_argument, BadFile.
int cost_command(const CostOptions& options, bool json);

}  // namespace opus::job
