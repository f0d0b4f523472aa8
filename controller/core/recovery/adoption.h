// Adoption: what runs, and whose circuits are not known yet.
#pragma once

#include <set>
#include <vector>

#include "controller/core/room.h"

namespace opus::controller {

class Gangs;
class Launches;
class Runs;
class Schedule;
class NodeSessions;
class Suspension;

class Adoption : Room {
public:
    Adoption(World& world, Rooms& rooms);

    void adopt(Launch& launch);
    void settle(Launch& launch);  // its circuits are known, or it is over
    void look_again(Comm& comm);  // it is judged, or its members are others
    void look_again();            // a switch has said how it is set
    bool is_read(PairId e) const;

    // At the end of the step what can be known by then is settled; look_due(): if there is anything.
    void due() { due_ = true; }
    void look_due();
    bool is_due() const { return due_; }
    void settle_known();

private:
    void keep_node(NodeIndex n);
    void leave_node(NodeIndex n);
    void keep_members(Comm& comm);
    void keep_ports(Launch& launch);
    void wake_nodes(const Launch& launch, std::uint64_t m);
    bool is_read(KeyState& key);
    void see_light(KeyState& key);
    std::vector<Launch*> known_now();

    std::set<LaunchId> adopted_;               // running launches whose circuits are not known yet
    std::set<LaunchId> again_;                 // of them, those to be looked at
    std::set<std::uint64_t> unsettled_comms_;  // communicators whose nodes' ports are kept for them
    bool due_ = false;

    Launches& launches_;
    Gangs& gangs_;
    Schedule& schedule_;
    Runs& runs_;
    Suspension& suspension_;
    NodeSessions& node_sessions_;
};

}  // namespace opus::controller
