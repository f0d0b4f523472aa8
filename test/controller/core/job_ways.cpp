#include "test/controller/core/job_ways.h"

#include <algorithm>
#include <map>
#include <vector>

namespace opus::controller::test {

NodeIndex JobWays::nccl_node(std::size_t comm, std::size_t rank) const {
    const auto& members = job.comms[comm];
    const bool joined = domain != 0 && std::none_of(members.begin(), members.end(),
                                                    [this](std::size_t m) { return job.ranks[m].own_host; });
    return joined ? job.ranks[rank].node / domain : job.ranks[rank].node;
}

bool JobWays::intra(std::size_t comm) const {
    const auto& members = job.comms[comm];
    return std::all_of(members.begin(), members.end(),
                       [&](std::size_t m) { return nccl_node(comm, m) == nccl_node(comm, members.front()); });
}

NicPairs JobWays::transfer(std::size_t comm, std::size_t from, std::size_t to) const {
    if (nccl_node(comm, from) == nccl_node(comm, to)) return {};
    const RankSpec &src = job.ranks[from], &dst = job.ranks[to];
    const auto& members = job.comms[comm];
    const bool leads = !src.own_nic && std::any_of(members.begin(), members.end(), [&](std::size_t m) {
        return job.ranks[m].node == src.node && job.ranks[m].gpu == dst.gpu;
    });
    return {std::minmax(NicOf{src.node, leads ? dst.gpu : src.gpu}, NicOf{dst.node, dst.gpu})};
}

NicPairs JobWays::mesh(std::size_t comm) const {
    NicPairs pairs;
    for (const std::size_t from : job.comms[comm])
        for (const std::size_t to : job.comms[comm]) pairs.merge(transfer(comm, from, to));
    return pairs;
}

// One ring for each NIC by which a node can be entered and left: of hosts with another member's GPU, or of the only host. Where
// some node has none, one ring, in by the first GPU's NIC and out by the last one's.
NicPairs JobWays::ring(std::size_t comm) const {
    std::vector<NodeIndex> order;
    std::map<NodeIndex, std::vector<NicOf>> nics;  // of a node, by host in order, then local index
    for (const std::size_t m : job.comms[comm]) {
        const NodeIndex node = nccl_node(comm, m);
        if (!nics.contains(node)) order.push_back(node);
        auto& list = nics[node];
        const NicOf nic{job.ranks[m].node, job.ranks[m].gpu};
        const auto of_host = [&](const NicOf& n) { return n.first == nic.first; };
        const auto host = std::find_if(list.begin(), list.end(), of_host);
        const auto at = std::find_if(host, list.end(), [&](const NicOf& n) { return !of_host(n) || n >= nic; });
        if (at == list.end() || *at != nic) list.insert(at, nic);
    }
    std::map<NodeIndex, std::vector<std::vector<NicOf>>> doors;  // by host
    bool simple = false;
    for (const auto& [node, list] : nics) {
        for (auto begin = list.begin(); begin != list.end();) {
            const auto end = std::find_if(begin, list.end(), [&](const NicOf& n) { return n.first != begin->first; });
            if (end - begin > 1 || list.size() == 1) doors[node].emplace_back(begin, end);
            begin = end;
        }
        simple |= doors[node].empty();
    }
    NicPairs pairs;
    for (std::size_t i = 0; order.size() > 1 && i < order.size(); ++i) {
        const NodeIndex from = order[i], to = order[(i + 1) % order.size()];
        if (simple) {
            const NicOf out = doors[from].empty() ? nics[from].back() : doors[from].front().front();
            const NicOf in = doors[to].empty() ? nics[to].front() : doors[to].front().front();
            pairs.insert(std::minmax(out, in));
            continue;
        }
        for (std::size_t d = 0; d < doors[to].size(); ++d) {
            const NodeIndex host = doors[from][d % doors[from].size()].front().first;
            for (const NicOf& nic : doors[to][d]) pairs.insert(std::minmax(NicOf{host, nic.second}, nic));
        }
    }
    return pairs;
}

}  // namespace opus::controller::test
