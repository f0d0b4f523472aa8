// What each launch of a played job consists of, and who meets whom in it. Numbers launches as tools/replay/dry_run.h
// does, so that the times that a run recorded (by rank and number) find their operations again. Pure; const once made.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "tools/replay/dry_run.h"
#include "tools/sim/job_map.h"

namespace opus::job {

class JobLaunches {
public:
    static constexpr std::uint32_t kNone = 0xffffffffu;

    struct Operation {
        const replay::Step* step = nullptr;
        std::uint32_t number = 0;  // of its kind: the n-th collective of the communicator, or transfer to this peer
    };
    struct Member {
        std::uint32_t rank = 0, seq = 0;
    };
    // Operations between the same GPUs.
    struct Pairs {
        std::vector<sim::GpuPair> pairs;
        bool served = true;  // each pair can have a circuit at the same time
    };

    // `workload` must outlive it.
    JobLaunches(const replay::Workload& workload, std::uint32_t ports, std::uint32_t iterations);

    const replay::Workload& workload() const { return w_; }
    const sim::JobMap& map() const { return map_; }
    std::uint32_t role_of(std::uint32_t rank) const { return role_of_[rank]; }
    const std::vector<replay::Step>& steps(std::uint32_t role) const { return steps_[role]; }

    // Of the launch of a rank, in the order of its program.
    std::size_t launches(std::uint32_t rank) const { return roles_[role_of_[rank]].first.size() - 1; }
    const Operation* begin(std::uint32_t rank, std::uint64_t seq) const;
    const Operation* end(std::uint32_t rank, std::uint64_t seq) const { return begin(rank, seq + 1); }

    bool crosses(const replay::Step& step, std::uint32_t rank) const;  // from node to node
    bool speaks(const replay::Step& step, std::uint32_t rank) const;   // of all its members this one is counted
    std::vector<Member> members(const Operation& operation, std::uint32_t rank) const;
    std::uint32_t group_size(const replay::Step& step, std::uint32_t rank) const;
    std::uint32_t group_of(std::uint32_t comm, std::uint32_t rank) const { return group_of_[comm][rank]; }

    // What people call operations of this kind on such groups: "all_reduce dp, 8 ranks". Communicators that differ by a
    // number only are called the same.
    std::uint32_t label(const replay::Step& step, std::uint32_t rank) const;
    const std::vector<std::string>& labels() const { return labels_; }
    // Of what crosses.
    std::uint32_t pairs(const replay::Step& step, std::uint32_t rank) const;
    const std::vector<Pairs>& all_pairs() const { return pairs_; }
    // Bytes that a GPU sends to its neighbour in it.
    double sent_bytes(const replay::Step& step, std::uint32_t rank, double length) const;

private:
    using Kind =
        std::tuple<std::uint32_t, std::uint32_t, int>;  // communicator, peer, direction: 0 collective, 1 send, 2 receive
    struct RoleLaunches {
        std::vector<std::uint32_t> first;  // of its operations, by launch; and the end
        std::vector<Operation> operations;
        std::map<Kind, std::vector<std::uint32_t>> of_kind;  // launches
    };
    static bool transfer(const replay::Step& s) {
        return s.kind == replay::StepKind::send || s.kind == replay::StepKind::recv;
    }
    using LabelKey = std::tuple<int, std::uint32_t, std::uint32_t>;            // kind, communicator, size
    using PairsKey = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>;  // communicator, group, which of its pairs
    LabelKey label_key(const replay::Step& step, std::uint32_t rank) const;
    PairsKey pairs_key(const replay::Step& step, std::uint32_t rank) const;
    void list(std::uint32_t role, std::uint32_t iterations);
    void name(const replay::Step& step, std::uint32_t rank);

    const replay::Workload& w_;
    sim::JobMap map_;
    std::uint32_t ports_;
    std::vector<std::vector<replay::Step>> steps_;  // of each role, loops unrolled
    std::vector<RoleLaunches> roles_;
    std::vector<std::uint32_t> role_of_;
    std::vector<std::vector<std::uint32_t>> group_of_, rank_in_;  // by communicator and rank
    std::vector<std::vector<bool>> crossing_;                     // by communicator and group
    std::vector<std::string> labels_;
    std::map<LabelKey, std::uint32_t> label_of_;
    std::vector<Pairs> pairs_;
    std::map<PairsKey, std::uint32_t> pairs_of_;
};

}  // namespace opus::job
