// Communicators with two ids (ncclCommGrow): some members derive one from their parent, those that join another from a
// unique id. A member that was given both registers by the first and says the second (wire::CommMember::also). Members
// that register by the second are told the first, and register again.
#include <set>

#include "controller/core/membership/joined.h"
#include "controller/core/membership/registration.h"

namespace opus::controller {

// True: `m` is a member of another communicator, which its node is told.
bool Joined::is_joined(NodeIndex node, const wire::CommMember& m) {
    const auto it = joined_.find(m.comm);
    if (it == joined_.end()) return false;
    wire::CommVerdict told;
    told.comm = m.comm;
    told.known_as = it->second;
    registration_.tell_verdict(told, node);
    return true;
}

void Joined::join(const CommId& from, const CommId& to) {
    if (from == CommId{} || !joined_.emplace(from, to).second) return;
    Comm* comm = comms_.find(from);
    if (comm == nullptr || comm->verdict != Verdict::unknown || !comm->keys.empty()) return;
    wire::CommVerdict told;
    told.comm = from;
    told.known_as = to;
    std::set<NodeIndex> of_it;
    for (const Member& member : comm->members) {
        if (!member.registered) continue;
        if (of_it.insert(member.node).second) registration_.tell_verdict(told, member.node);
        if (Rank* rank = rank_of(member.node, member.rank)) rank->comms.erase(from);
    }
    comms_.erase(*comm);
}

void Joined::forget(const CommId& comm) {
    std::erase_if(joined_, [&comm](const auto& entry) { return entry.second == comm; });
}

}  // namespace opus::controller
