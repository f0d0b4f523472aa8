// One question to the controller and its answers.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <zmq.hpp>

#include "opus/wire.h"

namespace opus::ctl {

struct NoController : std::runtime_error {
    using std::runtime_error::runtime_error;
};
struct Refusal : std::runtime_error {
    using std::runtime_error::runtime_error;
};

class ControllerClient {
public:
    // Throws Refusal when the address is no address.
    ControllerClient(const std::string& address, int timeout_ms);

    // The last answer. Throws NoController when the first does not come in time, or the controller goes
    // away; Refusal with the controller's words.
    nlohmann::json ask(const std::string& command, const nlohmann::json& arguments);
    // The parts of a list that comes in parts, put together: until it has `most` elements, or all.
    nlohmann::json ask_all(const std::string& command, nlohmann::json arguments, const char* list, std::size_t most);
    // Every answer until `more` returns false. `over`, where given, is asked every `look_ms` as well: true ends it.
    void follow(const std::string& command, const nlohmann::json& arguments,
                const std::function<bool(const nlohmann::json&)>& more, int look_ms = -1,
                const std::function<bool()>& over = {});

private:
    std::string address_;
    int timeout_ms_;
    zmq::context_t context_;
    zmq::socket_t socket_, monitor_;

    void send(const std::string& command, const nlohmann::json& arguments);
    wire::CtlReply receive(int timeout_ms);
    bool arrived(int look_ms);
};

}  // namespace opus::ctl
