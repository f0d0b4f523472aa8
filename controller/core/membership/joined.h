// Communicators with two ids (ncclCommGrow).
#pragma once

#include <map>

#include "controller/core/room.h"

namespace opus::controller {

class Registration;

class Joined : Room {
public:
    Joined(World& world, Rooms& rooms);

    bool is_joined(NodeIndex node, const wire::CommMember& m);
    void join(const CommId& from, const CommId& to);
    void forget(const CommId& comm);

private:
    std::map<CommId, CommId> joined_;  // ids that some members had before they were told which it is

    Registration& registration_;
};

}  // namespace opus::controller
