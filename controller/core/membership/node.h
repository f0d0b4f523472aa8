// Nodes, the rank processes on them, and what each of these is a member of. Plain records.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "controller/core/gangs/launch.h"
#include "opus/wire.h"

namespace opus::controller {

struct Job;

struct Membership {
    Comm* comm = nullptr;
    std::vector<std::uint32_t> slots;  // ranks in the communicator that this process is
};

struct Rank {
    wire::RankInfo info;
    Job* job = nullptr;
    std::map<CommId, Membership> comms;
    std::map<std::uint64_t, std::unique_ptr<Launch>> launches;  // not done
};

struct NodeState {
    std::uint64_t session = 0;  // 0: none
    bool reported = false;      // its snapshot is in, of this session
    bool known = false;         // has reported in this epoch, or its grace is over
    bool tell = false;          // owed its steering
    bool overdue = false;       // without a manager for its hold time: its ranks have opened their gates, or will
    bool given_up = false;      // and has not reported since
    TimeNs last_seen_ns = 0;
    TimeNs grace_at_ns = 0;        // when silent: what it ran is given up then
    std::uint32_t unsettled = 0;   // adopted launches, their communicators and runs whose circuits are not known yet
    std::set<std::uint64_t> runs;  // grants of whose runs it holds a part
    std::map<RankId, Rank> ranks;
    std::vector<wire::CommVerdict> verdicts;                    // to be sent at the end of the step
    TimeNs behind_ns = std::numeric_limits<TimeNs>::max() / 2;  // its clock, and what its words take at least

    bool up() const { return session != 0 && reported; }
};

}  // namespace opus::controller
