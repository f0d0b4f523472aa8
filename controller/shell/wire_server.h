// The controller's socket: frames in, checked; frames out. Bytes that are no frame are counted, told once
// a peer, and dropped here; what a whole frame means is the daemon's business.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <unordered_set>
#include <zmq.hpp>

#include "opus/wire.h"

namespace opus::controller {

struct WireCounters {
    std::uint64_t frames_in = 0, frames_out = 0, rejected = 0, undelivered = 0;
};

class WireServer {
public:
    using Handler = std::function<void(const std::string& peer, wire::Frame&& frame)>;
    using Complaint = std::function<void(const std::string& text)>;

    // Throws std::runtime_error that names the address and what to do.
    WireServer(const std::string& address, int io_threads, Complaint complaint);

    const std::string& address() const { return address_; }  // as bound, with the kernel's port
    void* handle() { return socket_.handle(); }              // for zmq_poll

    // Hands over at most `most` frames that have arrived; true when there may be more.
    bool receive(std::size_t most, const Handler& handler);
    // Of the frame that is being handed over: the address that it came from; empty: not known (ipc).
    std::string sender_address();
    // False when the peer is gone or does not read.
    bool send(const std::string& peer, const wire::Frame& frame);

    const WireCounters& counters() const { return counters_; }

private:
    static constexpr std::size_t kPeersRemembered = 4096;
    zmq::context_t context_;
    zmq::socket_t socket_;
    std::string address_;
    Complaint complaint_;
    WireCounters counters_;
    std::unordered_set<std::string> complained_;  // peers of which a bad frame was told
    std::string bytes_;
    zmq::message_t* current_ = nullptr;  // the frame that is being handed over

    void reject(const std::string& peer, const std::string& why, bool other_version);
    void receive_one(zmq::message_t& from, const Handler& handler);
};

}  // namespace opus::controller
