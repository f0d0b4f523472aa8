// What a job did, from a recording of it (docs/recording.md), as a workload of one iteration. Pure.
//
// A rank's launches are posted in the order in which they were. Each begins as long after the launch that had ended
// last before it was ready as it did; so what was computed in between takes its time, and what waited for circuits does
// not. First uses are left out: whoever plays a workload connects by himself.
#pragma once

#include <iosfwd>
#include <vector>

#include "tools/replay/workload.h"

namespace opus::replay {

// Of the job that is recorded; of several, the one with the most launches. Every mistake is appended to `errors`, also
// where the recording does not tell what a launch consisted of (observe mode, or an older controller).
Workload read_recording(std::istream& in, std::vector<WorkloadError>& errors);

}  // namespace opus::replay
