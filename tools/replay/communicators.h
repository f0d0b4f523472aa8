// This rank's communicators, made in the workload's order: from a unique id that passes through the
// rendezvous, or by ncclCommSplit. Counts what was called on each, alike on all members.
#pragma once

#include <map>
#include <vector>

#include "tools/replay/api.h"
#include "tools/replay/rendezvous.h"
#include "tools/replay/workload.h"

namespace opus::replay {

struct CommHandle {
    ncclComm_t comm = nullptr;  // null: this rank is no member
    std::uint32_t group = kNobody;
    std::uint32_t rank = kNobody;
    std::uint32_t size = 0;
    std::uint64_t seed = 0;                                 // of name and group
    std::uint64_t collectives = 0;                          // called so far
    std::map<std::uint32_t, std::uint64_t> sent, received;  // by peer
};

class Communicators {
public:
    Communicators(const Workload& workload, std::uint32_t rank, Rendezvous& rendezvous, std::uint64_t timeout_ms);
    ~Communicators() = default;  // a failed run leaves them to the process's end

    CommHandle& at(std::uint32_t comm) { return handles_[comm]; }
    std::size_t size() const { return handles_.size(); }
    // The first error that NCCL found in the background; ncclSuccess when there is none. Any thread.
    ncclResult_t background_error() const;
    void abort();
    void destroy();

private:
    void from_id(const Workload& workload, std::uint32_t index, Rendezvous& rendezvous, std::uint64_t timeout_ms);
    void from_split(const Workload& workload, std::uint32_t index);

    std::vector<CommHandle> handles_;
};

}  // namespace opus::replay
