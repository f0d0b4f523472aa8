// Grants: who starts, with which run, and where its ports lead.
#include <algorithm>
#include <utility>

#include "controller/core/gangs/gangs.h"
#include "controller/core/gangs/launches.h"
#include "controller/core/leases/runs.h"
#include "controller/core/program/change_sets.h"
#include "controller/core/program/grants.h"
#include "controller/core/provision/hidden.h"
#include "controller/core/provision/turns.h"
#include "controller/core/schedule/schedule.h"

namespace opus::controller {

// Whole or not at all: every launch of it is in flight from here on. Where a node's session is gone in this
// moment, its snapshot will say `ready` and it is told again.
void Grants::grant(Gang& gang) {
    count_grant(gang, hidden_.use(gang));
    turns_.begin_use(gang);
    const double bytes = Planner::bytes_of(gang);
    for (const PairId e : gang.pairs) inventory_.pair(e).most_bytes = std::max(inventory_.pair(e).most_bytes, bytes);
    const std::uint64_t counted = next_mark();
    for (const Launch* launch : gang.launches)
        for (const KeyRef& r : launch->keys)
            if (std::exchange(r.key->mark, counted) != counted) launches_.count_use(*r.key);
    while (runs_.find(next_) != nullptr) ++next_;  // an older controller's, whose epoch was the same
    const std::uint64_t id = next_++;
    const bool claimed = gang.state == Gang::State::programming;
    std::sort(gang.launches.begin(), gang.launches.end(), [](const Launch* x, const Launch* y) { return x->id < y->id; });
    const std::uint32_t circuits = inventory_.fewest_circuits(gang.pairs);
    auto soft = runs_.begin(gang, id, circuits);
    struct Told {
        NodeIndex node = kNone;
        std::vector<wire::LocalLaunch> firm, back;
        bool grant = false;
    };
    std::vector<Told> told;  // in their order
    for (Launch* launch : gang.launches) {
        launch->gang = nullptr;
        if (told.empty() || told.back().node != launch->id.node) told.push_back({launch->id.node, {}, {}, false});
        (launch->open() ? told.back().back : told.back().firm).push_back({launch->id.rank, launch->id.seq});
        if (launch->open()) trace({.kind = Trace::Kind::resume, .id = gang.ticket, .launch = launch->id});
        if (auto it = running_.find(launch->grant); it != running_.end() && --it->second.launches == 0)
            running_.erase(it);
        launch->grant = id;
        if (!launch->open()) launch->began = id;
        launch->circuits = circuits;
        launches_.start_flight(*launch);
    }
    if (!gang.launches.empty()) running_[id] = {gang.ticket, static_cast<std::uint32_t>(gang.launches.size())};
    // Others that share a key with these may be joiners now.
    const std::uint64_t m = next_mark();
    for (const Launch* launch : gang.launches)
        for (const KeyRef& r : launch->keys) {
            if (r.key->mark == m) continue;
            r.key->mark = m;
            for (const KeyMember& member : r.key->members)
                if (member.launch != nullptr && member.launch->waits() && member.launch->gang != nullptr)
                    schedule_.queue(*member.launch->gang, true);
        }
    gang.launches.clear();
    if (claimed) change_sets_.unclaim(gang);
    for (Told& t : told) {
        if (t.firm.empty()) continue;
        t.grant = true;
        auto run = soft.extract(t.node);
        send_grant(t.node, id, std::move(t.firm), run ? std::move(run.mapped()) : std::vector<wire::KeyRange>{});
    }
    for (auto& [node, run] : soft) send_grant(node, id, {}, std::move(run));  // theirs is in flight already
    for (Told& t : told) {
        if (t.back.empty()) continue;
        if (!t.grant) send_grant(t.node, id, {});
        send(t.node, wire::Suspended{std::move(t.back), true});
    }
    gangs_.erase(gang);
}

void Grants::finished(const Launch& launch) {
    const auto it = running_.find(launch.grant);
    if (it == running_.end() || --it->second.launches > 0) return;
    trace({.kind = Trace::Kind::gang_done, .id = it->second.ticket});
    running_.erase(it);
}

void Grants::count_grant(const Gang& gang, TimeNs exposed) {
    ++counters_.grants;
    TimeNs last = gang.complete_ns;  // when the last of it came: before that there was nothing to decide
    for (const Launch* launch : gang.launches) last = std::max(last, launch->complete_ns);
    const bool moved = gang.state == Gang::State::programming;
    if (!moved) ++counters_.gangs_without_move;
    const TimeNs placed = moved ? gang.placed_ns : now_;
    const TimeNs queued_for = gang.blocked_ns >= 0 ? std::max<TimeNs>(0, placed - std::max(last, gang.blocked_ns)) : 0;
    const TimeNs dark = moved ? std::min(gang.dark_ns, now_ - placed) : 0;
    counters_.queue_wait_ns += queued_for;
    counters_.dark_wait_ns += dark;
    counters_.control_ns += std::max<TimeNs>(0, now_ - std::min(last, placed) - queued_for - dark);
    Trace t;
    t.kind = Trace::Kind::gang_granted;
    t.id = gang.ticket;
    if (!gang.launches.empty()) t.launch = gang.launches.front()->id;
    t.ready_ns = last;
    t.queue_ns = queued_for;
    t.dark_ns = exposed;
    trace(t);
}

void Grants::send_grant(NodeIndex node, std::uint64_t id, std::vector<wire::LocalLaunch> firm,
                        std::vector<wire::KeyRange> soft) {
    if (nodes_[node].session == 0) return;
    wire::Grant grant{id != 0 ? id : next_++, std::move(firm), std::move(soft), steering_news(node)};
    if (!grant.firm.empty() || !grant.soft.empty() || !grant.steering.empty()) send(node, std::move(grant));
}

// What changed since the node was last told. One that is being turned, or was when something failed, leads
// nowhere, nor does one that is joined without light. Nothing is said of one whose switch cannot be asked now: light goes on without its session.
std::vector<wire::PortSteering> Grants::steering_news(NodeIndex node) {
    std::vector<wire::PortSteering> news;
    const Node& n = fabric_.nodes[node];
    for (std::uint32_t local = 0; local < n.gpus.size(); ++local) {
        const Gpu& gpu = fabric_.gpus[n.gpus[local]];
        for (std::uint32_t index = 0; index < gpu.ports.size(); ++index) {
            PortState& s = inventory_.port(gpu.ports[index]);
            const bool turned = s.op != 0 || (s.unknown && s.changed != 0);
            if (!turned && !inventory_.known(gpu.ports[index])) continue;
            const PortId leads = !turned && !s.no_light && s.peer < fabric_.ports.size() ? s.peer : kNone;
            if (leads == s.reported) continue;
            s.reported = leads;
            wire::PortSteering entry{local, index, kNone, kNone, kNone};
            if (leads != kNone) {
                const Port& peer = fabric_.ports[leads];
                entry.peer_node = fabric_.gpus[peer.gpu].node;
                entry.peer_gpu = fabric_.gpus[peer.gpu].local;
                entry.peer_port = peer.index;
            }
            news.push_back(entry);
        }
    }
    return news;
}

}  // namespace opus::controller
