// What each rank of a job did or would do, as execution traces say it: operations and computations that wait for each
// other. Readers fill it in; it becomes a workload (replay::Workload) of one iteration.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/opus-sim/job_file.h"
#include "tools/replay/workload.h"

namespace opus::job {

// Streams of what computes.
constexpr std::uint32_t kDevice = 0;    // the GPU, which computes one thing at a time
constexpr std::uint32_t kNextOnly = 1;  // it holds up the next item only, not what computes
constexpr std::uint32_t kHost = 2;      // the CPU, which also does one thing at a time, beside the GPU

struct TraceItem {
    replay::StepKind kind = replay::StepKind::compute;
    std::uint32_t group = replay::kNobody;  // of collectives: index of JobTrace::groups
    std::uint32_t peer = 0;                 // of send and recv, and the root of what has one: rank of the world
    std::uint32_t stream = 0;               // of what computes: one of those below
    std::uint64_t same = 0;   // what all sides call it; those that are called the same are matched in order
    std::uint64_t bytes = 0;  // as replay::Step has them
    std::int64_t ns = 0;      // compute: how long. Operations: how long they lasted, 0 where the file does not say
    std::uint32_t first_need = 0, needs = 0;  // in TraceRank::needs
    std::uint32_t place = 0;                  // in the file, for messages: number of the node or event
};

struct TraceRank {
    std::uint32_t rank = 0;
    std::string file;
    std::vector<TraceItem> items;
    std::vector<std::uint32_t> needs;  // numbers of items that must be over
};

struct JobTrace {
    std::string name;
    std::uint32_t world = 0;
    bool ordered = false;  // items lie in the order in which they begin; else only their needs order them
    bool neighbours_share_nodes = false;             // of a job that has run: launchers number ranks node by node
    std::vector<std::vector<std::uint32_t>> groups;  // ranks of the world, in their order
    std::vector<std::string> group_names;            // of each
    std::vector<TraceRank> ranks;                    // by rank
};

// Missing ranks: an error, or with `fill` copies of those that are there. Every group's members call the same
// collectives, and every transfer has two sides: else an error that names rank, file, place. Sorts `ranks`.
void check_trace(JobTrace& trace, bool fill, std::vector<std::string>& assumed);
// Orders items by playing them: a rank computes one thing at a time, what could begin first is first. An error where
// ranks wait for each other in a circle. Afterwards `ordered`.
void order_trace(JobTrace& trace);
void count_trace(const JobTrace& trace, Figures& figures);
// Which ranks share a node, as far as groups tell. Says what it assumes.
std::vector<replay::Place> choose_places(const JobTrace& trace, const ReadOptions& options, std::vector<std::string>& assumed);
// The trace must be ordered and checked.
replay::Workload workload_of(const JobTrace& trace, std::vector<replay::Place> places);

}  // namespace opus::job
