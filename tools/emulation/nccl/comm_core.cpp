// Over which NICs the members of a communicator speak, as NCCL decides it.
#include "comm_core.h"

#include <algorithm>

namespace opus::standin {

namespace {

struct Host {
    std::uint32_t node = 0;
    std::vector<std::uint32_t> ranks;
    std::vector<std::uint8_t> gpus;  // sorted
};

// One of NCCL's nodes: hosts by first appearance.
struct Stop {
    std::uint32_t node = 0;
    std::vector<Host> hosts;

    // A ring leaves by the NIC that it came in by, from another GPU of that host (search.cc, ncclTopoSearchCheckNet with
    // NCCL_CROSS_NIC=0). Null: there is none, and NCCL takes the GPUs in "simple order" (ncclTopoCompute).
    const Host* door() const {
        if (hosts.size() == 1) return &hosts.front();
        const auto at = std::find_if(hosts.begin(), hosts.end(), [](const Host& h) { return h.gpus.size() > 1; });
        return at == hosts.end() ? nullptr : &*at;
    }
    std::uint8_t in() const { return door() ? door()->gpus.front() : hosts.front().gpus.front(); }
    std::uint8_t out() const { return door() ? door()->gpus.front() : hosts.back().gpus.front(); }
    // From the door to the door.
    std::vector<std::uint32_t> order() const {
        std::vector<std::uint32_t> ranks;
        const Host* first = door();
        if (first) ranks.push_back(first->ranks.front());
        for (const Host& h : hosts)
            if (&h != first) ranks.insert(ranks.end(), h.ranks.begin(), h.ranks.end());
        if (first) ranks.insert(ranks.end(), first->ranks.begin() + 1, first->ranks.end());
        return ranks;
    }
};

template <class List>
auto& entry_of(List& list, std::uint32_t node) {
    auto at = std::find_if(list.begin(), list.end(), [node](const auto& e) { return e.node == node; });
    if (at == list.end()) {
        list.emplace_back();
        list.back().node = node;
        return list.back();
    }
    return *at;
}

}  // namespace

// Where all members are in NVLink domains, each of these is a node (mnnvl.cc, ncclMnnvlCheck); else each host.
void CommCore::lay_ring() {
    const bool domains = std::all_of(members.begin(), members.end(), [](const Member& m) { return m.domain != 0; });
    nccl_nodes.clear();
    for (const Member& m : members) nccl_nodes.push_back(domains ? m.domain : m.node);
    std::vector<Stop> stops;
    for (std::uint32_t r = 0; r < size(); ++r) {
        Host& host = entry_of(entry_of(stops, nccl_nodes[r]).hosts, members[r].node);
        const auto gpu = static_cast<std::uint8_t>(members[r].gpu);
        host.ranks.push_back(r);
        const auto at = std::lower_bound(host.gpus.begin(), host.gpus.end(), gpu);
        if (at == host.gpus.end() || *at != gpu) host.gpus.insert(at, gpu);
    }
    ring.clear();
    for (const Stop& stop : stops)
        for (const std::uint32_t r : stop.order()) ring.push_back(r);
    position = static_cast<std::uint32_t>(std::find(ring.begin(), ring.end(), rank) - ring.begin());

    const bool simple = std::any_of(stops.begin(), stops.end(), [](const Stop& s) { return s.door() == nullptr; });
    const auto ways = [&](std::uint32_t from, std::uint32_t to) {
        std::vector<Way> all;
        if (same_node(from, to)) return std::vector<Way>{kNvlink};
        const Stop &sends = entry_of(stops, nccl_nodes[from]), &receives = entry_of(stops, nccl_nodes[to]);
        if (simple) return std::vector<Way>{{sends.out(), receives.in()}};
        for (const std::uint8_t gpu : receives.door()->gpus) all.push_back({gpu, gpu});
        return all;
    };
    ways_in = ways(previous(), rank);
    ways_out = ways(rank, next());
}

// Out by the NIC of the receiver's index where the communicator has a rank with that index on the host, else by one's own
// (search.cc, ncclTopoGetNetDev); in by one's own.
Way CommCore::transfer_way(std::uint32_t src, std::uint32_t dst) const {
    const Member &from = members[src], &to = members[dst];
    if (same_node(src, dst)) return kNvlink;
    const bool leads = from.own_nic == 0 && std::any_of(members.begin(), members.end(), [&](const Member& m) {
        return m.node == from.node && m.gpu == to.gpu;
    });
    return {static_cast<std::uint8_t>(leads ? to.gpu : from.gpu), static_cast<std::uint8_t>(to.gpu)};
}

bool CommCore::crosses() const {
    return std::any_of(nccl_nodes.begin(), nccl_nodes.end(), [this](std::uint32_t n) { return n != nccl_nodes.front(); });
}

}  // namespace opus::standin
