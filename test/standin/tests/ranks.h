// Runs ranks as child processes: the parent, which never touches CUDA or NCCL, forks them and looks at
// their exit codes. In a child, demand() ends the process with a line that says what was wrong.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <atomic>
#include <functional>
#include <string>
#include <vector>

namespace opus::standin::test {

// Shared by the ranks of one run.
struct Shared {
    std::atomic<int> ready{0};
    ncclUniqueId id[8];
    std::atomic<std::uint64_t> word[64];
};

struct Rank {
    int rank = 0, size = 0;
    Shared* shared = nullptr;

    // The n-th unique id of the run, made by rank 0.
    ncclUniqueId id(int n = 0) const;
    ncclComm_t comm(int n = 0) const;  // of all ranks
    void barrier(int word) const;      // a word used by nothing else; polls
};

struct Layout {
    std::vector<int> node;  // of each rank
    std::vector<int> gpu;   // local index
    std::vector<std::pair<std::string, std::string>> environment;
    int seconds = 60;                                // a rank that lives longer is killed
    std::function<void(int rank, int pid)> started;  // in the parent
};

Layout nodes_of(const std::vector<int>& ranks_per_node);
// Exit codes; 128 + signal where one ended a rank.
std::vector<int> run_ranks(const Layout& layout, const std::function<void(const Rank&)>& body);
// All zero?
bool all_well(const std::vector<int>& codes);
// One child without NCCL, for what depends on the environment.
int run_alone(const std::vector<std::pair<std::string, std::string>>& environment, const std::function<void()>& body);

[[noreturn]] void give_up(const std::string& what, const char* file, int line);

#define demand(condition)                                                                 \
    do {                                                                                  \
        if (!(condition)) ::opus::standin::test::give_up(#condition, __FILE__, __LINE__); \
    } while (0)
#define demand_nccl(call)                                                                                             \
    do {                                                                                                              \
        const ncclResult_t result_ = (call);                                                                          \
        if (result_ != ncclSuccess)                                                                                   \
            ::opus::standin::test::give_up(                                                                           \
                std::string(#call) + ": " + ncclGetErrorString(result_) + ": " + ncclGetLastError(nullptr), __FILE__, \
                __LINE__);                                                                                            \
    } while (0)

}  // namespace opus::standin::test
