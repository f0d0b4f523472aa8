#include "controller/core/world.h"

namespace opus::controller {

World::World(const Fabric& f, const CoreOptions& o)
    : fabric(f), options(o), inventory(f), planner(inventory), nodes(f.nodes.size()) {}

Rank* World::rank_of(NodeIndex node, RankId rank) {
    const auto it = nodes[node].ranks.find(rank);
    return it == nodes[node].ranks.end() ? nullptr : &it->second;
}

Launch* World::launch_of(const LaunchId& id) {
    Rank* rank = rank_of(id.node, id.rank);
    if (rank == nullptr) return nullptr;
    const auto it = rank->launches.find(id.seq);
    return it == rank->launches.end() ? nullptr : it->second.get();
}

std::string World::name(const LaunchId& id) const {
    const std::string node = id.node < fabric.nodes.size() ? fabric.nodes[id.node].name : "?";
    return node + ".r" + std::to_string(id.rank) + " launch " + std::to_string(id.seq);
}

std::string World::name_of_member(const Comm& comm, std::uint32_t slot) const {
    const Member& m = comm.members[slot];
    std::string who = "rank " + std::to_string(slot) + " of " + std::to_string(comm.size);
    if (!m.registered) return who;
    return (m.gpu != kNone ? fabric.gpus[m.gpu].name : fabric.nodes[m.node].name) + " (" + who + ")";
}

}  // namespace opus::controller
