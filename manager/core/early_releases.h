// Early release: gates that are opened before they are reached, and taken back.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "manager/core/room.h"

namespace opus::manager {

class Launches;
class Runs;

// What is ahead of a launch in its families, and not done.
enum class Ahead : std::uint8_t {
    waits,      // some of it waits, in another stream
    let_go,     // all of it has been let go, some in other streams: NCCL keeps their order, and what is ahead counts as
                // started as soon as the launch is reached
    in_stream,  // it stands in the launch's stream, where gates are reached in order; or there is none
};

class EarlyReleases : Room {
public:
    EarlyReleases(World& world, Rooms& rooms);

    bool is_due() const;
    void release_all();
    void recorded(Rank& rank, Launch& launch);
    void started(Rank& rank, Launch& launch);
    void recovered(Rank& rank, const Launch& launch);

    void retract_all();
    void retract(const std::vector<std::uint64_t>& lapsing);  // what is covered by nothing but these grants
    bool go_ahead() const;                                    // some, of what is not recorded
    bool holds_back() const;                                  // some, of what is recorded
    bool are_retracting() const { return retractions_ != 0; }
    void handle(const Retracted& e);

    std::string check() const;  // an invariant, for Core::check()

private:
    void release(Rank& rank);
    void release_replays(Rank& rank);
    void let_go(Rank& rank, Launch& launch, std::uint64_t grant);
    void release_ahead(Rank& rank, const std::function<bool(std::uint32_t family)>& all_gone);
    bool goes_ahead(const Rank& rank, const Member& member, const std::vector<std::uint64_t>& without) const;
    std::uint64_t grant_for(const Rank& rank, const Launch& launch, Ahead ahead) const;
    void start_before(Rank& rank, const Launch& launch);
    struct Kept {
        std::function<bool(const Rank&, const Launch&)> launch;
        std::function<bool(const Rank&, const Member&)> ahead;
    };
    void retract_unless(const Kept& kept);

    std::uint32_t retractions_ = 0;  // not answered yet

    Launches& launches_;
    Runs& runs_;
};

}  // namespace opus::manager
