// The hold while there is no controller: what has waited for the hold time passes, and its communicator is held no more.
#pragma once

#include <optional>

#include "manager/core/room.h"

namespace opus::manager {

class Launches;
class Members;
class Reports;
class Session;

class Holds : Room {
public:
    Holds(World& world, Rooms& rooms);

    void handle(const GaveUp& e);
    void expire_overdue();
    TimeNs next_deadline() const;

    void note_alone();
    void note_waited();
    void controller_back();
    bool is_alone() const { return alone_since_.has_value(); }

private:
    void expire(Rank& rank, Launch& launch);
    TimeNs hold_deadline(const Rank& rank, TimeNs since) const;
    TimeNs verdict_deadline(const Rank& rank, const Member& member) const;

    std::optional<TimeNs> alone_since_;  // no controller
    bool waited_in_vain_ = false;        // for a verdict, a whole hold time, since then: who comes next does not wait

    Members& members_;
    Launches& launches_;
    Reports& reports_;
    Session& session_;
};

}  // namespace opus::manager
