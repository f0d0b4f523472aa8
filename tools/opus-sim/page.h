// The page of `opus-sim report`: one file of HTML that asks for nothing else, no script, light and dark. Its figures
// are those of run_json, by their place in it. The same run gives the same bytes.
#pragma once

#include <string>
#include <vector>

#include "tools/opus-sim/run_json.h"

namespace opus::job {

struct PageSection {
    std::string id, title;  // of the anchor; for people
    std::string html;
};

// `more`: sections of others, put behind the technologies, such as cost and power.
std::string report_page(const JobFile& job, const Run& run, const RunOptions& options, double accept,
                        const std::vector<PageSection>& more);

}  // namespace opus::job
