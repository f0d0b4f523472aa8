// This rank's communicators, made in the workload's order, or by its steps: from a unique id that passes through
// the rendezvous, or by ncclCommSplit or ncclCommShrink. Counts what was called on each, alike on all members.
#pragma once

#include <map>
#include <mutex>
#include <vector>

#include "tools/replay/api.h"
#include "tools/replay/rendezvous.h"
#include "tools/replay/workload.h"

namespace opus::replay {

struct CommHandle {
    ncclComm_t comm = nullptr;  // null: this rank is no member, or it is not there
    std::uint32_t group = kNobody;
    std::uint32_t rank = kNobody;
    std::uint32_t size = 0;
    bool non_blocking = false;
    std::uint32_t lives = 0;                                // how often it was made
    std::uint64_t seed = 0;                                 // of name, group and life
    std::uint64_t collectives = 0;                          // called so far
    std::map<std::uint32_t, std::uint64_t> sent, received;  // by peer
};

class Communicators {
public:
    Communicators(const Workload& workload, std::uint32_t rank, Rendezvous& rendezvous, std::uint64_t timeout_ms);
    ~Communicators() = default;  // a failed run leaves them to the process's end

    CommHandle& at(std::uint32_t comm) { return handles_[comm]; }
    // By all its creators, in the same order.
    void create(std::uint32_t comm);
    void destroy(std::uint32_t comm);
    std::size_t size() const { return handles_.size(); }
    // Of a non-blocking one: waits until what was last called on it is under way. Else nothing.
    void settle(std::uint32_t comm);
    // The first error that NCCL found in the background; ncclSuccess when there is none. Any thread.
    ncclResult_t background_error() const;
    void abort();
    void destroy();

private:
    ncclComm_t from_id(std::uint32_t index);
    ncclComm_t from_split(std::uint32_t index);
    ncclComm_t from_shrink(std::uint32_t index);
    std::uint32_t parent_of(std::uint32_t index) const;
    void await(ncclComm_t comm, const std::string& what) const;
    void set(CommHandle& handle, ncclComm_t comm);

    const Workload& workload_;
    Rendezvous& rendezvous_;
    const std::uint64_t timeout_ms_;
    std::vector<CommHandle> handles_;
    mutable std::mutex mutex_;  // of the handles' `comm`, at which another thread looks
};

}  // namespace opus::replay
