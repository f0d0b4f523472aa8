// The session with the controller: greeting, heartbeats, silence, and which room hears what it says.
#pragma once

#include <optional>
#include <string>

#include "manager/core/room.h"

namespace opus::manager {

class Holds;
class Launches;
class Members;
class Reports;
class Runs;

class Session : Room {
public:
    Session(World& world, Rooms& rooms);

    void handle(const ControllerUp& e);
    void handle(const ControllerDown& e);
    void handle(const FromController& e);
    void handle(const Tick& e);

    bool is_up() const { return current_.state == State::up; }
    void end(const std::string& reason);
    TimeNs next_deadline() const;
    TimeNs heard_ns() const { return heard_ns_; }
    TimeNs grace_ns() const { return grace_ns_; }

private:
    enum class State : std::uint8_t { down, greeting, up, refused };
    struct Current {
        State state = State::down;
        std::uint64_t id = 0;
        std::uint64_t epoch = 0;
        TimeNs silence_ns = 0;      // without a frame for so long it is lost
        TimeNs heartbeat_ns = 0;    // ours are so far apart
        TimeNs last_frame = 0;      // or the Hello
        TimeNs last_heartbeat = 0;  // ours
        TimeNs retry_at = 0;        // refused, or asked to start over: end the session then
    };
    void lose_controller(const std::string& why);
    void send_heartbeat();
    void welcome(const wire::Welcome& m);
    void hear(const wire::Refused& m);
    void hear(const wire::Resync& m);
    void hear(const wire::Heartbeat& m);
    void hear(const wire::Verdicts& m);
    void hear(const wire::Grant& m);
    void hear(const wire::Revoke& m);
    void hear(const wire::Pass& m);
    void hear(const wire::Suspended& m);
    void hear(const wire::Waiting& m);
    template <class Other>
    void hear(const Other&) {  // not for a manager
        ++counters_.rejected;
    }

    Current current_;
    std::uint64_t known_epoch_ = 0;
    TimeNs heard_ns_ = 0;  // the last frame of a controller that knew us
    TimeNs grace_ns_ = 0;  // not hearing of us for so long, it takes our runs for over; 0: it has not said
    std::string refusal_;  // last reason shown
    std::optional<TimeNs> refused_since_;  // because another manager speaks for this node

    Members& members_;
    Launches& launches_;
    Runs& runs_;
    Reports& reports_;
    Holds& holds_;
};

}  // namespace opus::manager
