// A communicator as the transport sees it: who its members are, their ring, what is under way.
//
// Immutable once set up, but for what is marked: that belongs to the transport thread, or is atomic.
#pragma once

#include <nccl.h>

#include <atomic>
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "head.h"

namespace opus::standin {

class Collective;
class Transfer;

struct ConnectionId {
    bool transfer = false;  // or collective
    std::uint32_t src = 0, dst = 0;
    Way way;
    auto operator<=>(const ConnectionId&) const = default;
};

struct CommCore {
    std::uint64_t key = 0;
    std::uint32_t rank = 0;
    std::vector<Member> members;      // by rank
    std::vector<std::uint32_t> nccl_nodes;  // by rank: what NCCL calls a node
    std::vector<std::uint32_t> ring;        // position -> rank: nodes by first appearance, ranks within
    std::uint32_t position = 0;       // this rank's
    std::vector<Way> ways_in, ways_out;  // that its edges of the ring are striped over, as seen from the sender

    std::atomic<int> error{ncclSuccess};  // asynchronous: ncclRemoteError when a member died, ...
    std::atomic<bool> leaving{false};     // destroyed or aborted here: losses no longer matter
    std::atomic<bool> broken{false};      // another member has died, ended or aborted: what starts here fails

    // Transport thread only.
    std::unordered_map<std::uint64_t, Collective*> collectives;                    // by number
    std::map<std::pair<std::uint32_t, std::uint64_t>, Transfer*> sends, receives;  // by peer, number
    std::set<std::pair<std::uint32_t, std::uint64_t>> early_clear;                 // peer ready before us: transfers
    std::set<std::uint64_t> early_collective_clear;                                // likewise: next in the ring
    std::set<ConnectionId> early_connect;
    std::set<ActivityRef> active;
    std::uint64_t started = 0;                              // collectives
    std::map<std::uint32_t, std::uint64_t> sent, received;  // transfers started, by peer
    std::set<std::uint32_t> gone;                           // ranks that left in good order

    std::uint32_t size() const { return static_cast<std::uint32_t>(members.size()); }
    const Member& self() const { return members[rank]; }
    std::uint32_t next() const { return ring[(position + 1) % ring.size()]; }
    std::uint32_t previous() const { return ring[(position + ring.size() - 1) % ring.size()]; }
    bool same_node(std::uint32_t a, std::uint32_t b) const { return nccl_nodes[a] == nccl_nodes[b]; }
    bool crosses() const;  // it has several nodes
    Way transfer_way(std::uint32_t src, std::uint32_t dst) const;

    void lay_ring();  // once members and rank are set
};
using CommRef = std::shared_ptr<CommCore>;

}  // namespace opus::standin
