// Many managers in one process: each a connection of its own to the controller, with its own session and
// the real frames, but no ranks and no rings. All of them ride on one ROUTER socket, so that the load costs
// little beside what it loads.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "opus/wire_codec.h"

namespace opus::bench {

class GhostManagers {
public:
    // `count` nodes named n0, n1, ...; nodes of each `group` consecutive ones share a communicator.
    GhostManagers(const std::string& address, std::uint32_t count, std::uint32_t group);
    ~GhostManagers();
    GhostManagers(const GhostManagers&) = delete;
    GhostManagers& operator=(const GhostManagers&) = delete;

    // Hello, Welcome, Snapshot, until every communicator is enforced. Throws when that takes too long.
    void enroll();
    // Each manager asks, waits for its grant, and then says done and asks again in one frame, until
    // `requests` grants have come; then all are done. Returns the time it took.
    TimeNs drive(std::uint64_t requests);

private:
    struct Ghost {
        std::uint64_t session = 0, epoch = 0, sequence = 0;
        std::uint64_t seq = 0;  // launch asked for
        CommId comm;
        std::uint32_t rank_in_comm = 0;
        bool welcome = false, enforced = false;
    };
    void send(std::uint32_t ghost, std::vector<wire::Message> messages, bool hello = false);
    // The next frame and whose it is; false when none came within the limit.
    bool receive(std::uint32_t& ghost, wire::Frame& frame, int timeout_ms);
    wire::Demand demand(const Ghost& g) const;
    std::vector<wire::Message> snapshot(const Ghost& g) const;
    void handle_enrolment(std::uint32_t index, const wire::Frame& frame);

    void* context_ = nullptr;
    void* socket_ = nullptr;
    std::uint32_t group_ = 0;
    std::vector<Ghost> ghosts_;
    std::string out_;
    std::vector<char> in_;
};

}  // namespace opus::bench
