#include "controller/core/comm_table.h"

#include <algorithm>

#include "controller/core/inventory.h"

namespace opus::controller {

Comm* CommTable::find(const CommId& id) {
    const auto it = comms_.find(id);
    return it == comms_.end() ? nullptr : it->second.get();
}

Comm& CommTable::create(const CommId& id, const CommId& parent, std::uint32_t size, TimeNs now) {
    auto comm = std::make_unique<Comm>();
    comm->id = id;
    comm->parent = parent;
    comm->number = next_number_++;
    comm->size = size;
    comm->since_ns = now;
    comm->members.resize(size);
    in_order_[comm->number] = comm.get();
    return *(comms_[id] = std::move(comm));
}

void CommTable::erase(Comm& comm) {
    in_order_.erase(comm.number);
    comms_.erase(CommId(comm.id));
}

Comm* CommTable::by_number(std::uint64_t number) {
    const auto it = in_order_.find(number);
    return it == in_order_.end() ? nullptr : it->second;
}

// The first member on whose GPU another process is. kNone: there is none.
static std::uint32_t claims_another_ones(const Comm& comm) {
    struct Claim {
        GpuId gpu;
        RankId rank;
        std::uint32_t slot;
        auto operator<=>(const Claim&) const = default;
    };
    std::vector<Claim> claims;
    claims.reserve(comm.size);
    for (std::uint32_t slot = 0; slot < comm.size; ++slot)
        claims.push_back({comm.members[slot].gpu, comm.members[slot].rank, slot});
    if (!std::is_sorted(claims.begin(), claims.end())) std::sort(claims.begin(), claims.end());
    std::uint32_t first = kNone;
    for (std::size_t i = 1; i < claims.size(); ++i)
        if (claims[i].gpu == claims[i - 1].gpu && claims[i].rank != claims[i - 1].rank)
            first = std::min(first, std::max(claims[i].slot, claims[i - 1].slot));
    return first;
}

Judgement judge(const Comm& comm) {
    if (comm.conflict) return {Verdict::passes, Reason::size};
    if (!comm.complete()) return {};
    if (comm.inherited != Verdict::unknown) return {comm.inherited};
    bool one_node = true;
    for (std::uint32_t slot = 0; slot < comm.size; ++slot) {
        const Member& m = comm.members[slot];
        if (m.mode != Mode::enforce) return {Verdict::passes, Reason::mode, slot};
        if (m.gone) return {Verdict::passes, Reason::left, slot};
        one_node &= m.node == comm.members.front().node;
    }
    if (one_node) return {Verdict::intra};
    for (std::uint32_t slot = 0; slot < comm.size; ++slot)
        if (comm.members[slot].gpu == kNone) return {Verdict::passes, Reason::gpu, slot};
    if (const std::uint32_t slot = claims_another_ones(comm); slot != kNone)
        return {Verdict::passes, Reason::claimed, slot};
    return {Verdict::enforced};
}

namespace {

struct NodeOrder {
    std::vector<NodeIndex> nodes;                    // by first appearance
    std::vector<std::vector<std::uint32_t>> locals;  // local indices with a member, sorted
};

NodeOrder node_order(const Comm& comm, const Fabric& fabric) {
    NodeOrder order;
    std::unordered_map<NodeIndex, std::size_t> place;
    for (const Member& m : comm.members) {
        const auto [it, fresh] = place.try_emplace(m.node, order.nodes.size());
        if (fresh) {
            order.nodes.push_back(m.node);
            order.locals.emplace_back();
        }
        order.locals[it->second].push_back(fabric.gpus[m.gpu].local);
    }
    for (auto& locals : order.locals) {
        std::sort(locals.begin(), locals.end());
        locals.erase(std::unique(locals.begin(), locals.end()), locals.end());
    }
    return order;
}

}  // namespace

GpuId sender_gpu(const Node& from, const Gpu& to) {
    return from.gpus[to.local < from.gpus.size() ? to.local : from.gpus.size() - 1];
}

std::vector<EdgeId> collective_edges(const Comm& comm, bool mesh, const Fabric& fabric, Inventory& inventory) {
    const NodeOrder order = node_order(comm, fabric);
    const std::size_t count = order.nodes.size();
    std::vector<EdgeId> edges;
    const auto join = [&](std::size_t from, std::size_t to) {
        const Node& receiver = fabric.nodes[order.nodes[to]];
        for (const std::uint32_t local : order.locals[to]) {
            const Gpu& gpu = fabric.gpus[receiver.gpus[local]];
            edges.push_back(inventory.edge_between(sender_gpu(fabric.nodes[order.nodes[from]], gpu), receiver.gpus[local]));
        }
    };
    for (std::size_t n = 0; n < count && count > 1; ++n) {
        if (!mesh) join(n, (n + 1) % count);
        for (std::size_t m = 0; mesh && m < count; ++m)
            if (m != n) join(n, m);
    }
    std::sort(edges.begin(), edges.end());
    edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
    return edges;
}

}  // namespace opus::controller
