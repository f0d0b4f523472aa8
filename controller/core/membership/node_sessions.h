// NodeSessions: nodes that come, go and come again, and what they say of themselves then.
#pragma once

#include <set>
#include <string>

#include "controller/core/room.h"

namespace opus::controller {

class Adoption;
class Creation;
class Gangs;
class Grants;
class Holds;
class Launches;
class Registration;
class Runs;
class Schedule;

class NodeSessions : Room {
public:
    NodeSessions(World& world, Rooms& rooms);

    void handle(const NodeSession& e);
    void handle(const NodeLost& e);
    void hear(NodeIndex n, const wire::Snapshot& s);
    void resync(NodeIndex n, const std::string& why);
    void adopt(NodeIndex n, const wire::LaunchSnapshot& l, bool firm);
    void tell_again();  // at the end of a step

    void node_hold_over(NodeIndex n);
    void end_grace(NodeIndex n);  // if it is over; kNone: of each
    void refresh_absent(NodeIndex n);
    void pass_overdue(const Launch& launch);

private:
    void lose_node(NodeIndex n, const std::string& why);
    void give_up_node(NodeIndex n);
    void put_back(Launch& launch);
    void set_overdue(NodeState& node, bool overdue);
    bool has_overdue(Comm& comm) const;
    Comm* held_by_overdue(const Launch& launch) const;

    std::uint32_t overdue_nodes_ = 0;
    std::uint64_t overdue_changes_ = 0;
    std::set<LaunchId> unheard_;  // granted, but their manager's new session does not know

    Launches& launches_;
    Gangs& gangs_;
    Schedule& schedule_;
    Grants& grants_;
    Runs& runs_;
    Holds& holds_;
    Adoption& adoption_;
    Registration& registration_;
    Creation& creation_;
};

}  // namespace opus::controller
