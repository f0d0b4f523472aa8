// The page of `opus-sim report`: one file of HTML that asks for nothing else, no script, light and dark. Its figures
// are those of run_json, by their place in it. The same run gives the same bytes.
#pragma once

#include <string>

#include "tools/opus-sim/run_json.h"

namespace opus::job {

std::string report_page(const JobFile& job, const Run& run, const RunOptions& options, double accept,
                        const cost::Inputs& priced);

}  // namespace opus::job
