// By which NICs NCCL's bytes go from member to member of a communicator. Controller and managers both plan by this; what
// simulates or stands in for NCCL implements it a second time, independently.
//
// NCCL 2.30, graph/search.cc, ncclTopoGetNetDev: who receives uses the NIC of its own GPU. Who sends a transfer uses the NIC of
// the receiver's local index if the communicator has a rank with that index on the sender's host (by PXN, or directly with
// NCCL_CROSS_NIC=0), else that of its own GPU. A node of NCCL's is a host, or all hosts of an NVLink domain (mnnvl.cc): rings run
// from one to the next, each by the NICs of its own (search.cc, ncclTopoSearchCheckNet).
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

// Inside one, NVLink carries everything.
inline NodeIndex nccl_node_of(const wire::Place& p) { return p.domain != kNone ? p.domain : p.node; }

inline Nic sending_nic(const Places& places, std::uint32_t src, std::uint32_t dst) {
    const Nic own = nic_of(places[src]), rail{own.node, places[dst].gpu};
    const bool leads = !places[src].own_nic &&
                       std::any_of(places.begin(), places.end(), [&](const wire::Place& p) { return nic_of(p) == rail; });
    return leads ? rail : own;
}

// Members of one host.
struct PlacedHost {
    NodeIndex node = kNone;
    NodeIndex nccl_node = kNone;
    std::uint64_t gpus = 0;  // bits: local indices
    std::uint64_t own = 0;   // of those that send by their own NIC
    Nic first() const { return {node, static_cast<std::uint32_t>(std::countr_zero(gpus))}; }
};

// By first appearance.
inline std::vector<PlacedHost> hosts_of(const Places& places) {
    std::vector<PlacedHost> hosts;
    for (const wire::Place& p : places) {
        auto at = !hosts.empty() && hosts.back().node == p.node
                      ? hosts.end() - 1
                      : std::find_if(hosts.begin(), hosts.end(), [&p](const PlacedHost& h) { return h.node == p.node; });
        if (at == hosts.end()) at = hosts.insert(hosts.end(), PlacedHost{p.node, nccl_node_of(p), 0, 0});
        at->gpus |= 1ull << p.gpu;
        if (p.own_nic) at->own |= 1ull << p.gpu;
    }
    return hosts;
}

template <class F>
void for_each_gpu(std::uint64_t gpus, F&& f) {
    for (; gpus != 0; gpus &= gpus - 1) f(static_cast<std::uint32_t>(std::countr_zero(gpus)));
}

// Where rings come into one of NCCL's nodes, and leave it. One that may not change NICs leaves by the NIC that it came in by,
// from another GPU of that host. So it can do so where the host has several, or is alone; else NCCL has one ring in "simple
// order" (ncclTopoCompute), in by the first GPU's NIC, out by the last one's.
struct RingStop {
    NodeIndex nccl_node = kNone;
    std::vector<PlacedHost> hosts;
    std::vector<PlacedHost> doors;
    Nic in() const { return doors.empty() ? hosts.front().first() : doors.front().first(); }
    Nic out() const { return doors.empty() ? hosts.back().first() : doors.front().first(); }
};

// By first appearance.
inline std::vector<RingStop> ring_of(const std::vector<PlacedHost>& hosts) {
    std::vector<RingStop> stops;
    for (const PlacedHost& host : hosts) {
        auto at = std::find_if(stops.begin(), stops.end(), [&](const RingStop& s) { return s.nccl_node == host.nccl_node; });
        if (at == stops.end()) at = stops.insert(stops.end(), RingStop{host.nccl_node, {}, {}});
        at->hosts.push_back(host);
    }
    for (RingStop& stop : stops)
        for (const PlacedHost& host : stop.hosts)
            if (stop.hosts.size() == 1 || std::popcount(host.gpus) > 1) stop.doors.push_back(host);
    return stops;
}

// f(from, to) for each way of a ring; `only`: those that begin or end at that node; kNone: all.
template <class F>
void ways_of_ring(const Places& places, NodeIndex only, F&& f) {
    const std::vector<RingStop> stops = ring_of(hosts_of(places));
    const auto tell = [&](const Nic& from, const Nic& to) {
        if (only == kNone || from.node == only || to.node == only) f(from, to);
    };
    const bool simple = std::any_of(stops.begin(), stops.end(), [](const RingStop& s) { return s.doors.empty(); });
    for (std::size_t i = 0; stops.size() > 1 && i < stops.size(); ++i) {
        const RingStop &from = stops[i], &to = stops[(i + 1) % stops.size()];
        if (simple) tell(from.out(), to.in());
        for (std::size_t d = 0; !simple && d < to.doors.size(); ++d) {
            const NodeIndex out = from.doors[d % from.doors.size()].node, in = to.doors[d].node;
            for_each_gpu(to.doors[d].gpus, [&](std::uint32_t r) { tell({out, r}, {in, r}); });
        }
    }
}

// The same for the transfers of all to all; some are told twice.
template <class F>
void ways_of_mesh(const Places& places, NodeIndex only, F&& f) {
    const std::vector<PlacedHost> hosts = hosts_of(places);
    for (const PlacedHost& from : hosts)
        for (const PlacedHost& to : hosts) {
            if (from.nccl_node == to.nccl_node || (only != kNone && from.node != only && to.node != only)) continue;
            for_each_gpu(to.gpus, [&](std::uint32_t r) {
                const bool leads = ((from.gpus >> r) & 1) != 0;
                if (leads) f(Nic{from.node, r}, Nic{to.node, r});
                for_each_gpu(leads ? from.own : from.gpus,
                             [&](std::uint32_t s) { f(Nic{from.node, s}, Nic{to.node, r}); });
            });
        }
}

template <class F>
void ways_of_collective(const Places& places, bool mesh, NodeIndex only, F&& f) {
    mesh ? ways_of_mesh(places, only, f) : ways_of_ring(places, only, f);
}

}  // namespace opus
