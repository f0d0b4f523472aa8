// The communicator as its user holds it, and groups.
#pragma once

#pragma GCC visibility push(default)
#include <nccl.h>
#pragma GCC visibility pop

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "activity.h"
#include "comm_core.h"
#include "engine/engine.h"

namespace opus::standin {

// Communicators whose launches serialise: a root and the splits and shrinks that share its resources.
struct Family {
    std::mutex mutex;
    OpRef last;
};

}  // namespace opus::standin

struct ncclComm {
    static constexpr std::uint64_t kMagic = 0x6d6d6f436e617453ull;
    std::uint64_t magic = kMagic;
    opus::standin::CommRef core;
    std::shared_ptr<opus::standin::Family> family;
    int device = 0;
    std::uint32_t nranks = 0, rank = 0;  // known before core is
    bool blocking = true;
    bool split_share = false, shrink_share = false;  // with its children
    bool in_order = false;  // its launches take turns with all of its device
    bool finalized = false;
    std::atomic<bool> revoked{false};
    std::atomic<int> state{ncclSuccess};  // ncclInProgress while a thread of ours works for it
    std::string last_error;

    std::uint64_t children = 0;  // splits and growths, in program order of all its ranks
    std::uint64_t shrinks = 0;   // likewise, of those that are left
    bool connected = false;
    std::set<std::uint32_t> connected_to, connected_from;
    std::shared_ptr<std::atomic<unsigned>> captured =
        std::make_shared<std::atomic<unsigned>>(0);  // launches that graphs hold

    std::map<int, opus::standin::Reduction> reductions;  // PreMulSum, by ncclRedOp_t
    int next_reduction = ncclNumOps;
};

namespace opus::standin {

// One call, as written down until the outermost GroupEnd.
struct Task {
    ncclComm* comm = nullptr;
    cudaStream_t stream = nullptr;
    bool transfer = false;
    CollectiveCall collective;
    TransferCall p2p;
};

// Work of the creation of communicators: runs at the outermost GroupEnd, each on a thread.
struct Creation {
    ncclComm* comm = nullptr;  // what is in progress meanwhile, if it is non-blocking: the parent of a child
    std::function<ncclResult_t()> run;
    bool of_child = false;
};

ncclResult_t say_error(ncclComm* comm, ncclResult_t result, const std::string& text);
const char* last_error_text();

ncclResult_t check_comm(ncclComm* comm, const char* function);   // pointer, magic
ncclResult_t check_ready(ncclComm* comm, const char* function);  // and no error, nothing in progress

// --- groups (group.cpp) --------------------------------------------------------------------------------
void group_start();
ncclResult_t group_end(bool launch);
ncclResult_t group_error(ncclResult_t result);  // remembered until the end of the group; returns it
bool in_group();
ncclResult_t add(Task task);          // launches at once outside of a group
ncclResult_t add(Creation creation);  // likewise

// --- creation (creation.cpp) ------------------------------------------------------------------------------
ncclResult_t create_by_id(ncclComm_t* out, int nranks, const ncclUniqueId& id, int rank, int device,
                          const ncclConfig_t* config);
ncclResult_t create_by_split(ncclComm* parent, int color, int key, ncclComm_t* out, const ncclConfig_t* config);
// Old members have a parent, of whom one or more an id; new ones have an id and no parent.
ncclResult_t create_by_grow(ncclComm* parent, int nranks, const ncclUniqueId* id, int rank, int device, ncclComm_t* out,
                            const ncclConfig_t* config);
// `shares`: with the parent, where that is how it was made.
ncclResult_t create_by_shrink(ncclComm* parent, const std::set<int>& excluded, bool shares, ncclComm_t* out,
                              const ncclConfig_t* config);

}  // namespace opus::standin
