// Who will never register. NCCL's creation of a communicator gathers from all its members before it returns on any
// (bootstrapAllGather of the peers' info in init.cc; ncclCommInitRank, Split, Shrink and Grow alike). So once it has
// returned on one member, all are inside their call, and what their shims wrote before it is a manager's look and a message
// away. Whoever is not known a generous while after that has no shim. Before, a member is late, and that is no fault.
#include <algorithm>

#include "controller/core/membership/creation.h"
#include "controller/core/membership/registration.h"

namespace opus::controller {

// Judged by this member's word, at the earliest that any member gives. An older shim does not say when its creation has
// returned: its communicator is judged when it has been known for the grace time.
void Creation::await_members(Comm& comm, const wire::CommMember& said) {
    if (comm.verdict != Verdict::unknown || comm.complete() || said.creation == CreationState::entered) return;
    const bool returned = said.creation == CreationState::returned;
    const TimeNs at = now_ + (returned ? options_.register_timeout_ns : options_.node_grace_ns);
    if (comm.judge_at_ns != 0 && comm.judge_at_ns <= at) return;
    comm.judge_at_ns = at;
    arm(at, TimerKind::comm_register, comm.number);
}

void Creation::look_for_missing(Comm& comm) {
    if (comm.verdict != Verdict::unknown && comm.gone == comm.registered)
        return registration_.erase_comm_if_gone(comm);  // judged meanwhile, when all had left perhaps
    if (comm.all_came() || comm.judge_at_ns == 0 || now_ < comm.judge_at_ns) return;
    std::uint32_t inside = 0;
    if (const auto it = entering_.find(comm.id); it != entering_.end())
        for (const auto& [process, members] : it->second) inside += members;
    if (comm.registered + inside >= comm.size) return;  // they register when it returns there, or fail
    if (any_node_unheard(comm.judge_at_ns - options_.register_timeout_ns / 2)) {
        comm.judge_at_ns = now_ + options_.register_timeout_ns;
        return arm(comm.judge_at_ns, TimerKind::comm_register, comm.number);
    }
    registration_.settle(comm);
    if (comm.verdict != Verdict::unknown) return;
    std::uint32_t slot = 0;
    while (comm.members[slot].registered) ++slot;
    const std::string who = inside == 0 ? "rank " + std::to_string(slot) + " of " + std::to_string(comm.size)
                                        : std::to_string(comm.size - comm.registered - inside) + " of its ranks";
    registration_.degrade(
        comm, Policy::proceed, Reason::missing,
        who +
            (comm.was_held
                 ? " has not come again: it has left, or no manager is heard of on its node"
                 : " did not register, though NCCL has made it: load the shim there, and start a manager on its node"),
        inside == 0 ? slot : kNone);
    registration_.erase_comm_if_gone(comm);  // those that had registered may have left by now
}

// A missing member may be on a node whose manager is away, and not given up yet, or has not been heard of since.
bool Creation::any_node_unheard(TimeNs since) const {
    return std::any_of(nodes_.begin(), nodes_.end(), [since](const NodeState& node) {
        return node.up() ? node.last_seen_ns < since : node.grace_at_ns != 0;
    });
}

// --- members that do not know their place yet ---------------------------------------------------------------------------

void Creation::enter(NodeIndex node, const wire::CommEntrant& entrant) {
    ++entering_[entrant.comm][{node, entrant.rank}];
}

// It has its place now, or never will. False: it was not inside.
bool Creation::leave(NodeIndex node, RankId rank, const CommId& id) {
    const auto it = entering_.find(id);
    if (it == entering_.end()) return false;
    const auto process = it->second.find({node, rank});
    if (process == it->second.end()) return false;
    if (--process->second == 0) it->second.erase(process);
    if (it->second.empty()) entering_.erase(it);
    return true;
}

// Nobody waits for it any more.
void Creation::fail(NodeIndex node, RankId rank, const CommId& id, Reason reason) {
    if (!leave(node, rank, id)) return;
    Comm* comm = comms_.find(id);
    if (comm == nullptr || comm->verdict != Verdict::unknown) return;
    registration_.degrade(*comm, Policy::proceed, reason,
                          fabric_.nodes[node].name + ".r" + std::to_string(rank) +
                              (reason == Reason::died ? " ended" : " did not get through") + " while it was made");
}

// A snapshot names all that are inside on its node.
void Creation::replace(NodeIndex node, const wire::Snapshot& snapshot) {
    std::vector<std::pair<CommId, RankId>> before;
    for (const auto& [id, processes] : entering_)
        for (const auto& [process, members] : processes)
            if (process.first == node) before.insert(before.end(), members, {id, process.second});
    std::vector<std::pair<CommId, RankId>> found;
    for (const wire::CommEntrant& e : snapshot.entering) found.push_back({e.comm, e.rank});
    for (const wire::CommMember& m : snapshot.comms) found.push_back({m.comm, m.rank});  // it has its place
    for (const auto& old : before) {
        const auto again = std::find(found.begin(), found.end(), old);
        if (again == found.end()) {
            fail(node, old.second, old.first, Reason::left);
        } else {
            leave(node, old.second, old.first);
            found.erase(again);
        }
    }
    for (const wire::CommEntrant& e : snapshot.entering) enter(node, e);
}

void Creation::end_rank(NodeIndex node, RankId rank) {
    std::vector<CommId> left;
    for (const auto& [id, processes] : entering_)
        if (const auto it = processes.find({node, rank}); it != processes.end())
            left.insert(left.end(), it->second, id);
    for (const CommId& id : left) fail(node, rank, id, Reason::died);
}

}  // namespace opus::controller
