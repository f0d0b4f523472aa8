#include "controller/core/membership/comm_table.h"

#include <algorithm>

#include "controller/core/schedule/inventory.h"

namespace opus::controller {

Comm* CommTable::find(const CommId& id) {
    const auto it = comms_.find(id);
    return it == comms_.end() ? nullptr : it->second.get();
}

Comm& CommTable::create(const CommId& id, std::uint32_t size, TimeNs now) {
    auto comm = std::make_unique<Comm>();
    comm->id = id;
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

// The first member on whose GPU another process is. kNone: there is none. Who has left it may have ended, and others be there.
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
        if (!comm.members[slot].gone) claims.push_back({comm.members[slot].gpu, comm.members[slot].rank, slot});
    if (!std::is_sorted(claims.begin(), claims.end())) std::sort(claims.begin(), claims.end());
    std::uint32_t first = kNone;
    for (std::size_t i = 1; i < claims.size(); ++i)  // none at all: all have left
        if (claims[i].gpu == claims[i - 1].gpu && claims[i].rank != claims[i - 1].rank)
            first = std::min(first, std::max(claims[i].slot, claims[i - 1].slot));
    return first;
}

// NCCL joins the hosts of an NVLink domain to one node where all members are in one and none forbids it (mnnvl.cc,
// ncclMnnvlCheck).
static bool has_domains(const Comm& comm, const Fabric& fabric) {
    return std::all_of(comm.members.begin(), comm.members.end(), [&](const Member& m) {
        return !m.registered || (fabric.nodes[m.node].domain != kNone && !m.own_host);
    });
}

// It runs, and which circuits it uses is not known before all members of a communicator of it are (after a restart).
// What is held back asks for no circuits of a communicator that passes.
// Of members that will not come again it needs no circuits; it does of those that are there.
static bool awaits_members(const Launch& launch) {
    if (!launch.open()) return false;
    bool known = true, some = false;
    for (const KeyRef& r : launch.keys) {
        const Comm& comm = *r.key->comm;
        if (comm.knows_circuits()) continue;
        if (!comm.settled) return true;
        known = false;
        std::uint32_t there = 0;
        for (std::uint32_t i = 0; i < r.key->members.size(); ++i)
            there += comm.members[slot_of(r.key->key, i)].registered;
        some |= there > 1;
    }
    return !known && !some;
}

bool asks(const Launch& launch) {
    return launch.waits() && !launch.no_light && launch.circuits_known == Known::yes && !awaits_members(launch);
}

Judgement judge(const Comm& comm, const Fabric& fabric) {
    if (comm.conflict) return {Verdict::passes, Reason::size};
    if (comm.inherited == Verdict::intra) return {Verdict::intra};  // who decided that has seen them all
    if (!comm.complete()) return {};
    if (comm.inherited != Verdict::unknown) return {comm.inherited};
    const bool domains = has_domains(comm, fabric);
    const auto node_of = [&](const Member& m) { return domains ? fabric.nodes[m.node].domain : m.node; };
    bool one_node = true;
    for (std::uint32_t slot = 0; slot < comm.size; ++slot) {
        const Member& m = comm.members[slot];
        if (m.mode != Mode::enforce) return {Verdict::passes, Reason::mode, slot};
        one_node &= node_of(m) == node_of(comm.members.front());
    }
    if (one_node) return {Verdict::intra};
    for (std::uint32_t slot = 0; slot < comm.size; ++slot)
        if (comm.members[slot].at_once) return {Verdict::passes, Reason::connects, slot};
    for (std::uint32_t slot = 0; slot < comm.size; ++slot)
        if (comm.members[slot].gpu == kNone) return {Verdict::passes, Reason::gpu, slot};
    if (const std::uint32_t slot = claims_another_ones(comm); slot != kNone)
        return {Verdict::passes, Reason::claimed, slot};
    return {Verdict::enforced};
}

// Of a node without such a GPU, another of its GPUs.
static GpuId gpu_of(const Nic& nic, const Fabric& fabric) {
    const auto& gpus = fabric.nodes[nic.node].gpus;
    return gpus[std::min<std::size_t>(nic.gpu, gpus.size() - 1)];
}

const Places& member_places(Comm& comm, const Fabric& fabric) {
    if (!comm.places.empty() || !comm.all_came()) return comm.places;
    const Member* there = nullptr;
    for (const Member& m : comm.members) {
        if (m.registered && m.gpu == kNone) return comm.places;
        if (m.registered && there == nullptr) there = &m;
    }
    if (there == nullptr) return comm.places;
    const bool domains = has_domains(comm, fabric);
    for (const Member& m : comm.members) {
        if (m.registered) there = &m;  // who will not come counts with the one before: so it adds no way
        comm.places.push_back({there->node, fabric.gpus[there->gpu].local, there->own_nic,
                               domains ? fabric.nodes[there->node].domain : kNone});
    }
    return comm.places;
}

std::vector<PairId> collective_pairs(Comm& comm, bool mesh, const Fabric& fabric, Inventory& inventory) {
    std::vector<PairId> pairs;
    ways_of_collective(member_places(comm, fabric), mesh, kNone, [&](const Nic& from, const Nic& to) {
        pairs.push_back(inventory.pair_between(gpu_of(from, fabric), gpu_of(to, fabric)));
    });
    std::sort(pairs.begin(), pairs.end());
    pairs.erase(std::unique(pairs.begin(), pairs.end()), pairs.end());
    return pairs;
}

PairId transfer_pair(Comm& comm, std::uint32_t src, std::uint32_t dst, const Fabric& fabric, Inventory& inventory) {
    const Member &from = comm.members[src], &to = comm.members[dst];
    if (!from.registered || !to.registered || from.gpu == kNone || to.gpu == kNone || from.node == to.node)
        return kNone;
    const NodeIndex domain = fabric.nodes[from.node].domain;
    const bool apart = domain == kNone || domain != fabric.nodes[to.node].domain;
    if (apart && fabric.gpus[from.gpu].local == fabric.gpus[to.gpu].local)
        return inventory.pair_between(from.gpu, to.gpu);
    const Places& places = member_places(comm, fabric);  // another member may send it on, or decide what a node is
    if (places.empty() || nccl_node_of(places[src]) == nccl_node_of(places[dst])) return kNone;
    // One that has left, and whose place nobody knows any more, may have sent it on: by the receiver's rail.
    const bool by_rail = !comm.complete() && !from.own_nic;
    const Nic nic = by_rail ? Nic{from.node, places[dst].gpu} : sending_nic(places, src, dst);
    return inventory.pair_between(gpu_of(nic, fabric), to.gpu);
}

}  // namespace opus::controller
