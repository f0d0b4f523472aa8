// Launches of this node's ranks, from record to done: which are ready, and which may start.
#pragma once

#include <vector>

#include "manager/core/room.h"

namespace opus::manager {

class EarlyReleases;
class Members;
class Reports;
class Runs;
class Session;

class Launches : Room {
public:
    Launches(World& world, Rooms& rooms);

    void handle(const Recorded& e);
    void handle(const Ready& e);
    void handle(const DoneSeen& e);
    void hear(const wire::Grant& m);
    void hear(const wire::Pass& m);
    void hear(const wire::Suspended& m);
    void hear(const wire::Waiting& m);

    void decide_all();  // of those that wait: may they start?
    void start(Rank& rank, Launch& launch, Phase phase, bool abort = false);
    void retire(Rank& rank);
    bool awaits_end(const wire::LocalLaunch& launch) const;
    static bool is_intra(const Rank& rank, const Launch& launch);

private:
    void consider(Rank& rank, Launch& launch);  // it may have become ready
    void decide(Rank& rank, Launch& launch);
    void pass_turn(Rank& rank, const std::vector<std::uint32_t>& families, std::uint64_t seq);
    void finish(Rank& rank, Launch& launch);

    Members& members_;
    Runs& runs_;
    EarlyReleases& early_releases_;
    Reports& reports_;
    Session& session_;
};

}  // namespace opus::manager
