// PyTorch profiler (Kineto) traces, one a rank: what its GPU did when. Chrome trace events as JSON, of any version since PyTorch
// 2.0; which communicator an NCCL kernel is of, and how much it carried, is taken from the kernel itself (PyTorch 2.3), else from the
// host's "nccl:" annotation that launched it.
//
// A rank's computation is the union of what its GPU did besides NCCL. An NCCL kernel waits for what had ended last on the GPU
// before it began, and begins as long after it as it did; what computes waits for the NCCL kernel that had ended last where
// nothing else ran in between. So neither waiting for peers nor the network's time is in the workload, but what the host took is.
#pragma once

#include "tools/opus-sim/job_trace.h"

namespace opus::job {

bool is_kineto(std::string_view text);

class KinetoReader {
public:
    void read(const NamedText& file);
    // Throws where the files do not fit together.
    JobTrace trace();
    std::uint64_t entries() const { return entries_; }
    double span_ms() const { return static_cast<double>(span_ns_) / 1e6; }  // the longest, of what a GPU did
    // After trace() has been checked: what was assumed of groups and clocks.
    std::vector<std::string> assumed(const JobTrace& checked) const;

private:
    struct Found;

    void build(Found& found, TraceRank& rank);
    std::uint32_t group_of(const Found& found, const struct CollectiveFacts& facts, const std::string& place);

    JobTrace trace_;
    std::map<std::string, std::uint32_t> groups_;
    std::map<std::uint32_t, std::vector<std::vector<std::int64_t>>> ends_;  // by rank and group: of its collectives
    std::uint64_t entries_ = 0;
    std::int64_t span_ns_ = 0;
    bool no_groups_ = false, no_bytes_ = false;
    std::uint64_t unlaunched_ = 0;  // NCCL kernels that say nothing, and whose launch came before the trace
    std::uint32_t steps_ = 0;  // of the profiler
};

}  // namespace opus::job
