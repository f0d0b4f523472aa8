// Grants: a gang starts, whole or not at all, and its nodes hear it together with where their ports lead.
#pragma once

#include <unordered_map>
#include <vector>

#include "controller/core/room.h"

namespace opus::controller {

class ChangeSets;
class Gangs;
class Hidden;
class Launches;
class Runs;
class Schedule;
class Turns;

class Grants : Room {
public:
    Grants(World& world, Rooms& rooms);

    void grant(Gang& gang);
    void finished(const Launch& launch);  // which was granted perhaps
    // id 0: of nothing, only steering.
    void send_grant(NodeIndex node, std::uint64_t id, std::vector<wire::LocalLaunch> firm,
                    std::vector<wire::KeyRange> soft = {});
    std::uint64_t next_id() { return next_++; }

private:
    struct Running {
        std::uint64_t ticket = 0;
        std::uint32_t launches = 0;
    };
    void count_grant(const Gang& gang, TimeNs exposed);
    std::vector<wire::PortSteering> steering_news(NodeIndex node);

    std::unordered_map<std::uint64_t, Running> running_;  // by grant
    std::uint64_t next_;

    Launches& launches_;
    Gangs& gangs_;
    Schedule& schedule_;
    ChangeSets& change_sets_;
    Turns& turns_;
    Hidden& hidden_;
    Runs& runs_;
};

}  // namespace opus::controller
