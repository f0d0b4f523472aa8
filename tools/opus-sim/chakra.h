// MLCommons Chakra execution traces (et_def.proto, by its published field numbers): a file a rank, NAME.RANK.et, records that begin
// with their length: one of metadata, then nodes. And the file of communicators, JSON: {"1":[0,1],...}.
#pragma once

#include "tools/opus-sim/job_trace.h"

namespace opus::job {

using Communicator = std::pair<std::string, std::vector<std::uint32_t>>;  // by the name that nodes call it

// The file of communicators. Comments from // to the end of a line are let pass, which others write.
std::vector<Communicator> read_communicators(const NamedText& file);
bool is_chakra(std::string_view text);
// "workload.12.et", "workload.12.et.gz": 12. Throws BadFile where the name does not say.
std::uint32_t chakra_rank(const std::string& path);

// Reads file by file, so that a job need not be in memory as text.
class ChakraReader {
public:
    ChakraReader(std::vector<Communicator> communicators, std::uint32_t world, const ReadOptions& options);
    void read(const NamedText& file);
    JobTrace trace() { return std::move(trace_); }
    std::uint64_t entries() const { return entries_; }
    bool host() const { return any_host_; }        // what the host did is in it: made of PyTorch's traces
    bool estimated() const { return estimated_; }  // computations, by their operations
    double span_ms() const { return span_ms_; }

private:
    struct Node;
    void node(std::string_view record, std::uint32_t number, TraceRank& rank);
    void operation(const Node& node, TraceItem& item, const TraceRank& rank);
    std::uint32_t group(std::string_view name, const Node& node, const TraceRank& rank);
    void link(TraceRank& rank);

    ReadOptions options_;
    JobTrace trace_;
    std::map<std::string, std::uint32_t, std::less<>> groups_;
    std::uint32_t world_group_ = replay::kNobody;
    std::uint64_t entries_ = 0;
    bool estimated_ = false;
    double span_ms_ = 0;
    bool host_ = false, any_host_ = false;  // the file that is read, or one before, has nodes of the host
    struct Need {
        std::uint64_t id = 0;
        bool control = false;  // order only; else data
    };
    std::vector<std::uint64_t> ids_;  // of the nodes of a file
    std::vector<Need> wanted_;        // what they need
};

}  // namespace opus::job
