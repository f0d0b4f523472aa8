// Early release: gates that are opened before they are reached, and taken back.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "manager/core/room.h"

namespace opus::manager {

class Launches;
class Runs;

class EarlyReleases : Room {
public:
    EarlyReleases(World& world, Rooms& rooms);

    bool is_due() const;
    void release_all();
    void started(Rank& rank, Launch& launch);
    void recovered(Rank& rank, const Launch& launch);

    void retract_all();
    void retract(const std::vector<std::uint64_t>& lapsing);  // what is covered by nothing but these grants
    bool are_retracting() const { return retractions_ != 0; }
    void handle(const Retracted& e);

    std::string check() const;  // an invariant, for Core::check()

private:
    void release(Rank& rank);
    void start_before(Rank& rank, const Launch& launch);
    void retract_unless(const std::function<bool(const Rank&, const Launch&)>& covered);

    std::uint32_t retractions_ = 0;  // not answered yet

    Launches& launches_;
    Runs& runs_;
};

}  // namespace opus::manager
