// Prices of one's own (docs/opus-sim.md, "Cost and power"): TOML. What a file does not say stays as published.
#pragma once

#include "tools/opus-sim/cost.h"
#include "tools/opus-sim/job_file.h"

namespace opus::cost {

// Throws job::BadFile: line, value, what to do.
Prices read_prices(const job::NamedText& file, Prices published);

}  // namespace opus::cost
