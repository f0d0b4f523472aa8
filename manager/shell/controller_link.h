// The wire to the controller: one ZeroMQ DEALER. Counts frames, draws sessions, tells connections from
// their monitor. Judges no message: that is the core's.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "opus/wire.h"

namespace opus::manager {

class ControllerLink {
public:
    struct Sink {
        std::function<void(std::uint64_t session)> up;  // connected: say hello with this session
        std::function<void()> down;
        std::function<void(std::uint64_t epoch, std::uint64_t session, wire::Message&&)> message;
        std::function<void(const std::string&)> complain;  // bytes that nobody can read
    };

    ControllerLink(std::string address, Sink sink);  // throws std::runtime_error: the address is no address
    ~ControllerLink();
    ControllerLink(const ControllerLink&) = delete;
    ControllerLink& operator=(const ControllerLink&) = delete;

    // Descriptors to wait on; both change with restart(). Readable means: call receive(), of the second with `monitor`.
    int descriptor() const;
    int monitor_descriptor() const;
    std::uint64_t opened() const { return sockets_opened_; }  // grows when they change

    // Everything that has arrived. Also to be called after send(): ZeroMQ signals edges.
    void receive(bool monitor);
    // One frame of all these messages; dropped when there is no connection.
    void send(std::vector<wire::Message>&& messages);
    // Another connection: `up` follows when it stands.
    void restart();

private:
    struct Sockets;
    void open();
    void hear_monitor();
    void hear_frame(const char* data, std::size_t bytes);

    std::string address_;
    Sink sink_;
    void* context_ = nullptr;
    std::unique_ptr<Sockets> sockets_;
    std::uint64_t sockets_opened_ = 0;
    bool connected_ = false;
    bool desynced_ = false;
    std::uint64_t session_ = 0, epoch_ = 0, sent_ = 0, received_ = 0;
    std::string buffer_;
};

}  // namespace opus::manager
