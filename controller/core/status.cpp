// What people see of the core: names as in the fabric file.
#include <algorithm>
#include <utility>

#include "controller/core/impl.h"

namespace opus::controller {

std::string Core::Impl::name(const LaunchId& id) const {
    const std::string node = id.node < fabric.nodes.size() ? fabric.nodes[id.node].name : "?";
    return node + ".r" + std::to_string(id.rank) + " launch " + std::to_string(id.seq);
}

std::string Core::Impl::name_of_member(const Comm& comm, std::uint32_t slot) const {
    const Member& m = comm.members[slot];
    std::string who = "rank " + std::to_string(slot) + " of " + std::to_string(comm.size);
    if (!m.registered) return who;
    return (m.gpu != kNone ? fabric.gpus[m.gpu].name : fabric.nodes[m.node].name) + " (" + who + ")";
}

std::vector<Launch*> Core::Impl::holders_of(EdgeId e) {
    std::vector<Launch*> holders;
    const std::uint64_t m = next_mark();
    for (const KeyState* key : inventory.edge(e).holders)
        for (const KeyMember& member : key->members)
            if (member.launch != nullptr && member.launch->stage == Stage::in_flight &&
                std::exchange(member.launch->mark, m) != m)
                holders.push_back(member.launch);
    std::sort(holders.begin(), holders.end(), [](const Launch* x, const Launch* y) { return x->id < y->id; });
    return holders;
}

std::string Core::Impl::holders_text(EdgeId e, HolderTable& table) const {
    const Holders holders = table.of(e);
    if (holders.count == 0 && !inventory.edge(e).runs.empty())
        return "held by run " + std::to_string(inventory.edge(e).runs.front()) + ", whose ranks may use it at any time";
    if (holders.count == 0) return "held for bytes still on their way";
    const Launch& first = *holders.first.front();
    std::string text =
        "held by " + name(first.id) + " since " + std::to_string((now - first.start_ns) / 1'000'000) + " ms";
    if (holders.count > 1) text += " and " + std::to_string(holders.count - 1) + " more";
    return text;
}

namespace {

PortUse use_of(const Inventory& inventory, PortId p) {
    const PortState& s = inventory.port(p);
    if (s.fenced_by != FencedBy::nobody) return PortUse::fenced;
    if (s.op != 0) return PortUse::moving;
    if (!inventory.known(p)) return PortUse::unknown;
    if (s.edge != kNone && inventory.edge(s.edge).busy()) return PortUse::busy;
    if (s.absent && s.peer != kNone) return PortUse::absent;
    if (!s.reservations.empty()) return PortUse::reserved;
    return s.peer == kNone ? PortUse::dark : PortUse::idle;
}

}  // namespace

std::vector<PortStatus> Core::ports(PortId from, std::size_t most) const {
    std::vector<PortStatus> all;
    HolderTable table(impl_->inventory, impl_->mark);
    for (PortId p = from; p < impl_->fabric.ports.size() && all.size() < most; ++p) {
        const PortState& s = impl_->inventory.port(p);
        PortStatus status;
        status.port = p;
        status.use = use_of(impl_->inventory, p);
        status.peer = s.peer < impl_->fabric.ports.size() ? s.peer : kNone;
        status.since_ns = s.since_ns;
        status.note = s.note;
        if (s.peer == kForeign) status.note = "joined to a switch port of no NIC";
        if (s.no_light && status.note.empty()) status.note = "joined, but no light was seen";
        if (s.fenced_by != FencedBy::nobody)
            status.fence = {s.fenced_by == FencedBy::hand, s.fenced_ns, s.fenced_why,
                            s.fenced_by == FencedBy::hand ? 0 : std::max(s.trial_ns, impl_->now)};
        if (s.edge != kNone) {
            const Holders holders = table.of(s.edge);
            status.holder_count = holders.count;
            for (const Launch* launch : holders.first) status.holders.push_back(launch->id);
            if (holders.count == 0 && impl_->inventory.edge(s.edge).held() && status.note.empty())
                status.note = impl_->holders_text(s.edge, table);
        }
        all.push_back(std::move(status));
    }
    return all;
}

std::vector<RankStatus> Core::ranks() const {
    std::vector<RankStatus> all;
    for (NodeIndex n = 0; n < impl_->nodes.size(); ++n)
        for (const auto& [id, rank] : impl_->nodes[n].ranks) {
            RankStatus status{n, rank.info, 0, 0};
            for (const auto& [seq, launch] : rank.launches) {
                status.launches_in_flight += launch->open;
                status.launches_ready += !launch->open;
            }
            all.push_back(std::move(status));
        }
    return all;
}

std::vector<GroupStatus> Core::groups() const {
    std::vector<GroupStatus> all;
    for (const auto& [number, comm] : impl_->comms.in_order()) {
        GroupStatus status;
        status.comm = comm->id;
        status.size = comm->size;
        status.registered = comm->registered;
        status.verdict = comm->verdict;
        status.why = comm->why;
        for (const Member& m : comm->members) {
            if (!m.registered) continue;
            status.members.emplace_back(m.gpu, LaunchId{m.node, m.rank, 0});
            const Rank* rank = impl_->rank_of(m.node, m.rank);
            if (status.job.empty() && rank != nullptr) status.job = rank->info.job;
        }
        all.push_back(std::move(status));
    }
    return all;
}

std::vector<SwitchStatus> Core::switches() const {
    std::vector<SwitchStatus> all;
    for (SwitchIndex s = 0; s < impl_->fabric.switches.size(); ++s) {
        const SwitchState& sw = impl_->inventory.sw(s);
        SwitchStatus status{s, sw.session,     sw.map_known,   sw.identity, sw.last_error,
                            0, sw.differences, sw.differed_ns, {}};
        const auto doubtful = [&](PortId p) {
            return p != kNone && impl_->inventory.port(p).unknown && impl_->inventory.port(p).doubt_until_ns > impl_->now;
        };
        if (sw.map_known && std::any_of(sw.cable.begin(), sw.cable.end(), doubtful))
            status.note = "waits until a command that nobody answers for must be over";
        if (sw.at_fault)
            status.note = "fails whatever it is told: " + std::to_string(sw.failed) + " change sets in " +
                          std::to_string((impl_->now - sw.failing_ns) / 1'000'000) + " ms; its ports are not blamed";
        for (const PortId p : sw.cable)
            if (p != kNone && impl_->inventory.port(p).peer != kNone)
                status.circuits += impl_->inventory.port(p).peer == kForeign || p < impl_->inventory.port(p).peer;
        all.push_back(std::move(status));
    }
    return all;
}

std::vector<NodeStatus> Core::nodes() const {
    std::vector<NodeStatus> all;
    for (NodeIndex n = 0; n < impl_->nodes.size(); ++n) {
        const NodeState& node = impl_->nodes[n];
        all.push_back({n, node.session != 0, node.reported, node.last_seen_ns, static_cast<std::uint32_t>(node.ranks.size()),
                       node.session == 0 && node.known && node.grace_at_ns == 0});
    }
    return all;
}

std::vector<Why> Core::why(TimeNs now) const { return impl_->why(now, {}).waiting; }
WhyPage Core::why(TimeNs now, const WhyQuestion& question) const { return impl_->why(now, question); }
std::string Core::check() const { return impl_->check(); }

}  // namespace opus::controller
