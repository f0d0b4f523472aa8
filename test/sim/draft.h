// A job's programs while they are drawn: calls by rank, in program order. resolve() makes of them what is played: key
// numbers, first uses, launches, and the flows that members meet at.
#pragma once

#include <map>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "test/sim/random.h"
#include "test/sim/scenario.h"

namespace opus::sim {

struct RawOp {
    std::uint32_t comm = 0;
    OpKind kind{};
    std::uint32_t peer = 0;
    std::uint32_t stream = 0;
};

struct RawCall {
    Call::Kind kind{};
    std::uint32_t index = 0, stream = 0;
    TimeNs ns = 0;
    std::vector<RawOp> ops;
    std::uint32_t creation = 0;
};

inline bool is_mesh(OpKind kind) {
    return kind == OpKind::all_to_all || kind == OpKind::gather || kind == OpKind::scatter;
}
inline bool is_transfer(OpKind kind) { return kind == OpKind::send || kind == OpKind::recv; }

class Draft {
public:
    Draft(Scenario& scenario, std::uint32_t job);

    std::vector<RawCall>& calls(std::uint32_t rank) { return raw_[rank]; }
    void launch(std::uint32_t rank, std::vector<RawOp> ops) { add(rank, Call::Kind::launch, 0, 0, 0, std::move(ops)); }
    void compute(std::uint32_t rank, std::uint32_t stream, TimeNs ns) { add(rank, Call::Kind::compute, 0, stream, ns); }
    void record(std::uint32_t rank, std::uint32_t stream, std::uint32_t event) {
        add(rank, Call::Kind::record, event, stream);
    }
    void wait(std::uint32_t rank, std::uint32_t stream, std::uint32_t event) {
        add(rank, Call::Kind::wait, event, stream);
    }
    void sync(std::uint32_t rank, std::uint32_t stream) { add(rank, Call::Kind::sync, 0, stream); }
    void pause(std::uint32_t rank, TimeNs ns) { add(rank, Call::Kind::pause, 0, 0, ns); }
    // Collectives of one communicator, each a launch of its own, captured into a graph; and the graph is launched.
    std::uint32_t new_graph() { return graphs_++; }
    void capture(std::uint32_t rank, std::uint32_t graph, std::uint32_t stream, std::vector<RawOp> ops) {
        add(rank, Call::Kind::capture, graph, stream, 0, std::move(ops));
    }
    void replay(std::uint32_t rank, std::uint32_t graph, std::uint32_t stream, std::vector<RawOp> ops) {
        add(rank, Call::Kind::replay, graph, stream, 0, std::move(ops));
    }
    // It is destroyed, when all that was launched on its communicator is over. `ops`: what it captured.
    void forget(std::uint32_t rank, std::uint32_t graph, std::vector<RawOp> ops) {
        add(rank, Call::Kind::forget, graph, 0, 0, std::move(ops));
    }
    // Creates it on all its members, from a unique id. Returns its CommPlan.
    std::uint32_t create(const std::vector<std::uint32_t>& members, bool shares_first = false);
    // One ncclCommSplit of all members of `parent`; a list of members each child. One alone makes no communicator.
    std::vector<std::uint32_t> split(std::uint32_t parent, const std::vector<std::vector<std::uint32_t>>& children,
                                     bool shares);
    void destroy(std::uint32_t comm);
    void resolve();

    const Gpu& gpu_of(std::uint32_t rank) const;
    std::uint32_t ports() const { return static_cast<std::uint32_t>(s_.fabric.gpus[0].ports.size()); }
    // Whether its collectives can have their circuits.
    bool can_ring(std::uint32_t comm) const;
    bool can_mesh(std::uint32_t comm) const;
    bool keeps_rails(const std::vector<PairIndex>& pairs) const;  // no switch joins two rails
    // Pairs of GPUs that an operation needs.
    std::vector<PairIndex> pairs_of_transfer(const CommPlan& comm, std::uint32_t src, std::uint32_t dst) const;
    std::vector<PairIndex> pairs_of_collective(const CommPlan& comm, bool mesh) const;

private:
    struct Numbers {
        std::uint64_t collectives = 0, captured = 0;
        std::map<std::uint32_t, std::uint64_t> sends, receives;
        bool ring = false;                                 // is connected
        std::set<std::pair<OpKind, std::uint32_t>> pairs;  // that are, by direction and peer
    };
    struct Graph {
        std::vector<std::uint64_t> numbers;  // of its captured operations
        std::uint64_t replays = 0;
    };
    void add(std::uint32_t rank, Call::Kind kind, std::uint32_t index, std::uint32_t stream = 0, TimeNs ns = 0,
             std::vector<RawOp> ops = {}) {
        raw_[rank].push_back({kind, index, stream, ns, std::move(ops), 0});
    }
    std::uint32_t add_comm(const std::vector<std::uint32_t>& members, std::uint32_t family);
    NodeIndex nccl_node(std::uint32_t rank) const;
    bool fits_ports(const std::vector<PairIndex>& pairs) const;
    std::size_t nodes_of(std::uint32_t comm) const;
    std::uint32_t ports_of_a_switch() const;
    void resolve_launches(std::uint32_t rank, const RawCall& raw, std::map<std::uint32_t, Numbers>& numbers, Call& call);
    void resolve_capture(std::uint32_t rank, const RawCall& raw, std::map<std::uint32_t, Numbers>& numbers,
                         Graph& graph, Call& call);
    void resolve_replay(std::uint32_t rank, const RawCall& raw, Graph& graph, Call& call);
    void add_kernels(LaunchPlan& launch) const;
    void add_first_uses(std::uint32_t rank, const RawOp& op, Numbers& numbers, bool empty, Call& call);
    void add_op(std::uint32_t rank, const RawOp& op, Numbers& numbers, LaunchPlan& launch, Call& call);
    std::vector<RawOp> first_uses(std::uint32_t rank, const RawOp& op, Numbers& numbers) const;
    std::uint32_t rank_in(const CommPlan& comm, std::uint32_t rank) const;
    Part part_of(std::uint32_t rank, const RawOp& op, std::uint64_t n, bool conn);
    FlowPlan plan_flow(const RawOp& op, const Key& key, bool conn) const;

    Scenario& s_;
    std::uint32_t job_;
    std::uint32_t first_comm_, first_flow_, graphs_ = 0;
    std::map<std::uint32_t, std::vector<RawCall>> raw_;  // by rank
    std::unordered_map<Key, FlowIndex> flows_;
};

}  // namespace opus::sim
