// The sections of a report's page, each with its title. Empty where there is nothing to show.
#pragma once

#include "tools/opus-sim/page.h"
#include "tools/opus-sim/page_figures.h"

namespace opus::job {

struct PageSection {
    std::string id, title;  // of the anchor; for people
    std::string html;
};

struct PageInput {
    const JobFile& job;
    const Run& run;
    const RunOptions& options;
    double accept;
    const Conclusion& conclusion;
    const PageFigures& figures;
};

PageSection times_section(const PageInput& in);
PageSection technologies_section(const PageInput& in);
PageSection ports_section(const PageInput& in);
PageSection cost_section(const PageInput& in);
PageSection timeline_section(const PageInput& in);
PageSection windows_section(const PageInput& in);
PageSection way_section(const PageInput& in);
PageSection dark_section(const PageInput& in);
PageSection load_section(const PageInput& in);
PageSection basis_section(const PageInput& in);

}  // namespace opus::job
