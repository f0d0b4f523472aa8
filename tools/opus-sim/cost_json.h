// Cost and power for programs: what `opus-sim cost --json` prints, and of a job's own network what `run --json` and a report's page have.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/opus-sim/advice.h"
#include "tools/opus-sim/cost.h"

namespace opus::job {

inline constexpr std::uint32_t kCostLevels = 3;  // of optical switches, that fabrics are shown with

// One size: all packet networks, then all circuits.
struct CostSize {
    cost::Inputs inputs;
    std::vector<cost::Network> packets, circuits;
};

// A generation's published inputs, with the prices of a file, if one is named. Throws BadFile.
cost::Inputs priced_inputs(const std::string& generation, const std::string& prices);

nlohmann::json inputs_json(const cost::Inputs& inputs);
nlohmann::json size_json(const CostSize& size);
nlohmann::json fabrics_json(const cost::Inputs& inputs);

// Of the network of a job, as it was played: its nodes, the GPUs of one, its ports; with the technology that the conclusion
// speaks of, with piezo, and with those that have a price of their own. Null where there is no network between nodes.
nlohmann::json job_cost_json(const JobFile& job, const Run& run, const RunOptions& options,
                             const Conclusion& conclusion, const cost::Inputs& priced);

}  // namespace opus::job
