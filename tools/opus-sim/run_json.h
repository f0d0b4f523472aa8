// What was played, for programs: `opus-sim run --json` and the data of a report's page.
#pragma once

#include <nlohmann/json.hpp>

#include "tools/opus-sim/cost_json.h"

namespace opus::job {

// `priced`: prices, and what else a network's cost follows from; its size is the job's.
nlohmann::json run_json(const JobFile& job, const Run& run, const RunOptions& options, double accept,
                        const cost::Inputs& priced);

}  // namespace opus::job
