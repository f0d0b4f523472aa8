// Nodes that come, go and come again. A session begins with a snapshot, which replaces what was known;
// a node that has not reported in this epoch keeps its lit ports busy for the grace time.
#include <algorithm>
#include <utility>

#include "controller/core/gangs/gangs.h"
#include "controller/core/gangs/launches.h"
#include "controller/core/leases/runs.h"
#include "controller/core/membership/creation.h"
#include "controller/core/membership/node_sessions.h"
#include "controller/core/membership/registration.h"
#include "controller/core/program/grants.h"
#include "controller/core/recovery/adoption.h"
#include "controller/core/recovery/holds.h"
#include "controller/core/schedule/schedule.h"

namespace opus::controller {
namespace {

TimeNs shortest_hold(const NodeState& node) {
    TimeNs shortest = kDefaultHoldNs;
    for (const auto& [id, rank] : node.ranks)
        if (rank.info.hold_ms > 0) shortest = std::min(shortest, TimeNs(rank.info.hold_ms) * 1'000'000);
    return shortest;
}

}  // namespace

void NodeSessions::handle(const NodeSession& e) {
    if (e.node >= nodes_.size()) return;
    NodeState& node = nodes_[e.node];
    node.session = e.session;
    node.reported = false;
    node.last_seen_ns = now_;
    if (node.grace_at_ns != 0) {  // it is welcomed: its runs go on until this session, too, has been silent for so long
        node.grace_at_ns = now_ + options_.node_grace_ns;
        arm(node.grace_at_ns, TimerKind::node_grace, e.node);
    }
    log(LogLevel::info, fabric_.nodes[e.node].name + ": session of its manager");
}

void NodeSessions::handle(const NodeLost& e) {
    if (e.node >= nodes_.size() || nodes_[e.node].session == 0 || nodes_[e.node].session != e.session) return;
    lose_node(e.node, "session ended");
}

// What runs there goes on within its grants, and holds its circuits, until the grace time is over.
void NodeSessions::lose_node(NodeIndex n, const std::string& why) {
    NodeState& node = nodes_[n];
    node.session = 0;
    node.reported = false;
    node.verdicts.clear();
    node.grace_at_ns = now_ + options_.node_grace_ns;
    arm(node.grace_at_ns, TimerKind::node_grace, n);
    arm(node.last_seen_ns + shortest_hold(node), TimerKind::node_hold, n);
    log(LogLevel::warn, fabric_.nodes[n].name + ": no manager (" + why + ")");
}

// Its ranks open their gates by themselves now, and will at each gate that they come to. Whoever is held for one of
// them would be held for ever (I6), so that communicator is held no more. One that nobody is held for stays as it is:
// perhaps the manager is back before anybody needs it, and to wait for a peer that is late is no fault.
void NodeSessions::node_hold_over(NodeIndex n) {
    NodeState& node = nodes_[n];
    if (node.up()) return;
    const TimeNs due = node.last_seen_ns + shortest_hold(node);
    if (now_ < due) return arm(due, TimerKind::node_hold, n);
    set_overdue(node, true);
    std::vector<LaunchId> held;
    for (NodeIndex other = 0; other < nodes_.size(); ++other) {
        if (!nodes_[other].up()) continue;
        for (const auto& [id, rank] : nodes_[other].ranks)
            for (const auto& [seq, launch] : rank.launches) held.push_back(launch->id);
    }
    for (const LaunchId& id : held)
        if (const Launch* launch = launch_of(id)) pass_overdue(*launch);
}

void NodeSessions::set_overdue(NodeState& node, bool overdue) {
    overdue_changes_ += overdue != node.overdue;
    overdue_nodes_ += overdue;
    overdue_nodes_ -= node.overdue;
    node.overdue = overdue;
}

// Asked for each launch of it; looked up when that may have changed.
bool NodeSessions::has_overdue(Comm& comm) const {
    if (comm.overdue_at != overdue_changes_ + 1) {
        comm.overdue_at = overdue_changes_ + 1;
        comm.overdue = std::any_of(comm.members.begin(), comm.members.end(),
                                   [this](const Member& m) { return m.registered && nodes_[m.node].overdue; });
    }
    return comm.overdue;
}

// A communicator that holds the launch for a member on such a node: one that has not come, or that nobody can tell to start.
Comm* NodeSessions::held_by_overdue(const Launch& launch) const {
    if (overdue_nodes_ == 0) return nullptr;
    if (launch.open() || launch.stage != Stage::ready) return nullptr;
    for (const KeyRef& r : launch.keys) {
        if (r.key->comm->open() || !has_overdue(*r.key->comm)) continue;
        for (std::uint32_t i = 0; i < r.key->members.size(); ++i) {
            const Member& member = r.key->comm->members[slot_of(r.key->key, i)];
            if (!member.registered || !nodes_[member.node].overdue) continue;
            const KeyMember& m = r.key->members[i];
            if (m.presence == Presence::absent || (m.launch != nullptr && !m.launch->open())) return r.key->comm;
        }
    }
    return nullptr;
}

void NodeSessions::pass_overdue(const Launch& launch) {
    Comm* comm = held_by_overdue(launch);
    if (comm == nullptr) return;
    std::string who;
    bool abort = false;
    for (const Member& member : comm->members) {
        if (!member.registered || !nodes_[member.node].overdue) continue;
        const Rank* rank = rank_of(member.node, member.rank);
        abort |= rank != nullptr && rank->info.policy == Policy::abort;
        if (who.empty()) who = fabric_.nodes[member.node].name;
    }
    registration_.degrade(*comm, abort ? Policy::abort : Policy::proceed, Reason::passed,
                          who + " has had no manager for the hold time; start opus-manager there");
}

void NodeSessions::end_grace(NodeIndex which) {
    for (NodeIndex n = 0; n < nodes_.size(); ++n)
        if ((which == kNone || which == n) && nodes_[n].grace_at_ns != 0 && nodes_[n].grace_at_ns <= now_)
            give_up_node(n);
}

void NodeSessions::give_up_node(NodeIndex n) {
    NodeState& node = nodes_[n];
    node.grace_at_ns = 0;
    node.known = node.given_up = true;
    set_overdue(node, false);
    if (!node.ranks.empty())
        log(LogLevel::warn, fabric_.nodes[n].name + " has not reported for the grace time: what it ran is given up");
    while (!node.ranks.empty()) registration_.end_rank(n, node.ranks.begin()->first, "was given up");
    for (const std::uint64_t grant : std::set<std::uint64_t>(node.runs))
        if (Run* run = runs_.find(grant)) runs_.node_is_over(*run, n);
    refresh_absent(n);
    schedule_.queue_all();
}

void NodeSessions::resync(NodeIndex n, const std::string& why) { send(n, wire::Resync{why}); }

void NodeSessions::refresh_absent(NodeIndex n) {
    const bool absent = !nodes_[n].known || nodes_[n].unsettled > 0;
    for (const GpuId gpu : fabric_.nodes[n].gpus)
        for (const PortId p : fabric_.gpus[gpu].ports) {
            if (inventory_.port(p).absent == absent) continue;
            inventory_.port(p).absent = absent;
            if (!absent) schedule_.wake(gpu);
            if (!absent && inventory_.port(p).peer < fabric_.ports.size())
                schedule_.wake(fabric_.ports[inventory_.port(p).peer].gpu);
        }
}

void NodeSessions::hear(NodeIndex n, const wire::Snapshot& s) {
    NodeState& node = nodes_[n];
    const bool first = !node.known;
    node.reported = node.known = true;
    set_overdue(node, false);
    node.grace_at_ns = 0;
    for (const GpuId gpu : fabric_.nodes[n].gpus)
        for (const PortId p : fabric_.gpus[gpu].ports) inventory_.port(p).reported = kUnreported;
    node.tell = true;
    world_.owe(n);

    std::set<RankId> alive;
    for (const auto& info : s.ranks) alive.insert(info.rank);
    std::vector<RankId> dead;
    for (const auto& [id, rank] : node.ranks)
        if (alive.count(id) == 0) dead.push_back(id);
    for (const RankId id : dead) registration_.end_rank(n, id, "is gone");
    registration_.register_ranks(n, s.ranks);

    std::set<std::pair<RankId, CommId>> memberships;
    for (const auto& member : s.comms) memberships.insert({member.rank, member.comm});
    std::vector<std::pair<RankId, CommId>> left;
    for (const auto& [id, rank] : node.ranks)
        for (const auto& [comm, membership] : rank.comms)
            if (memberships.count({id, comm}) == 0) left.insert(left.end(), membership.slots.size(), {id, comm});
    for (const auto& [id, comm] : left) registration_.member_gone(n, id, comm);
    creation_.replace(n, s);
    for (const auto& member : s.comms) registration_.register_member(n, member);

    // What it no longer lists is done.
    std::set<wire::LocalLaunch> listed, firm;
    for (const auto& l : s.launches) listed.insert(l.demand.launch);
    for (const auto& token : s.tokens) firm.insert(token.firm.begin(), token.firm.end());
    std::vector<LaunchId> done;
    for (const auto& [id, rank] : node.ranks)
        for (const auto& [seq, launch] : rank.launches)
            if (listed.count({id, seq}) == 0) done.push_back(launch->id);
    for (const LaunchId& id : done)
        if (Launch* launch = launch_of(id)) {
            ++counters_.launches_done;
            launches_.finish(*launch, Presence::done);
        }

    for (const auto& l : s.launches) adopt(n, l, firm.count(l.demand.launch) != 0);
    node.given_up = false;
    runs_.adopt_tokens(n, s.tokens);
    refresh_absent(n);
    adoption_.look_due();
    log(LogLevel::info, fabric_.nodes[n].name + (first ? " reports: " : " reports again: ") + std::to_string(s.ranks.size()) +
                            " ranks, " + std::to_string(s.launches.size()) + " launches");
    schedule_.queue_all();
}

// Granted, but half delivered: it rolls forward as soon as its circuits are known to be up. If they were
// lost meanwhile, it has not started and waits as others do.
void NodeSessions::tell_again() {
    std::map<NodeIndex, std::vector<wire::LocalLaunch>> again;
    for (auto it = unheard_.begin(); it != unheard_.end();) {
        Launch* launch = launch_of(*it);
        if (launch != nullptr && launch->stage == Stage::suspended && !launch->passed()) {
            it = unheard_.erase(it);
            put_back(*launch);
            continue;
        }
        const bool lit = launch == nullptr || launch->stage != Stage::in_flight || launches_.is_lit(*launch);
        if (!lit || (launch != nullptr && (launch->stage == Stage::committed || !nodes_[launch->id.node].up()))) {
            ++it;
            continue;
        }
        if (launch != nullptr) again[launch->id.node].push_back({launch->id.rank, launch->id.seq});
        it = unheard_.erase(it);
    }
    for (auto& [node, launches] : again) {
        log(LogLevel::info,
            fabric_.nodes[node].name + ": " + std::to_string(launches.size()) + " launches are told again to start");
        grants_.send_grant(node, grants_.next_id(), std::move(launches));
    }
}

// It never started.
void NodeSessions::put_back(Launch& launch) {
    if (launch.gang != nullptr) gangs_.leave(launch);
    launch.gate = Gate::held;
    launch.stage = Stage::ready;
    // Communicators of it were let go meanwhile, and with them what was held for them.
    const bool unheld = std::ranges::any_of(launch.keys, [](const KeyRef& r) { return r.key->comm->open(); });
    if (launch.no_light || unheld) return holds_.pass_unheld(launch);
    launches_.enter_held(launch);
}

// One launch as its manager tells it.
void NodeSessions::adopt(NodeIndex n, const wire::LaunchSnapshot& l, bool firm) {
    unheard_.erase({n, l.demand.launch.rank, l.demand.launch.seq});
    const bool runs = l.state == wire::LaunchState::in_flight || (l.state == wire::LaunchState::ready && firm);
    Launch* known = launch_of({n, l.demand.launch.rank, l.demand.launch.seq});
    if (known == nullptr) {
        if (l.state == wire::LaunchState::ready && !firm) return launches_.demand(n, l.demand);
        Launch* launch = launches_.add(n, l.demand, l.state == wire::LaunchState::in_flight);
        if (launch == nullptr) return;
        launch->gate = l.state == wire::LaunchState::passed ? Gate::passed : Gate::granted;
        launch->stage = Stage::suspended;
        launch->given_up = nodes_[n].given_up;
        if (runs)
            adoption_.adopt(*launch);
        else
            launches_.enter(*launch);
        return;
    }
    if (l.state == wire::LaunchState::ready && !firm) {
        if (known->passed()) {
            const Policy how = known->no_light ? holds_.policy_of({known}) : Policy::proceed;
            send(n, wire::Pass{{l.demand.launch}, how, "decided while its manager was away"});
        } else if (known->stage == Stage::in_flight) {
            unheard_.insert(known->id);
        } else if (known->stage == Stage::suspended) {
            put_back(*known);
        } else if (known->stage == Stage::committed) {
            known->gate = Gate::held;  // its grant is still to come
        }
        return;
    }
    if (known->open()) {
        const bool away = known->stage != Stage::in_flight;
        if (!known->passed() && away != (l.state == wire::LaunchState::suspended))
            send(n, wire::Suspended{{l.demand.launch}, !away});
        return;
    }
    if (l.state == wire::LaunchState::passed) return holds_.expired(n, {{l.demand.launch}});
    if (known->stage == Stage::committed) return;  // as good as granted
    if (known->gang != nullptr) gangs_.leave(*known);
    known->gate = Gate::granted;
    known->stage = Stage::suspended;
    if (runs)
        adoption_.adopt(*known);
    else
        launches_.enter(*known);
}

}  // namespace opus::controller
