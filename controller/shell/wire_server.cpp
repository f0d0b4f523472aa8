#include "controller/shell/wire_server.h"

#include <stdexcept>

#include "opus/wire_codec.h"

namespace opus::controller {
namespace {

constexpr int kFramesQueued = 100'000;  // towards one peer; beyond it is as good as gone

std::string remedy(int error, const std::string& address) {
    switch (error) {
        case EADDRINUSE: return "; another controller serves there: end it, or choose another address with --bind";
        case EADDRNOTAVAIL:
        case ENODEV: return "; this host has no such address: choose one of its own with --bind";
        case EACCES: return "; not permitted: choose a port above 1023, or a path you may write to";
        case EINVAL:
        case EPROTONOSUPPORT: return "; an address is like tcp://0.0.0.0:7070 or ipc:///run/opus/controller.sock";
        default: return address.rfind("ipc:", 0) == 0 ? "; does the folder exist?" : "";
    }
}

}  // namespace

WireServer::WireServer(const std::string& address, int io_threads, Complaint complaint)
    : context_(io_threads), socket_(context_, zmq::socket_type::router), complaint_(std::move(complaint)) {
    socket_.set(zmq::sockopt::linger, 200);
    socket_.set(zmq::sockopt::router_mandatory, true);
    socket_.set(zmq::sockopt::sndhwm, kFramesQueued);
    socket_.set(zmq::sockopt::rcvhwm, kFramesQueued);
    socket_.set(zmq::sockopt::maxmsgsize, static_cast<std::int64_t>(wire::kMaxFrameBytes));
    // Only where it is meant: else an IPv4 address would be told as [::ffff:127.0.0.1].
    socket_.set(zmq::sockopt::ipv6, address.find('[') != std::string::npos);
    socket_.set(zmq::sockopt::tcp_keepalive, 1);
    try {
        socket_.bind(address);
    } catch (const zmq::error_t& error) {
        throw std::runtime_error("cannot bind " + address + ": " + error.what() + remedy(error.num(), address));
    }
    address_ = socket_.get(zmq::sockopt::last_endpoint);
}

void WireServer::reject(const std::string& peer, const std::string& why, bool other_version) {
    ++counters_.rejected;
    if (complained_.size() >= kPeersRemembered) complained_.clear();
    if (!complained_.insert(peer).second) return;
    complaint_("a peer sent what cannot be used (further ones of it are only counted): " + why);
    if (other_version) send(peer, {0, 0, 1, {wire::Refused{0, why}}});
}

void WireServer::receive_one(zmq::message_t& from, const Handler& handler) {
    const std::string peer = from.to_string();
    zmq::message_t payload;
    std::size_t parts = 0;
    bool more = from.more();
    while (more) {
        zmq::message_t part;
        if (!socket_.recv(part, zmq::recv_flags::dontwait)) break;
        more = part.more();
        if (parts++ == 0) payload = std::move(part);
    }
    if (parts != 1) return reject(peer, "a message of " + std::to_string(parts) + " parts, must be 1", false);
    auto decoded = wire::decode(payload.to_string_view());
    if (const auto* error = std::get_if<wire::DecodeError>(&decoded))
        return reject(peer, error->text, error->other_version);
    current_ = &payload;
    handler(peer, std::move(std::get<wire::Frame>(decoded)));
    current_ = nullptr;
}

std::string WireServer::sender_address() {
    const char* address = current_ == nullptr ? nullptr : zmq_msg_gets(current_->handle(), "Peer-Address");
    return address == nullptr ? "" : address;
}

bool WireServer::receive(std::size_t most, const Handler& handler) {
    for (std::size_t i = 0; i < most; ++i) {
        zmq::message_t from;
        if (!socket_.recv(from, zmq::recv_flags::dontwait)) return false;
        ++counters_.frames_in;
        receive_one(from, handler);
    }
    return true;
}

bool WireServer::send(const std::string& peer, const wire::Frame& frame) {
    wire::encode(frame, bytes_);
    try {
        const bool sent = socket_.send(zmq::buffer(peer), zmq::send_flags::sndmore | zmq::send_flags::dontwait).has_value() &&
                          socket_.send(zmq::buffer(bytes_), zmq::send_flags::dontwait).has_value();
        ++(sent ? counters_.frames_out : counters_.undelivered);
        return sent;
    } catch (const zmq::error_t&) {  // EHOSTUNREACH: the peer has gone
        ++counters_.undelivered;
        return false;
    }
}

}  // namespace opus::controller
