#include "tools/sim/job_map.h"

#include <algorithm>

#include "opus/ways.h"

namespace opus::sim {
namespace {

using replay::StepKind;

bool is_transfer(const replay::Step& s) { return s.kind == StepKind::send || s.kind == StepKind::recv; }
bool is_mesh(const replay::Step& s) {
    return s.kind == StepKind::all_to_all || s.kind == StepKind::gather || s.kind == StepKind::scatter;
}

void add_pair(std::vector<GpuPair>& pairs, GpuId x, GpuId y) {
    if (x == y) return;
    const GpuPair pair = std::minmax(x, y);
    if (std::find(pairs.begin(), pairs.end(), pair) == pairs.end()) pairs.push_back(pair);
}

Fabric fabric_of(const replay::Workload& w, std::uint32_t ports, TimeNs dark_ns, double gbps) {
    const std::uint32_t nodes = w.nodes();
    std::uint32_t gpus = 0;
    for (const replay::Place& p : w.places) gpus = std::max(gpus, p.gpu + 1);
    Fabric fabric;
    fabric.name = w.name;
    for (std::uint32_t g = 0; g < gpus; ++g) {
        Switch sw;
        sw.name = "ocs-r" + std::to_string(g);
        sw.driver = "null";
        sw.ingress = nodes * ports;
        sw.dark_ns = dark_ns;
        fabric.rails.push_back({"r" + std::to_string(g), {g}, {}, gbps});
        fabric.switches.push_back(std::move(sw));
    }
    for (std::uint32_t n = 0; n < nodes; ++n) {
        fabric.nodes.push_back({"n" + std::to_string(n), {}});
        for (std::uint32_t g = 0; g < gpus; ++g) {
            const auto id = static_cast<GpuId>(fabric.gpus.size());
            Gpu gpu{fabric.nodes[n].name + ".g" + std::to_string(g), n, g, g, {}, {}, {}};
            for (std::uint32_t p = 0; p < ports; ++p) {
                gpu.ports.push_back(static_cast<PortId>(fabric.ports.size()));
                fabric.ports.push_back({gpu.name + ".p" + std::to_string(p), id, p, g, n * ports + p + 1});
            }
            fabric.nodes[n].gpus.push_back(id);
            fabric.rails[g].gpus.push_back(id);
            fabric.gpus.push_back(std::move(gpu));
        }
    }
    return fabric;
}

}  // namespace

OpKind kind_of(StepKind kind) {
    switch (kind) {
        case StepKind::all_reduce: return OpKind::all_reduce;
        case StepKind::all_gather: return OpKind::all_gather;
        case StepKind::reduce_scatter: return OpKind::reduce_scatter;
        case StepKind::reduce: return OpKind::reduce;
        case StepKind::broadcast: return OpKind::broadcast;
        case StepKind::all_to_all: return OpKind::all_to_all;
        case StepKind::gather: return OpKind::gather;
        case StepKind::scatter: return OpKind::scatter;
        case StepKind::send: return OpKind::send;
        case StepKind::recv: return OpKind::recv;
        default: return OpKind::none;
    }
}

JobMap::JobMap(const replay::Workload& workload, std::uint32_t ports, TimeNs dark_ns, double bytes_per_us, double packet_share)
    : workload_(&workload),
      packet_share_(packet_share),
      members_(workload),
      fabric_(fabric_of(workload, ports, dark_ns, bytes_per_us * 8 / 1e3 / ports)),
      ranks_(fabric_.nodes.size()) {
    for (std::uint32_t r = 0; r < workload.world(); ++r) {
        auto& here = ranks_[node_of(r)];
        local_.push_back(static_cast<RankId>(here.size()));
        here.push_back(r);
    }
}

std::uint32_t JobMap::comm_entry(std::uint32_t rank, std::uint32_t comm) const {
    std::uint32_t entry = 0;
    for (std::uint32_t c = 0; c < comm; ++c) entry += members_.of(c, rank).group != replay::kNobody;
    return entry;
}

const std::vector<std::uint32_t>& JobMap::group_of(const replay::Step& step, std::uint32_t rank) const {
    const replay::Comm& comm = workload_->comms[step.comm];
    return comm.groups[members_.of(step.comm, rank).group];
}

bool JobMap::crosses(const replay::Step& step, std::uint32_t rank) const {
    const auto& group = group_of(step, rank);
    const NodeIndex node = node_of(rank);
    if (is_transfer(step)) return node_of(group[step.peer]) != node;
    return std::any_of(group.begin(), group.end(), [&](std::uint32_t r) { return node_of(r) != node; });
}

void JobMap::add_pairs(const replay::Step& step, std::uint32_t rank, std::vector<GpuPair>& pairs) const {
    if (!crosses(step, rank)) return;
    Places places;
    for (const std::uint32_t r : group_of(step, rank)) places.push_back({node_of(r), workload_->places[r].gpu});
    const auto add = [&](const Nic& from, const Nic& to) {
        add_pair(pairs, fabric_.nodes[from.node].gpus[from.gpu], fabric_.nodes[to.node].gpus[to.gpu]);
    };
    if (!is_transfer(step)) return ways_of_collective(places, is_mesh(step), kNone, add);
    const std::uint32_t me = members_.of(step.comm, rank).rank;
    const auto [src, dst] = step.kind == StepKind::send ? std::pair(me, step.peer) : std::pair(step.peer, me);
    add(sending_nic(places, src, dst), nic_of(places[dst]));
}

ring::OpEntry JobMap::record(const replay::Step& step, std::uint32_t rank, double length) {
    ring::OpEntry op{};
    op.kind = static_cast<std::uint8_t>(kind_of(step.kind));
    op.comm = static_cast<std::uint16_t>(comm_entry(rank, step.comm));
    op.peer = is_transfer(step) || replay::is_rooted(step.kind) ? step.peer : 0;
    const int direction = step.kind == StepKind::send ? 1 : step.kind == StepKind::recv ? 2 : 0;
    op.n = counts_[{rank, step.comm, direction != 0 ? step.peer : 0, direction}]++;
    op.count = 1;
    op.bytes = static_cast<std::uint64_t>(static_cast<double>(step.bytes) * length);
    return op;
}

std::vector<std::uint32_t> most_circuits(const std::vector<GpuPair>& pairs, std::uint32_t ports) {
    std::map<GpuId, std::uint32_t> left;
    std::vector<std::uint32_t> circuits(pairs.size(), 0);
    for (const GpuPair& p : pairs) left[p.first] = left[p.second] = ports;
    for (bool added = true; added;) {
        added = false;
        for (std::size_t i = 0; i < pairs.size(); ++i) {
            std::uint32_t &x = left[pairs[i].first], &y = left[pairs[i].second];
            if (x == 0 || y == 0) {
                if (circuits[i] == 0) return {};
                continue;
            }
            --x, --y, ++circuits[i];
            added = true;
        }
    }
    return circuits;
}

const LaunchPairs::Pairs& LaunchPairs::of(const std::vector<const replay::Step*>& operations, std::uint32_t rank) {
    name_.clear();
    for (const replay::Step* step : operations) {
        const replay::Membership m = map_.membership(*step, rank);
        const std::uint64_t mine = m.rank + 1, peer = step->peer + 1;
        name_.push_back(std::uint64_t{step->comm} << 32 | m.group);
        name_.push_back(!is_transfer(*step)            ? is_mesh(*step)
                        : step->kind == StepKind::send ? mine << 32 | peer
                                                       : peer << 32 | mine);
    }
    const auto [at, fresh] = known_.try_emplace(name_);
    if (!fresh) return at->second;
    for (const replay::Step* step : operations) map_.add_pairs(*step, rank, at->second.all);
    at->second.most = most_circuits(at->second.all, ports_);
    return at->second;
}

}  // namespace opus::sim
