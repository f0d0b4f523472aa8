// What was played, for programs: `opus-sim run --json` and the data of a report's page.
#pragma once

#include <nlohmann/json.hpp>

#include "tools/opus-sim/advice.h"

namespace opus::job {

nlohmann::json run_json(const JobFile& job, const Run& run, const RunOptions& options, double accept);

}  // namespace opus::job
