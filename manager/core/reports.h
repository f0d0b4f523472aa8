// What the controller is told: collected while ring and socket are looked at, and sent at the end of that.
#pragma once

#include <vector>

#include "manager/core/room.h"

namespace opus::manager {

class Launches;
class Runs;
class Session;

class Reports : Room {
public:
    Reports(World& world, Rooms& rooms);

    wire::Register& registered() { return outbox_.registered; }
    wire::Retire& retired() { return outbox_.retire; }
    void demand(const wire::LocalLaunch& launch) { outbox_.demand.push_back(launch); }
    void expired(const wire::LocalLaunch& launch);
    void forget_expired(RankId rank);
    void tell_done(Rank& rank, Launch& launch, bool passed);

    void report_soon() { due_ = true; }
    void report_unreported() { due_ |= !unreported_.launches.empty() || !unreported_.ran.empty(); }
    bool send();
    void send_done();
    void controller_lost();
    void controller_back();

    wire::LaunchDemand demand_of(const Rank& rank, const Launch& launch) const;

private:
    struct Outbox {  // collected between two flushes
        wire::Register registered;
        wire::Done done;
        wire::Retire retire;
        wire::Expired expired;
        std::vector<wire::LocalLaunch> demand;
        void clear() { *this = {}; }
    };
    void gather_done();
    void all_reported();
    bool take_ended();
    wire::Snapshot snapshot();
    void tell_degraded();

    Outbox outbox_;
    wire::Done unreported_;                   // ends of launches of runs that go on
    bool due_ = false;                        // to be said at the end of this look
    std::vector<wire::LocalLaunch> expired_;  // decided here without a controller, to be reported at the next welcome

    Launches& launches_;
    Runs& runs_;
    Session& session_;
};

}  // namespace opus::manager
