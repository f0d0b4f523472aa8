// A rank of this node as its daemon serves it: its segment, who looks at it, and whether its process lives.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <vector>

#include "manager/core/core.h"
#include "manager/shell/attach_server.h"
#include "manager/shell/descriptor.h"
#include "manager/shell/ring_reader.h"
#include "manager/shell/runtime_directory.h"
#include "manager/shell/segment.h"

namespace opus::manager {

struct LocalRank {
    Segment segment;
    RingReader ring;
    Descriptor watch;  // pidfd, or empty
    std::uint32_t pid = 0;
    std::uint64_t pid_start = 0;
    bool fault_told = false;

    bool lives() const;  // unless it is known to be gone
    void perform(const SetVerdict& a);
    void perform(const FreeComm& a);
};
using LocalRanks = std::map<RankId, LocalRank>;

// The segment of a process that asks for one, and what it is sent. Throws std::runtime_error.
Segment accept_rank(const RuntimeDirectory& directory, RankId id, pid_t pid, std::uint64_t pid_start,
                    const attach::AttachRequest& request, AttachServer::Accepted& accepted);
// `poller` tells of its process's end, by a descriptor that is put into `watches`.
LocalRank serve_rank(Segment segment, RankId id, std::uint32_t pid, std::uint64_t pid_start, bool recovered, int poller,
                     std::map<int, RankId>& watches);

void beat(LocalRanks& ranks);  // the word by which a living daemon is told from a dead one
// Whether they are to ring. Stored before whatever is looked at next.
void tell_asleep(LocalRanks& ranks, std::uint32_t value);
std::vector<RankId> unwatched(const LocalRanks& ranks);  // on kernels without pidfd

}  // namespace opus::manager
