// The data plane (opus/data_plane.h): NIC ports are sockets, a frame passes only where the optical plane passes
// light at the moment the frame is handled. A frame is whole before it is handled; what the receiver does
// not take yet waits in a bounded queue, and then the sender waits.
#pragma once

#include <cstdio>
#include <deque>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "opus/data_plane.h"
#include "tools/emulator/counters.h"
#include "tools/emulator/frame_block.h"
#include "tools/emulator/listener.h"
#include "tools/emulator/optical_plane.h"

namespace opus::emulator {

struct DataPlaneOptions {
    bool always_lit = false;  // every port reaches every other: an electrical rail
    double port_gbps = 0;     // of each port, each way; 0: as fast as it goes
    std::string loss_log;     // file; empty: none
};

class DataPlane {
public:
    // Throws std::runtime_error with a text for people.
    DataPlane(Loop& loop, const OpticalPlane& optical_plane, Counters& counters, const DataPlaneOptions& options,
              const std::string& address);
    ~DataPlane();
    const std::string& address() const { return listener_.address(); }

private:
    class Connection;
    enum class Fate : std::uint8_t { handled, waits };

    void accepted(int fd);
    bool attach(Connection& c);
    void take_frames(Connection& c);
    Fate handle(Connection& c, data_plane::FrameHeader& header, std::size_t frame_bytes);
    Connection* receiver(const Connection& c, const data_plane::FrameHeader& header, bool& lit) const;
    Connection* find(std::uint64_t endpoint, SwitchPort port) const;
    bool paced(Connection& c, SwitchPort out, std::size_t frame_bytes, TimeNs now);
    void log_loss(const char* what, const Connection& c, const data_plane::FrameHeader& header);
    void resume_waiters(Connection& target);
    void settle();
    TimeNs round(TimeNs now);
    void end(Connection& c);

    Loop& loop_;
    const OpticalPlane& optical_plane_;
    Counters& counters_;
    DataPlaneOptions options_;
    FILE* loss_log_ = nullptr;
    bool loss_log_dirty_ = false;
    BlockPool pool_;
    std::unordered_map<Connection*, std::unique_ptr<Connection>> connections_;
    std::unordered_map<std::uint64_t, std::vector<Connection*>> endpoints_;
    std::vector<Connection*> dirty_;    // have bytes to send
    std::deque<Connection*> runnable_;  // may go on with what they have received
    std::set<std::pair<TimeNs, Connection*>> paced_;
    std::vector<std::unique_ptr<Connection>> ended_;           // until the round is over
    std::vector<TimeNs> sending_free_ns_, receiving_free_ns_;  // per port: when the next frame may start
    Listener listener_;
};

}  // namespace opus::emulator
