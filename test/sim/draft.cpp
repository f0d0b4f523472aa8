#include "test/sim/draft.h"

#include <algorithm>
#include <map>
#include <set>

#include "opus/ways.h"

namespace opus::sim {
namespace {

constexpr std::uint32_t kEmpty = 80;  // of 1,000 transfers: an expert without tokens

}  // namespace

Draft::Draft(Scenario& scenario, std::uint32_t job)
    : s_(scenario),
      job_(job),
      first_comm_(static_cast<std::uint32_t>(scenario.comms.size())),
      first_flow_(static_cast<std::uint32_t>(scenario.flows.size())) {
    for (const std::uint32_t rank : s_.jobs[job_].ranks) raw_[rank];
}

const Gpu& Draft::gpu_of(std::uint32_t rank) const {
    const RankPlan& r = s_.ranks[rank];
    return s_.fabric.gpus[s_.fabric.nodes[r.node].gpus[r.gpu]];
}

// --- communicators ----------------------------------------------------------------------------------

std::uint32_t Draft::add_comm(const std::vector<std::uint32_t>& members, std::uint32_t family) {
    const auto index = static_cast<std::uint32_t>(s_.comms.size());
    CommPlan comm;
    comm.id = {hash_mix(job_, s_.seed) | 1, index + 1};
    comm.job = job_;
    comm.family = family != kNone ? family : index + 1;
    comm.hash = hash_mix(hash_mix(job_, s_.seed), index);
    comm.ranks = members;
    std::set<NodeIndex> nodes;
    for (const std::uint32_t r : members) nodes.insert(nccl_node(r));
    comm.intra = nodes.size() == 1;
    s_.comms.push_back(std::move(comm));
    return index;
}

std::uint32_t Draft::create(const std::vector<std::uint32_t>& members, bool shares_first) {
    const std::uint32_t index = add_comm(members, shares_first ? first_comm_ + 1 : kNone);
    const auto creation = static_cast<std::uint32_t>(s_.creations.size());
    s_.creations.push_back({kNone, members});
    for (const std::uint32_t r : members) raw_[r].push_back({Call::Kind::create, index, 0, 0, {}, creation});
    return index;
}

std::vector<std::uint32_t> Draft::split(std::uint32_t parent, const std::vector<std::vector<std::uint32_t>>& children,
                                        bool shares) {
    const std::vector<std::uint32_t> callers = s_.comms[parent].ranks;
    const auto creation = static_cast<std::uint32_t>(s_.creations.size());
    s_.creations.push_back({parent, callers});
    std::map<std::uint32_t, std::uint32_t> child_of;
    std::vector<std::uint32_t> made;
    for (const auto& members : children) {
        if (members.size() < 2) continue;
        made.push_back(add_comm(members, shares ? s_.comms[parent].family : kNone));
        for (const std::uint32_t r : members) child_of[r] = made.back();
    }
    for (const std::uint32_t r : callers)
        raw_[r].push_back({Call::Kind::create, child_of.contains(r) ? child_of[r] : kNone, 0, 0, {}, creation});
    return made;
}

void Draft::destroy(std::uint32_t comm) {
    for (const std::uint32_t r : s_.comms[comm].ranks) add(r, Call::Kind::destroy, comm);
}

std::size_t Draft::nodes_of(std::uint32_t comm) const {
    std::set<NodeIndex> nodes;
    for (const std::uint32_t r : s_.comms[comm].ranks) nodes.insert(nccl_node(r));
    return nodes.size();
}

std::uint32_t Draft::ports_of_a_switch() const {
    return static_cast<std::uint32_t>(ports() * s_.fabric.rails.size() / s_.fabric.switches.size());
}

// All nodes are in NVLink domains, or none is.
NodeIndex Draft::nccl_node(std::uint32_t rank) const {
    const NodeIndex node = s_.ranks[rank].node, domain = s_.fabric.nodes[node].domain;
    return domain != kNone ? domain : node;
}

// On a switch that joins any two of a rail.
bool Draft::fits_ports(const std::vector<PairIndex>& pairs) const {
    std::map<PairIndex, std::uint32_t> degree;
    const auto gpus = static_cast<PairIndex>(s_.fabric.gpus.size());
    return keeps_rails(pairs) && std::all_of(pairs.begin(), pairs.end(), [&](PairIndex p) {
               return ++degree[p / gpus] <= ports() && ++degree[p % gpus] <= ports();
           });
}

// Where each port of a GPU is another switch's, an odd number of nodes needs a port more.
bool Draft::can_ring(std::uint32_t comm) const {
    if (s_.fabric.nodes[0].domain != kNone) return fits_ports(pairs_of_collective(s_.comms[comm], false));
    const std::size_t nodes = nodes_of(comm);
    return nodes < 3 || (ports() > 1 && (ports_of_a_switch() > 1 || nodes % 2 == 0 || ports() > 2));
}

bool Draft::can_mesh(std::uint32_t comm) const {
    const std::size_t nodes = nodes_of(comm);
    const auto pairs = pairs_of_collective(s_.comms[comm], true);
    if (s_.fabric.nodes[0].domain != kNone || !keeps_rails(pairs)) return fits_ports(pairs);
    return nodes <= ports() + (ports_of_a_switch() > 1 || nodes % 2 == 0 ? 1 : 0);
}

// --- numbers, keys, launches ------------------------------------------------------------------------

void Draft::resolve() {
    s_.flows.resize(first_flow_);
    flows_.clear();
    for (const auto& [r, calls] : raw_) {
        std::map<std::uint32_t, Numbers> numbers;
        std::map<std::uint32_t, Graph> graphs;
        s_.ranks[r].calls.clear();
        for (const RawCall& raw : calls) {
            Call call;
            call.kind = raw.kind;
            call.index = raw.index;
            call.creation = raw.creation;
            call.stream = raw.stream;
            call.ns = raw.ns;
            if (raw.kind == Call::Kind::launch) resolve_launches(r, raw, numbers, call);
            if (raw.kind == Call::Kind::capture) resolve_capture(r, raw, numbers, graphs[raw.index], call);
            if (raw.kind == Call::Kind::replay) resolve_replay(r, raw, graphs[raw.index], call);
            if (raw.kind == Call::Kind::forget) call.comm = raw.ops.front().comm;
            s_.ranks[r].calls.push_back(std::move(call));
        }
    }
}

void Draft::resolve_launches(std::uint32_t r, const RawCall& raw, std::map<std::uint32_t, Numbers>& numbers, Call& call) {
    // Communicators that share a stream are one launch, and those whose kernels NCCL runs in an order of its own.
    const auto family = [this](const RawOp& op) { return s_.comms[op.comm].family; };
    std::vector<std::vector<RawOp>> sets;
    for (const RawOp& op : raw.ops) {
        std::vector<RawOp> joined{op};
        for (std::size_t i = 0; i < sets.size();) {
            const bool meets = std::any_of(sets[i].begin(), sets[i].end(), [&](const RawOp& o) {
                return family(o) == family(op) || o.stream == op.stream;
            });
            if (!meets) {
                ++i;
                continue;
            }
            joined.insert(joined.begin(), sets[i].begin(), sets[i].end());
            sets.erase(sets.begin() + static_cast<std::ptrdiff_t>(i));
        }
        sets.push_back(std::move(joined));
    }
    for (const auto& set : sets) {
        LaunchPlan launch;
        launch.stream = set.front().stream;
        for (const RawOp& op : set) {
            auto& others = launch.other_streams;
            if (op.stream != launch.stream && std::find(others.begin(), others.end(), op.stream) == others.end())
                others.push_back(op.stream);
            add_op(r, op, numbers[op.comm], launch, call);
        }
        add_kernels(launch);
        call.launches.push_back(std::move(launch));
    }
}

// Connections are made at the capture, and are not captured.
void Draft::resolve_capture(std::uint32_t r, const RawCall& raw, std::map<std::uint32_t, Numbers>& numbers,
                            Graph& graph, Call& call) {
    for (const RawOp& op : raw.ops) {
        const std::uint64_t n = numbers[op.comm].captured++;
        graph.numbers.push_back(n);
        LaunchPlan& launch = call.launches.emplace_back();
        launch.stream = raw.stream;
        launch.ops.push_back({op.comm, op.kind, op.peer, n, 1, false});
        add_first_uses(r, op, numbers[op.comm], false, call);
    }
}

void Draft::resolve_replay(std::uint32_t r, const RawCall& raw, Graph& graph, Call& call) {
    for (std::size_t i = 0; i < raw.ops.size(); ++i) {
        const RawOp& op = raw.ops[i];
        const std::uint64_t n = replayed_key(graph.numbers[i], graph.replays);
        LaunchPlan& launch = call.launches.emplace_back();
        launch.stream = raw.stream;
        launch.ops.push_back({op.comm, op.kind, op.peer, n, 1, false});
        launch.parts.push_back(part_of(r, op, n, false));
        add_kernels(launch);
    }
    ++graph.replays;
}

void Draft::add_kernels(LaunchPlan& launch) const {
    for (const Part& part : launch.parts) {
        auto kernel = std::find_if(launch.kernels.begin(), launch.kernels.end(),
                                   [&](const KernelPlan& k) { return k.comm == part.comm; });
        if (kernel == launch.kernels.end()) kernel = launch.kernels.insert(kernel, {part.comm, {}});
        kernel->parts.push_back(part);
    }
    std::sort(launch.kernels.begin(), launch.kernels.end(),
              [this](const KernelPlan& a, const KernelPlan& b) { return s_.comms[a.comm].hash < s_.comms[b.comm].hash; });
}

void Draft::add_op(std::uint32_t r, const RawOp& op, Numbers& numbers, LaunchPlan& launch, Call& call) {
    std::uint64_t& next = !is_transfer(op.kind)     ? numbers.collectives
                          : op.kind == OpKind::send ? numbers.sends[op.peer]
                                                    : numbers.receives[op.peer];
    const std::uint64_t n = next++;
    const Part part = part_of(r, op, n, false);
    const bool empty = s_.flows[part.flow].empty;
    const auto same = std::find_if(launch.ops.begin(), launch.ops.end(), [&](const OpPlan& o) {
        return o.comm == op.comm && o.kind == op.kind && o.peer == op.peer && o.n + o.count == n && o.empty == empty;
    });
    if (same != launch.ops.end())
        ++same->count;
    else
        launch.ops.push_back({op.comm, op.kind, op.peer, n, 1, empty});
    launch.parts.push_back(part);
    add_first_uses(r, op, numbers, empty, call);
}

void Draft::add_first_uses(std::uint32_t r, const RawOp& op, Numbers& numbers, bool empty, Call& call) {
    for (const RawOp& use : first_uses(r, op, numbers)) {
        call.first_uses.push_back({use.comm, use.kind, use.peer, 0, 1, empty});
        call.first_parts.push_back(part_of(r, use, 0, true));
    }
}

// What NCCL connects for it: the ring, once; of transfers, and of what is made of them, the pairs that it lacks.
std::vector<RawOp> Draft::first_uses(std::uint32_t r, const RawOp& op, Numbers& numbers) const {
    std::vector<RawOp> uses;
    const auto pair = [&](OpKind direction, std::uint32_t peer) {
        if (numbers.pairs.emplace(direction, peer).second) uses.push_back({op.comm, direction, peer, op.stream});
    };
    if (is_transfer(op.kind)) {
        pair(op.kind, op.peer);
    } else if (is_mesh(op.kind)) {
        const CommPlan& comm = s_.comms[op.comm];
        const std::uint32_t self = rank_in(comm, r);
        for (std::uint32_t peer = 0; peer < comm.ranks.size(); ++peer) {
            if (peer == self || (op.kind != OpKind::all_to_all && op.peer != self && op.peer != peer)) continue;
            if (op.kind == OpKind::all_to_all || (op.kind == OpKind::scatter) == (op.peer == self))
                pair(OpKind::send, peer);
            if (op.kind == OpKind::all_to_all || (op.kind == OpKind::gather) == (op.peer == self))
                pair(OpKind::recv, peer);
        }
    } else if (!std::exchange(numbers.ring, true)) {
        uses.push_back(op);
    }
    return uses;
}

std::uint32_t Draft::rank_in(const CommPlan& comm, std::uint32_t rank) const {
    return static_cast<std::uint32_t>(std::find(comm.ranks.begin(), comm.ranks.end(), rank) - comm.ranks.begin());
}

Part Draft::part_of(std::uint32_t r, const RawOp& op, std::uint64_t n, bool conn) {
    const CommPlan& comm = s_.comms[op.comm];
    const auto self = static_cast<std::uint32_t>(std::find(comm.ranks.begin(), comm.ranks.end(), r) - comm.ranks.begin());
    Key key{comm.id, conn ? KeyKind::conn : KeyKind::coll, 0, 0, n};
    const bool sends = op.kind == OpKind::send;
    if (is_transfer(op.kind)) {
        key.kind = conn ? KeyKind::conn_p2p : KeyKind::p2p;
        key.src = sends ? self : op.peer;
        key.dst = sends ? op.peer : self;
    }
    const auto [it, fresh] = flows_.try_emplace(key, static_cast<FlowIndex>(s_.flows.size()));
    if (fresh) s_.flows.push_back(plan_flow(op, key, conn));
    return {it->second, op.comm, sends};
}

FlowPlan Draft::plan_flow(const RawOp& op, const Key& key, bool conn) const {
    Random random(hash_mix(std::hash<Key>{}(key), s_.seed));
    FlowPlan flow;
    flow.key = key;
    flow.comm = op.comm;
    const CommPlan& comm = s_.comms[op.comm];
    flow.members = is_transfer(op.kind) ? 2 : static_cast<std::uint32_t>(comm.ranks.size());
    flow.transfer_ns = conn ? random.between(10'000, 80'000) : random.spread(20'000, 4'000'000);
    flow.sender_ns = flow.transfer_ns;
    if (is_transfer(op.kind) && !conn) {
        flow.empty = random.chance(kEmpty);
        if (flow.empty) flow.sender_ns = flow.transfer_ns = random.between(2'000, 20'000);
        if (random.chance(400)) flow.sender_ns = flow.transfer_ns / (1 + random.below(4));
        if (random.chance(150)) {
            flow.eager = true;
            flow.transfer_ns = std::min<TimeNs>(flow.transfer_ns, 100'000);
        }
    }
    flow.pairs =
        is_transfer(op.kind) ? pairs_of_transfer(comm, key.src, key.dst) : pairs_of_collective(comm, is_mesh(op.kind));
    return flow;
}

// docs/design.md, section 5: a transfer crosses on the destination's rail where a member of its communicator has its index on
// the sender's node.
std::vector<PairIndex> Draft::pairs_of_transfer(const CommPlan& comm, std::uint32_t src, std::uint32_t dst) const {
    const Gpu &from = gpu_of(comm.ranks[src]), &to = gpu_of(comm.ranks[dst]);
    if (nccl_node(comm.ranks[src]) == nccl_node(comm.ranks[dst])) return {};
    const bool leads = std::any_of(comm.ranks.begin(), comm.ranks.end(), [&](std::uint32_t r) {
        return gpu_of(r).node == from.node && gpu_of(r).local == to.local;
    });
    const auto& out = s_.fabric.nodes[from.node].gpus;
    return {s_.pair_of(out[leads ? to.local : from.local], s_.fabric.nodes[to.node].gpus[to.local])};
}

bool Draft::keeps_rails(const std::vector<PairIndex>& pairs) const {
    const auto gpus = static_cast<PairIndex>(s_.fabric.gpus.size());
    return std::all_of(pairs.begin(), pairs.end(),
                       [&](PairIndex p) { return s_.fabric.gpus[p / gpus].rail == s_.fabric.gpus[p % gpus].rail; });
}

// The ring of nodes by first appearance, on every rail on which the hearing node has members; or what the transfers of each
// to each need.
std::vector<PairIndex> Draft::pairs_of_collective(const CommPlan& comm, bool mesh) const {
    std::vector<PairIndex> pairs;
    std::vector<NodeIndex> order;
    const auto size = static_cast<std::uint32_t>(comm.ranks.size());
    for (std::uint32_t src = 0; mesh && src < size; ++src)
        for (std::uint32_t dst = 0; dst < size; ++dst)
            for (const PairIndex pair : pairs_of_transfer(comm, src, dst)) pairs.push_back(pair);
    if (!mesh && s_.fabric.nodes[0].domain != kNone) {  // test/controller/core/job_ways.h says it apart from the cores
        Places places;
        for (const std::uint32_t r : comm.ranks) places.push_back({s_.ranks[r].node, s_.ranks[r].gpu, false, nccl_node(r)});
        ways_of_ring(places, kNone, [&](const Nic& a, const Nic& b) {
            pairs.push_back(s_.pair_of(s_.fabric.nodes[a.node].gpus[a.gpu], s_.fabric.nodes[b.node].gpus[b.gpu]));
        });
    } else {
        for (const std::uint32_t r : comm.ranks)
            if (std::find(order.begin(), order.end(), s_.ranks[r].node) == order.end()) order.push_back(s_.ranks[r].node);
    }
    for (std::size_t i = 0; !mesh && order.size() > 1 && i < order.size(); ++i) {
        const NodeIndex from = order[i], to = order[(i + 1) % order.size()];
        for (const std::uint32_t r : comm.ranks)
            if (s_.ranks[r].node == to)
                pairs.push_back(s_.pair_of(s_.fabric.nodes[from].gpus[s_.ranks[r].gpu],
                                           s_.fabric.nodes[to].gpus[s_.ranks[r].gpu]));
    }
    std::sort(pairs.begin(), pairs.end());
    pairs.erase(std::unique(pairs.begin(), pairs.end()), pairs.end());
    return pairs;
}

}  // namespace opus::sim
