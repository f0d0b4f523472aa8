// By which NICs NCCL's bytes go from member to member of a communicator. Controller and managers both plan by this; what
// simulates or stands in for NCCL says it again, apart.
//
// NCCL 2.30, graph/search.cc, ncclTopoGetNetDev: who receives uses the NIC of its own GPU. Who sends a transfer uses the NIC of
// the receiver's local index if the communicator has a rank with that index on the sender's host (by PXN, or directly with
// NCCL_CROSS_NIC=0), else that of its own GPU.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "opus/wire.h"

namespace opus {

using Places = std::vector<wire::Place>;  // of a communicator's members, by rank

struct Nic {  // of a GPU: all its ports
    NodeIndex node = kNone;
    std::uint32_t gpu = kNone;  // local
    auto operator<=>(const Nic&) const = default;
};

inline Nic nic_of(const wire::Place& p) { return {p.node, p.gpu}; }

inline Nic sending_nic(const Places& places, std::uint32_t src, std::uint32_t dst) {
    const Nic own = nic_of(places[src]), rail{own.node, places[dst].gpu};
    const bool leads = !places[src].own_nic &&
                       std::any_of(places.begin(), places.end(), [&](const wire::Place& p) { return nic_of(p) == rail; });
    return leads ? rail : own;
}

// Members of one node.
struct PlacedNode {
    NodeIndex node = kNone;
    std::uint64_t gpus = 0;  // bits: local indices
    std::uint64_t own = 0;   // of those that send by their own NIC
};

// Nodes in NCCL's order: by first appearance.
inline std::vector<PlacedNode> nodes_of(const Places& places) {
    std::vector<PlacedNode> nodes;
    for (const wire::Place& p : places) {
        auto at = !nodes.empty() && nodes.back().node == p.node
                      ? nodes.end() - 1
                      : std::find_if(nodes.begin(), nodes.end(), [&p](const PlacedNode& n) { return n.node == p.node; });
        if (at == nodes.end()) at = nodes.insert(nodes.end(), PlacedNode{p.node, 0, 0});
        at->gpus |= 1ull << p.gpu;
        if (p.own_nic) at->own |= 1ull << p.gpu;
    }
    return nodes;
}

template <class F>
void for_each_gpu(std::uint64_t gpus, F&& f) {
    for (; gpus != 0; gpus &= gpus - 1) f(static_cast<std::uint32_t>(std::countr_zero(gpus)));
}

// f(from, to) for each way of a collective; some are told twice. A ring of nodes, on every rail on which the next node has
// members; or the transfers of all to all. `only`: ways that begin or end at that node; kNone: all.
template <class F>
void ways_of_collective(const Places& places, bool mesh, NodeIndex only, F&& f) {
    const std::vector<PlacedNode> nodes = nodes_of(places);
    for (std::size_t i = 0; i < nodes.size(); ++i)
        for (std::size_t k = 1; k < (mesh ? nodes.size() : std::min<std::size_t>(2, nodes.size())); ++k) {
            const PlacedNode &from = nodes[i], &to = nodes[(i + k) % nodes.size()];
            if (only != kNone && from.node != only && to.node != only) continue;
            for_each_gpu(to.gpus, [&](std::uint32_t r) {
                const bool leads = !mesh || ((from.gpus >> r) & 1) != 0;
                if (leads) f(Nic{from.node, r}, Nic{to.node, r});
                if (!mesh) return;
                for_each_gpu(leads ? from.own : from.gpus,
                             [&](std::uint32_t s) { f(Nic{from.node, s}, Nic{to.node, r}); });
            });
        }
}

}  // namespace opus
