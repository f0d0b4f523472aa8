#include "tools/ctl/controller_client.h"

#include <zmq.h>

#include "opus/wire_codec.h"

namespace opus::ctl {
namespace {

constexpr int kForever = -1;
constexpr std::uint64_t kRequest = 1;

}  // namespace

ControllerClient::ControllerClient(const std::string& address, int timeout_ms)
    : address_(address),
      timeout_ms_(timeout_ms),
      context_(1),
      socket_(context_, zmq::socket_type::dealer),
      monitor_(context_, zmq::socket_type::pair) {
    socket_.set(zmq::sockopt::linger, 0);
    socket_.set(zmq::sockopt::ipv6, true);
    socket_.set(zmq::sockopt::maxmsgsize, static_cast<std::int64_t>(wire::kMaxFrameBytes));
    zmq_socket_monitor(socket_.handle(), "inproc://monitor", ZMQ_EVENT_DISCONNECTED);
    monitor_.connect("inproc://monitor");
    try {
        socket_.connect(address);
    } catch (const zmq::error_t& error) {
        throw Refusal("'" + address + "' is no address (" + error.what() + "): it is like tcp://127.0.0.1:7070");
    }
}

void ControllerClient::send(const std::string& command, const nlohmann::json& arguments) {
    std::string bytes;
    wire::encode({0, 0, 1, {wire::CtlRequest{kRequest, command, arguments.dump()}}}, bytes);
    socket_.send(zmq::buffer(bytes), zmq::send_flags::none);
}

wire::CtlReply ControllerClient::receive(int timeout_ms) {
    zmq_pollitem_t items[] = {{socket_.handle(), 0, ZMQ_POLLIN, 0}, {monitor_.handle(), 0, ZMQ_POLLIN, 0}};
    for (;;) {
        const int ready = zmq_poll(items, 2, timeout_ms);
        if (ready < 0) throw NoController("interrupted");
        if (ready == 0)
            throw NoController("no controller answers at " + address_ + " within " + std::to_string(timeout_ms) +
                               " ms: is opus-controller running there? (--controller, OPUS_CONTROLLER)");
        if (items[0].revents == 0) throw NoController("the controller at " + address_ + " has gone away");
        zmq::message_t message;
        if (!socket_.recv(message, zmq::recv_flags::dontwait)) continue;
        auto decoded = wire::decode(message.to_string_view());
        if (const auto* error = std::get_if<wire::DecodeError>(&decoded)) throw Refusal(error->text);
        for (auto& body : std::get<wire::Frame>(decoded).messages) {
            if (const auto* refused = std::get_if<wire::Refused>(&body)) throw Refusal(refused->reason);
            auto* reply = std::get_if<wire::CtlReply>(&body);
            if (!reply || reply->id != kRequest) continue;
            if (!reply->ok) throw Refusal(reply->body);
            return std::move(*reply);
        }
    }
}

// False: nothing within that time, or a signal came.
bool ControllerClient::arrived(int look_ms) {
    zmq_pollitem_t items[] = {{socket_.handle(), 0, ZMQ_POLLIN, 0}, {monitor_.handle(), 0, ZMQ_POLLIN, 0}};
    return zmq_poll(items, 2, look_ms) > 0;
}

void ControllerClient::follow(const std::string& command, const nlohmann::json& arguments,
                              const std::function<bool(const nlohmann::json&)>& more, int look_ms,
                              const std::function<bool()>& over) {
    send(command, arguments);
    wire::CtlReply reply = receive(timeout_ms_);
    while (more(nlohmann::json::parse(reply.body)) && reply.more) {
        while (over && !arrived(look_ms))
            if (over()) return;
        reply = receive(kForever);
    }
}

nlohmann::json ControllerClient::ask(const std::string& command, const nlohmann::json& arguments) {
    nlohmann::json last;
    follow(command, arguments, [&](const nlohmann::json& body) { return last = body, true; });
    return last;
}

nlohmann::json ControllerClient::ask_all(const std::string& command, nlohmann::json arguments, const char* list,
                                         std::size_t most) {
    nlohmann::json all = ask(command, arguments);
    nlohmann::json& parts = all.at(list);
    while (all.contains("next") && parts.size() < most) {
        arguments["from"] = all["next"];
        nlohmann::json more = ask(command, arguments);
        for (nlohmann::json& element : more.at(list)) parts.push_back(std::move(element));
        all.erase("next");
        if (more.contains("next")) all["next"] = more["next"];
    }
    all.erase("next");
    return all;
}

}  // namespace opus::ctl
