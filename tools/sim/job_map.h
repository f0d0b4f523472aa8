// A workload as Opus sees it: its fabric (a rail and one switch for each local index), its operations as the ring
// records them, and the pairs of GPUs whose light they need.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "opus/fabric.h"
#include "opus/launch_ring.h"
#include "tools/replay/workload.h"

namespace opus::sim {

using GpuPair = std::pair<GpuId, GpuId>;  // first < second

class JobMap {
public:
    // `bytes_per_us`: of all ports of a GPU. `packet_share`: of that, what a GPU has on a packet network, which carries
    // operations that no circuits can serve.
    JobMap(const replay::Workload& workload, std::uint32_t ports, TimeNs dark_ns, double bytes_per_us,
           double packet_share = 1);

    const replay::Workload& workload() const { return *workload_; }
    double packet_share() const { return packet_share_; }
    const Fabric& fabric() const { return fabric_; }
    NodeIndex node_of(std::uint32_t rank) const { return workload_->places[rank].node; }
    RankId local_rank(std::uint32_t rank) const { return local_[rank]; }
    std::uint32_t rank_at(NodeIndex node, RankId local) const { return ranks_[node][local]; }
    static CommId comm_id(std::uint32_t comm, std::uint32_t group) { return {(comm + 1ull) << 32, group + 1}; }
    static std::uint32_t comm_of(const CommId& id) { return static_cast<std::uint32_t>(id.hi >> 32) - 1; }
    std::uint32_t comm_entry(std::uint32_t rank, std::uint32_t comm) const;

    // Adds to `pairs`; nothing of what stays on a node.
    void add_pairs(const replay::Step& step, std::uint32_t rank, std::vector<GpuPair>& pairs) const;
    bool crosses(const replay::Step& step, std::uint32_t rank) const;
    replay::Membership membership(const replay::Step& step, std::uint32_t rank) const {
        return members_.of(step.comm, rank);
    }
    // Counts: each call is the next operation of the rank.
    ring::OpEntry record(const replay::Step& step, std::uint32_t rank, double length);

private:
    using Sequence = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, int>;  // rank, comm, peer, direction

    const std::vector<std::uint32_t>& group_of(const replay::Step& step, std::uint32_t rank) const;

    const replay::Workload* workload_;
    double packet_share_;
    replay::Memberships members_;
    Fabric fabric_;
    std::vector<RankId> local_;
    std::vector<std::vector<std::uint32_t>> ranks_;  // by node
    std::map<Sequence, std::uint64_t> counts_;
};

OpKind kind_of(replay::StepKind kind);

// How many circuits each pair can have at a time: one, then more in turn while both its ends have ports left. Empty: not
// even one.
std::vector<std::uint32_t> most_circuits(const std::vector<GpuPair>& pairs, std::uint32_t ports);

// The pairs of launches, found once for all that are alike. Not thread-safe.
class LaunchPairs {
public:
    struct Pairs {
        std::vector<GpuPair> all;
        std::vector<std::uint32_t> most;  // most_circuits
        bool served() const { return all.empty() || !most.empty(); }
    };

    LaunchPairs(const JobMap& map, std::uint32_t ports) : map_(map), ports_(ports) {}
    // Of all its operations; lasts as long as this.
    const Pairs& of(const std::vector<const replay::Step*>& operations, std::uint32_t rank);

private:
    const JobMap& map_;
    std::uint32_t ports_;
    std::map<std::vector<std::uint64_t>, Pairs> known_;  // by communicators and sides of the operations
    std::vector<std::uint64_t> name_;
};

}  // namespace opus::sim
