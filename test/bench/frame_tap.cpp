// Stands between a manager and the controller, passes every frame on, and counts the messages in them.
//
//   bench_frame_tap --controller tcp://127.0.0.1:7070     prints "bench_frame_tap: ready wire=ADDRESS"
//
// One manager. At end of input it prints, as JSON, the messages of each kind in each direction, and the launches
// that the demands held.
#include <unistd.h>
#include <zmq.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "opus/wire_codec.h"

namespace {

using namespace opus;

struct Direction {
    std::map<std::string, std::uint64_t> messages;
    std::uint64_t frames = 0, demanded = 0;

    void count(std::string_view bytes) {
        ++frames;
        const auto decoded = wire::decode(bytes);
        const auto* frame = std::get_if<wire::Frame>(&decoded);
        if (frame == nullptr) {
            ++messages["undecodable"];
            return;
        }
        for (const wire::Message& message : frame->messages) {
            ++messages[wire::message_name(message)];
            if (const auto* demand = std::get_if<wire::Demand>(&message)) demanded += demand->launches.size();
        }
    }
    nlohmann::json json() const { return {{"messages", messages}, {"frames", frames}, {"demanded", demanded}}; }
};

std::string take(void* socket) {
    zmq_msg_t part;
    ::zmq_msg_init(&part);
    ::zmq_msg_recv(&part, socket, 0);
    std::string bytes(static_cast<char*>(::zmq_msg_data(&part)), ::zmq_msg_size(&part));
    ::zmq_msg_close(&part);
    return bytes;
}

int tap(const std::string& controller) {
    void* context = ::zmq_ctx_new();
    void* near = ::zmq_socket(context, ZMQ_ROUTER);
    void* far = ::zmq_socket(context, ZMQ_DEALER);
    char address[256] = {};
    std::size_t length = sizeof(address);
    if (::zmq_bind(near, "tcp://127.0.0.1:0") != 0 || ::zmq_connect(far, controller.c_str()) != 0 ||
        ::zmq_getsockopt(near, ZMQ_LAST_ENDPOINT, address, &length) != 0) {
        std::fprintf(stderr, "bench_frame_tap: %s: %s\n", controller.c_str(), ::zmq_strerror(::zmq_errno()));
        return 1;
    }
    std::printf("bench_frame_tap: ready wire=%s\n", address);
    std::fflush(stdout);
    Direction up, down;
    std::string peer;
    for (;;) {
        zmq_pollitem_t items[3] = {
            {near, 0, ZMQ_POLLIN, 0}, {far, 0, ZMQ_POLLIN, 0}, {nullptr, STDIN_FILENO, ZMQ_POLLIN, 0}};
        if (::zmq_poll(items, 3, -1) < 0) return 1;
        if (items[0].revents != 0) {
            peer = take(near);
            const std::string bytes = take(near);
            up.count(bytes);
            ::zmq_send(far, bytes.data(), bytes.size(), 0);
        }
        if (items[1].revents != 0) {
            const std::string bytes = take(far);
            down.count(bytes);
            ::zmq_send(near, peer.data(), peer.size(), ZMQ_SNDMORE);
            ::zmq_send(near, bytes.data(), bytes.size(), 0);
        }
        if (items[2].revents != 0) break;
    }
    const nlohmann::json counted = {{"up", up.json()}, {"down", down.json()}};
    std::puts(counted.dump().c_str());
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    std::string controller;
    CLI::App app{"Counts the messages between a manager and the controller"};
    app.add_option("--controller", controller, "its address")->required();
    CLI11_PARSE(app, argc, argv);
    return tap(controller);
}
