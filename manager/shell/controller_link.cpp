#include "manager/shell/controller_link.h"

#include <zmq.h>

#include <cerrno>
#include <cstring>
#include <random>
#include <stdexcept>

#include "opus/wire_codec.h"

namespace opus::manager {
namespace {

void set(void* socket, int option, int value) { zmq_setsockopt(socket, option, &value, sizeof value); }

int descriptor_of(void* socket) {
    int fd = -1;
    std::size_t size = sizeof fd;
    zmq_getsockopt(socket, ZMQ_FD, &fd, &size);
    return fd;
}

std::uint64_t draw_session() {
    std::random_device device;
    std::uint64_t session = 0;
    while (session == 0) session = (std::uint64_t(device()) << 32) | device();
    return session;
}

}  // namespace

struct ControllerLink::Sockets {
    void* dealer = nullptr;
    void* monitor = nullptr;
    ~Sockets() {
        if (dealer != nullptr) zmq_socket_monitor(dealer, nullptr, 0);
        if (monitor != nullptr) zmq_close(monitor);
        if (dealer != nullptr) zmq_close(dealer);
    }
};

ControllerLink::ControllerLink(std::string address, Sink sink)
    : address_(std::move(address)), sink_(std::move(sink)), context_(zmq_ctx_new()) {
    open();
}

ControllerLink::~ControllerLink() {
    sockets_.reset();
    zmq_ctx_term(context_);
}

void ControllerLink::open() {
    sockets_ = std::make_unique<Sockets>();
    connected_ = desynced_ = false;
    sockets_->dealer = zmq_socket(context_, ZMQ_DEALER);
    void* dealer = sockets_->dealer;
    set(dealer, ZMQ_LINGER, 0);
    set(dealer, ZMQ_IMMEDIATE, 1);  // nothing is queued for a connection that is not there
    set(dealer, ZMQ_SNDHWM, 100'000);
    set(dealer, ZMQ_RCVHWM, 100'000);
    set(dealer, ZMQ_RECONNECT_IVL, 50);
    set(dealer, ZMQ_RECONNECT_IVL_MAX, 1'000);
    set(dealer, ZMQ_CONNECT_TIMEOUT, 5'000);
    const std::int64_t most = static_cast<std::int64_t>(wire::kMaxFrameBytes);
    zmq_setsockopt(dealer, ZMQ_MAXMSGSIZE, &most, sizeof most);

    const std::string monitor = "inproc://monitor-" + std::to_string(++sockets_opened_);
    zmq_socket_monitor(dealer, monitor.c_str(), ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_DISCONNECTED);
    sockets_->monitor = zmq_socket(context_, ZMQ_PAIR);
    set(sockets_->monitor, ZMQ_LINGER, 0);
    zmq_connect(sockets_->monitor, monitor.c_str());
    if (zmq_connect(dealer, address_.c_str()) != 0)
        throw std::runtime_error("controller address " + address_ + ": " + zmq_strerror(errno) +
                                 "; it looks like tcp://HOST:PORT");
}

int ControllerLink::descriptor() const { return descriptor_of(sockets_->dealer); }
int ControllerLink::monitor_descriptor() const { return descriptor_of(sockets_->monitor); }

void ControllerLink::restart() {
    sockets_.reset();
    open();
}

void ControllerLink::hear_monitor() {
    for (;;) {
        zmq_msg_t part;
        zmq_msg_init(&part);
        const int bytes = zmq_msg_recv(&part, sockets_->monitor, ZMQ_DONTWAIT);
        std::uint16_t event = 0;
        if (bytes >= 2) std::memcpy(&event, zmq_msg_data(&part), sizeof event);
        zmq_msg_close(&part);
        if (bytes < 0) return;
        zmq_msg_init(&part);  // the address
        zmq_msg_recv(&part, sockets_->monitor, ZMQ_DONTWAIT);
        zmq_msg_close(&part);
        if (event == ZMQ_EVENT_DISCONNECTED && connected_) {
            connected_ = false;
            sink_.down();
        } else if (event == ZMQ_EVENT_HANDSHAKE_SUCCEEDED) {
            if (connected_) sink_.down();
            connected_ = true;
            session_ = draw_session();
            epoch_ = sent_ = received_ = 0;
            sink_.up(session_);
        }
    }
}

void ControllerLink::receive(bool monitor) {
    if (monitor) hear_monitor();
    for (;;) {
        zmq_msg_t message;
        zmq_msg_init(&message);
        const int bytes = zmq_msg_recv(&message, sockets_->dealer, ZMQ_DONTWAIT);
        if (bytes >= 0 && connected_ && !desynced_)
            hear_frame(static_cast<const char*>(zmq_msg_data(&message)), static_cast<std::size_t>(bytes));
        zmq_msg_close(&message);
        if (bytes < 0) break;
    }
    if (!desynced_) return;
    sink_.down();
    restart();
}

void ControllerLink::hear_frame(const char* data, std::size_t bytes) {
    auto decoded = wire::decode({data, bytes});
    if (const auto* error = std::get_if<wire::DecodeError>(&decoded)) {
        // What it said is lost, so the sequence will show a gap: start over then.
        sink_.complain(error->text);
        return;
    }
    auto& frame = std::get<wire::Frame>(decoded);
    if (frame.session != session_) return;
    if (frame.sequence != ++received_) {
        sink_.complain("frame " + std::to_string(frame.sequence) + " came where " + std::to_string(received_) +
                       " was next: starting a new session");
        desynced_ = true;
        return;
    }
    for (wire::Message& message : frame.messages) {
        if (const auto* welcome = std::get_if<wire::Welcome>(&message)) epoch_ = welcome->epoch;
        sink_.message(frame.epoch, frame.session, std::move(message));
    }
}

void ControllerLink::send(std::vector<wire::Message>&& messages) {
    if (!connected_ || messages.empty()) return;
    wire::Frame frame;
    const bool hello = std::holds_alternative<wire::Hello>(messages.front());
    frame.epoch = hello ? 0 : epoch_;
    frame.session = session_;
    frame.sequence = ++sent_;
    frame.messages = std::move(messages);
    wire::encode(frame, buffer_);
    if (zmq_send(sockets_->dealer, buffer_.data(), buffer_.size(), ZMQ_DONTWAIT) < 0) {
        sink_.complain(std::string("a frame could not be sent: ") + zmq_strerror(errno));
        desynced_ = true;  // the controller would see a gap
    }
}

}  // namespace opus::manager
