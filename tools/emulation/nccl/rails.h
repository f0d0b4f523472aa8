// The way between nodes: over the data plane of include/opus/data_plane.h. Transport thread only.
//
// A link is this process and a peer process, by the NICs of one GPU of each: frames are numbered,
// acknowledged by the port they came in, sent again after STANDIN_RTO_MS by whatever port leads there then.
// Which port leads where is in the manager's steering table (include/opus/steering.h); without one, any
// port of this side's GPU. A link with no lit port waits and looks again.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "head.h"
#include "opus/data_plane.h"
#include "pipe.h"
#include "settings.h"
#include "steering_reader.h"

namespace opus::standin {

class Rails;

// One NIC port's socket to the emulator.
class RailPort {
public:
    RailPort(Transport& transport, Rails& rails, const PortLine& line, std::uint64_t endpoint);
    void attach();  // does nothing where it is attached, or trying
    bool attached() const { return state_ == State::attached; }
    void send(std::uint64_t to, FrameRef frame);
    void purge(const Activity* owner);
    const PortLine& line() const { return line_; }
    const std::string& problem() const { return problem_; }
    std::int64_t retry_at_ns() const { return retry_at_ns_; }

private:
    enum class State : std::uint8_t { down, connecting, greeting, attached };
    struct Out {
        data_plane::FrameHeader header;
        FrameRef frame;
    };
    void on_events(std::uint32_t events);
    void greet();
    void read();
    void write();
    void down(const std::string& why);
    void want(bool writing);

    Transport& transport_;
    Rails& rails_;
    PortLine line_;
    std::uint64_t endpoint_;
    State state_ = State::down;
    std::string problem_;
    std::int64_t retry_at_ns_ = 0;
    int fd_ = -1;
    bool want_write_ = false;
    std::deque<Out> out_;
    std::size_t out_done_ = 0;
    std::unique_ptr<Inbound> in_;
};

struct RailLink {
    Member peer;  // endpoint and node
    Way way;      // as seen from here
    std::deque<FrameRef> backlog;                 // no number yet
    std::map<std::uint64_t, FrameRef> under_way;  // by number, not acknowledged
    std::uint64_t next_number = 1;
    std::uint64_t seen_upto = 0;          // received: all numbers up to here,
    std::set<std::uint64_t> seen_beyond;  // and these
    std::size_t turn = 0;                 // over its ports
    std::int64_t dark_since_ns = 0;       // something waits for light: since when

    bool first_time(std::uint64_t number);
};

class Rails {
public:
    Rails(Transport& transport, std::uint64_t endpoint);
    std::string attach(const std::set<std::uint32_t>& gpus);  // empty: all ports of these are attached
    void send(const Member& to, Way way, FrameRef frame);
    void purge(const Activity* owner);
    // A rank of a communicator has left it in good order, so all that was sent to it has arrived. Its answers may have
    // been lost in the dark, and its process may have ended (a NIC would have answered long before its kernel was
    // over): what is not answered in time is not sent again.
    void has_left(std::uint64_t endpoint, std::uint64_t comm, std::uint32_t rank);
    int tick(std::int64_t now);  // milliseconds until it wants to be called again, -1: never

    void frame_came(RailPort& port, std::uint64_t from, const Head& head, const std::byte* data);

private:
    RailLink& link(std::uint64_t endpoint, Way way);
    void pump(RailLink& link, std::int64_t now);
    RailPort* port_for(RailLink& link);
    bool put(RailLink& link, const FrameRef& frame);

    Transport& transport_;
    std::uint64_t endpoint_;
    std::vector<std::unique_ptr<RailPort>> ports_;
    std::map<std::pair<std::uint64_t, Way>, RailLink> links_;
    SteeringReader steering_;
};

}  // namespace opus::standin
