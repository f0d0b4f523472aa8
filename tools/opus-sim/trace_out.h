// A played job as a Chrome JSON trace, for ui.perfetto.dev: ranks and what they launch, ports and where their circuits
// lead, for each variant at one dark time.
#pragma once

#include <iosfwd>

#include "tools/opus-sim/run_job.h"

namespace opus::job {

// Plays the job once more, all of its iterations. The same job gives the same bytes.
void write_run_trace(const JobFile& job, const RunOptions& options, double dark_ms, std::ostream& out);

}  // namespace opus::job
