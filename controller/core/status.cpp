// What people see of the core: names as in the fabric file.
#include <algorithm>
#include <utility>

#include "controller/core/holders.h"
#include "controller/core/impl.h"

namespace opus::controller {

namespace {

PortUse use_of(const Inventory& inventory, PortId p) {
    const PortState& s = inventory.port(p);
    if (s.fenced_by != FencedBy::nobody) return PortUse::fenced;
    if (s.op != 0) return PortUse::moving;
    if (!inventory.known(p)) return PortUse::unknown;
    if (s.pair != kNone && inventory.pair(s.pair).busy()) return PortUse::busy;
    if (s.absent && s.peer != kNone) return PortUse::absent;
    if (!s.reservations.empty()) return PortUse::reserved;
    return s.peer == kNone ? PortUse::dark : PortUse::idle;
}

}  // namespace

std::vector<PortStatus> Core::ports(PortId from, std::size_t most) const {
    std::vector<PortStatus> all;
    HolderTable table(impl_->world);
    for (PortId p = from; p < impl_->world.fabric.ports.size() && all.size() < most; ++p) {
        const PortState& s = impl_->world.inventory.port(p);
        PortStatus status;
        status.port = p;
        status.use = use_of(impl_->world.inventory, p);
        status.peer = s.peer < impl_->world.fabric.ports.size() ? s.peer : kNone;
        status.since_ns = s.since_ns;
        status.note = s.note;
        if (s.peer == kForeign) status.note = "joined to a switch port of no NIC";
        if (s.no_light && status.note.empty()) status.note = "joined, but no light was seen";
        if (s.fenced_by != FencedBy::nobody)
            status.fence = {s.fenced_by == FencedBy::hand, s.fenced_ns, s.fenced_why,
                            s.fenced_by == FencedBy::hand ? 0 : std::max(s.trial_ns, impl_->world.now)};
        if (s.pair != kNone) {
            const Holders holders = table.of(s.pair);
            status.holder_count = holders.count;
            for (const Launch* launch : holders.first) status.holders.push_back(launch->id);
            if (holders.count == 0 && impl_->world.inventory.pair(s.pair).held() && status.note.empty())
                status.note = table.text(s.pair);
        }
        all.push_back(std::move(status));
    }
    return all;
}

std::vector<RankStatus> Core::ranks() const {
    std::vector<RankStatus> all;
    for (NodeIndex n = 0; n < impl_->world.nodes.size(); ++n)
        for (const auto& [id, rank] : impl_->world.nodes[n].ranks) {
            RankStatus status{n, rank.info, 0, 0};
            for (const auto& [seq, launch] : rank.launches) {
                status.launches_in_flight += launch->open();
                status.launches_ready += !launch->open();
            }
            all.push_back(std::move(status));
        }
    return all;
}

std::vector<GroupStatus> Core::groups() const {
    std::vector<GroupStatus> all;
    for (const auto& [number, comm] : impl_->world.comms.in_order()) {
        GroupStatus status;
        status.comm = comm->id;
        status.size = comm->size;
        status.registered = comm->registered;
        status.verdict = comm->verdict;
        status.why = comm->why;
        for (const Member& m : comm->members) {
            if (!m.registered) continue;
            status.members.emplace_back(m.gpu, LaunchId{m.node, m.rank, 0});
            const Rank* rank = impl_->world.rank_of(m.node, m.rank);
            if (status.job.empty() && rank != nullptr) status.job = rank->info.job;
        }
        all.push_back(std::move(status));
    }
    return all;
}

std::vector<SwitchStatus> Core::switches() const {
    std::vector<SwitchStatus> all;
    for (SwitchIndex s = 0; s < impl_->world.fabric.switches.size(); ++s) {
        const SwitchState& sw = impl_->world.inventory.sw(s);
        SwitchStatus status{s, sw.session,     sw.map_known,   sw.identity, sw.last_error,
                            0, sw.differences, sw.differed_ns, {}};
        const auto doubtful = [&](PortId p) {
            return p != kNone && impl_->world.inventory.port(p).unknown &&
                   impl_->world.inventory.port(p).doubt_until_ns > impl_->world.now;
        };
        if (sw.map_known && std::any_of(sw.cable.begin(), sw.cable.end(), doubtful))
            status.note = "waits until a command that nobody answers for must be over";
        if (sw.at_fault)
            status.note = "fails whatever it is told: " + std::to_string(sw.failed) + " change sets in " +
                          std::to_string((impl_->world.now - sw.failing_ns) / 1'000'000) +
                          " ms; its ports are not blamed";
        for (const PortId p : sw.cable)
            if (p != kNone && impl_->world.inventory.port(p).peer != kNone)
                status.circuits += impl_->world.inventory.port(p).peer == kForeign || p < impl_->world.inventory.port(p).peer;
        all.push_back(std::move(status));
    }
    return all;
}

std::vector<NodeStatus> Core::nodes() const {
    std::vector<NodeStatus> all;
    for (NodeIndex n = 0; n < impl_->world.nodes.size(); ++n) {
        const NodeState& node = impl_->world.nodes[n];
        all.push_back({n, node.session != 0, node.reported, node.last_seen_ns, static_cast<std::uint32_t>(node.ranks.size()),
                       node.session == 0 && node.known && node.grace_at_ns == 0});
    }
    return all;
}

std::vector<Why> Core::why(TimeNs now) const { return impl_->rooms.explain.why(now, {}).waiting; }
WhyPage Core::why(TimeNs now, const WhyQuestion& question) const { return impl_->rooms.explain.why(now, question); }
std::vector<JobStatus> Core::jobs() const { return impl_->rooms.jobs.status(); }
std::vector<PortPlan> Core::plan(const std::string& job, std::size_t most_turns) const {
    return impl_->rooms.jobs.plan(job, most_turns);
}
const Counters& Core::counters() const { return impl_->world.counters; }
std::string Core::check() const { return impl_->check(); }

}  // namespace opus::controller
