// Creation: who is inside NCCL's creation of a communicator, and who will never come.
#pragma once

#include <map>
#include <utility>

#include "controller/core/room.h"

namespace opus::controller {

class Registration;

class Creation : Room {
public:
    Creation(World& world, Rooms& rooms);

    void enter(NodeIndex node, const wire::CommEntrant& entrant);
    bool leave(NodeIndex node, RankId rank, const CommId& id);
    void fail(NodeIndex node, RankId rank, const CommId& id, Reason reason);
    void replace(NodeIndex node, const wire::Snapshot& snapshot);
    void end_rank(NodeIndex node, RankId rank);

    void await_members(Comm& comm, const wire::CommMember& said);
    void look_for_missing(Comm& comm);

private:
    bool any_node_unheard(TimeNs since) const;

    // By communicator and process: members that do not know their place yet.
    std::map<CommId, std::map<std::pair<NodeIndex, RankId>, std::uint32_t>> entering_;

    Registration& registration_;
};

}  // namespace opus::controller
