// What a job did, from recordings of it (docs/recording.md), as a workload of one iteration. Pure.
//
// A rank's launches are posted in the order in which they were. Each begins as long after the launch that had ended
// last before it was ready as it did; so what was computed in between takes its time, and what waited for circuits does
// not. First uses are left out: whoever plays a workload connects by himself.
#pragma once

#include <compare>
#include <cstdint>
#include <iosfwd>
#include <map>
#include <string>
#include <vector>

#include "tools/replay/workload.h"

namespace opus::replay {

// What is in the lines of a recording, as far as a workload is made of it.
struct Recording {
    // What members of a group meet at: the n-th collective, or the n-th transfer of a pair (ranks in the group).
    struct Meeting {
        std::uint32_t group = 0;
        bool transfer = false;
        std::uint32_t from = 0, to = 0;
        std::uint64_t n = 0;
        auto operator<=>(const Meeting&) const = default;
    };
    struct Operation {
        Meeting first;
        std::uint64_t count = 1;  // so many meetings, from the first on
        StepKind kind{};
        std::uint64_t bytes = 0;  // of each, as Step counts them
    };
    struct Launch {
        std::uint64_t seq = 0;
        std::int64_t ready_ns = 0, begin_ns = 0,
                     done_ns = 0;  // since the epoch, by the clock of its node; it begins when let go
        std::vector<Operation> operations;
        std::uint32_t line = 0;
    };
    struct Rank {
        std::string name, node, job;
        std::uint32_t gpu = kNobody;   // on its node
        std::vector<Launch> launches;  // that ended
        std::uint64_t lost = 0;        // launches that its ring had no room for
        std::uint64_t passed = 0;      // calls that observe mode does not record
        std::uint64_t under_way = 0;   // launches that had not ended when it did
    };
    struct Group {
        std::string id, also;                            // the same in all recordings; another id of it, or empty
        std::uint32_t size = 0;                          // 0: not known
        std::map<std::uint32_t, std::uint32_t> members;  // rank in it: number of the rank
    };

    std::string node;  // that it is of; empty: of all
    std::int64_t began_ns = 0;
    bool ended = false;  // it says that a job has ended
    bool cut = false;    // its last line is torn
    std::uint64_t lines = 0;
    std::map<std::uint32_t, Rank> ranks;    // by number
    std::map<std::uint32_t, Group> groups;  // by number
};

// Every mistake is appended to `errors`, also where the recording does not tell what a launch consisted of (an older controller's).
Recording parse_recording(std::istream& in, std::vector<WorkloadError>& errors);
// Of all its ranks that launched anything.
Workload workload_of(Recording recording, const std::string& name, std::vector<WorkloadError>& errors);
// Of the job that is recorded; of several, the one with the most launches.
Workload read_recording(std::istream& in, std::vector<WorkloadError>& errors);

}  // namespace opus::replay
