// The recordings of a job's nodes, joined to one. Pure.
//
// Communicators are known by their ids, which are the same on all nodes; clocks by the ends of collectives, which are
// the same moment, but for some microseconds, on all of their members.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tools/opus-sim/job_file.h"
#include "tools/replay/recorded.h"

namespace opus::job {

struct NamedRecording {
    std::string file;
    replay::Recording recording;
};

// How far the clock of a file is ahead of the first one's.
struct ClockOffset {
    std::int64_t ahead_ns = 0;
    std::int64_t spread_ns = 0;    // half of what it was estimated from lies within so much of it
    std::uint64_t operations = 0;  // that it was estimated from; 0: none joins it to the others
    std::int64_t beyond_ns = 0;  // by so much an operation would have ended before a member had begun: the clocks drift
};

// One for each. Transfers tell where no collective does.
std::vector<ClockOffset> align_clocks(const std::vector<NamedRecording>& files);

// All as one, by the clock of the first. What is left out, filled in or assumed is told in `assumed`. Throws BadFile.
NamedRecording join_recordings(std::vector<NamedRecording> files, const ReadOptions& options,
                               std::vector<std::string>& assumed);

// The job of one or several files. Throws BadFile.
JobFile read_recorded(const std::vector<NamedText>& files, const ReadOptions& options);

}  // namespace opus::job
