// A manager played by a test: one DEALER that says what it is told to, whole frames or raw bytes.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <zmq.hpp>

#include "opus/wire_codec.h"

namespace opus::test {

class PlayedManager {
public:
    explicit PlayedManager(const std::string& address, std::uint64_t session = 77)
        : socket_(context_, zmq::socket_type::dealer), session_(session) {
        socket_.set(zmq::sockopt::linger, 0);
        socket_.set(zmq::sockopt::rcvtimeo, 20'000);
        socket_.connect(address);
    }

    std::uint64_t epoch = 0;     // of the frames to send
    std::uint64_t sequence = 0;  // of the last frame sent

    void raw(const std::string& bytes) { socket_.send(zmq::buffer(bytes), zmq::send_flags::none); }
    void parts(const std::vector<std::string>& parts) {
        for (std::size_t i = 0; i < parts.size(); ++i)
            socket_.send(zmq::buffer(parts[i]), i + 1 < parts.size() ? zmq::send_flags::sndmore : zmq::send_flags::none);
    }
    void say(std::vector<wire::Message> messages) {
        std::string bytes;
        wire::encode({epoch, session_, ++sequence, std::move(messages)}, bytes);
        raw(bytes);
    }

    std::optional<wire::Frame> hear() {
        zmq::message_t message;
        if (!socket_.recv(message)) return std::nullopt;
        auto decoded = wire::decode(message.to_string_view());
        if (auto* frame = std::get_if<wire::Frame>(&decoded)) return std::move(*frame);
        return std::nullopt;
    }
    // The next message of a kind; others are let pass. Nothing when 20 s go by without any frame.
    template <class T>
    std::optional<T> next() {
        for (;;) {
            for (; !heard_.empty(); heard_.erase(heard_.begin()))
                if (auto* wanted = std::get_if<T>(&heard_.front())) {
                    T found = std::move(*wanted);
                    heard_.erase(heard_.begin());
                    return found;
                }
            auto frame = hear();
            if (!frame) return std::nullopt;
            last_frame = *frame;
            heard_ = std::move(frame->messages);
        }
    }
    wire::Frame last_frame;

    // Hello, Welcome; false when refused.
    std::optional<wire::Welcome> greet(const std::string& node, std::uint64_t known_epoch = 0) {
        say({wire::Hello{node, session_, known_epoch, "test"}});
        auto welcome = next<wire::Welcome>();
        if (welcome) epoch = welcome->epoch;
        return welcome;
    }

private:
    zmq::context_t context_{1};
    zmq::socket_t socket_;
    std::uint64_t session_;
    std::vector<wire::Message> heard_;
};

}  // namespace opus::test
