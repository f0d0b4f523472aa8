#include "manager/core/circuits.h"

#include <algorithm>

namespace opus::manager {

std::optional<std::vector<Reach>> circuits_of(const wire::KeyRange& range, const Places& places, NodeIndex here) {
    const Key& key = range.first;
    const bool transfer = is_directed(key.kind);
    if (places.empty() || here == kNone || (transfer && std::max(key.src, key.dst) >= places.size()))
        return std::nullopt;
    std::vector<Reach> reaches;
    const auto reach = [&](const Nic& from, const Nic& to) {
        if (from.node == here) reaches.push_back({from.gpu, to});
        if (to.node == here) reaches.push_back({to.gpu, from});
    };
    if (!transfer)
        ways_of_collective(places, range.mesh, here, reach);
    else if (nccl_node_of(places[key.src]) != nccl_node_of(places[key.dst]))
        reach(sending_nic(places, key.src, key.dst), nic_of(places[key.dst]));
    std::sort(reaches.begin(), reaches.end());
    reaches.erase(std::unique(reaches.begin(), reaches.end()), reaches.end());
    return reaches;
}

}  // namespace opus::manager
