#include "manager/core/circuits.h"

#include <algorithm>

namespace opus::manager {
namespace {

struct NodeMembers {
    NodeIndex node = kNone;
    std::vector<std::uint32_t> gpus;
};

// Nodes in NCCL's order: by first appearance.
std::vector<NodeMembers> nodes_of(const std::vector<wire::Place>& places) {
    std::vector<NodeMembers> nodes;
    for (const wire::Place& p : places) {
        auto at = std::find_if(nodes.begin(), nodes.end(), [&p](const NodeMembers& n) { return n.node == p.node; });
        if (at == nodes.end()) at = nodes.insert(nodes.end(), {p.node, {}});
        at->gpus.push_back(p.gpu);
    }
    return nodes;
}

}  // namespace

std::optional<std::vector<Reach>> circuits_of(const wire::KeyRange& range, const std::vector<wire::Place>& places,
                                              NodeIndex here) {
    const Key& key = range.first;
    const bool transfer = is_directed(key.kind);
    if (places.empty() || here == kNone || (transfer && std::max(key.src, key.dst) >= places.size()))
        return std::nullopt;
    std::vector<Reach> reaches;
    // Between two nodes, light joins the GPUs with the receiver's index.
    const auto reach = [&](NodeIndex node, std::uint32_t gpu) {
        if (node != here) reaches.push_back({gpu, {node, gpu}});
    };
    if (transfer) {
        const wire::Place &src = places[key.src], &dst = places[key.dst];
        if (src.node == here) reach(dst.node, dst.gpu);
        if (dst.node == here) reach(src.node, dst.gpu);
    } else {
        const std::vector<NodeMembers> nodes = nodes_of(places);
        for (std::size_t i = 0; i < nodes.size(); ++i)
            for (std::size_t k = 1; k < (range.mesh ? nodes.size() : std::min<std::size_t>(2, nodes.size())); ++k) {
                const NodeMembers& to = nodes[(i + k) % nodes.size()];
                if (nodes[i].node == here)
                    for (const std::uint32_t gpu : to.gpus) reach(to.node, gpu);
                if (to.node == here)
                    for (const std::uint32_t gpu : to.gpus) reach(nodes[i].node, gpu);
            }
    }
    std::sort(reaches.begin(), reaches.end());
    reaches.erase(std::unique(reaches.begin(), reaches.end()), reaches.end());
    return reaches;
}

}  // namespace opus::manager
