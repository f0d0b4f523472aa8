// Launches and their keys, from demand to done: who has come, who is in flight, and which circuits a key holds meanwhile.
#pragma once

#include <deque>
#include <string>
#include <utility>

#include "controller/core/room.h"

namespace opus::controller {

class Adoption;
class Cuts;
class Gangs;
class Grants;
class Holds;
class Jobs;
class Registration;
class Runs;
class Schedule;
class NodeSessions;
class Suspension;

class Launches : Room {
public:
    Launches(World& world, Rooms& rooms);

    void demand(NodeIndex node, const wire::LaunchDemand& demand);
    Launch* add(NodeIndex node, const wire::LaunchDemand& demand, bool runs = false);
    void enter(Launch& launch);
    void enter_held(Launch& launch);
    void open_kept_calls();
    void hear_done(NodeIndex node, const wire::LaunchDone& done);
    void hear_seen(NodeIndex node, const wire::LaunchSeen& seen);

    void start_flight(Launch& launch);
    void leave_flight(Launch& launch);
    void finish(Launch& launch, Presence how);

    KeyState& key_state(Comm& comm, const Key& key);
    void update_hold(KeyState& key);
    void erase_key_if_done(KeyState& key);
    static bool misses_gone_member(const KeyState& key);
    static bool misses_gone_member(const Launch& launch);
    static bool is_unheld(const Launch& launch);  // none of its communicators is held

    // The rank's, in the communicator of these keys; null: it has none there, or they are of no member.
    static const Membership* membership_of(const Rank& rank, const wire::KeyRange& range);
    // Counts the use of its circuits by this key, and by those before it in its sequence.
    void count_use(KeyState& key);
    std::pair<const PairId*, const PairId*> pairs_of(KeyState& key);  // empty while not all members are known
    bool is_lit(KeyState& key);                                       // all of them are up, as far as they are known
    bool is_lit(const Launch& launch);
    bool is_lit(const Gang& gang);

    std::string check();  // an invariant, for Core::check()

private:
    static bool is_connecting_before(const Rank& rank, const Launch& launch);
    bool needs_nothing(const Launch& launch);
    void wake_idle(const Launch& launch);

    std::deque<std::pair<TimeNs, LaunchId>> calls_;  // launches whose calls are looked at, when

    Gangs& gangs_;
    Schedule& schedule_;
    Grants& grants_;
    Jobs& jobs_;
    Runs& runs_;
    Cuts& cuts_;
    Suspension& suspension_;
    Holds& holds_;
    Adoption& adoption_;
    Registration& registration_;
    NodeSessions& node_sessions_;
};

}  // namespace opus::controller
