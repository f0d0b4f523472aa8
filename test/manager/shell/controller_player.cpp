#include "test/manager/shell/controller_player.h"

#include <doctest/doctest.h>
#include <zmq.h>

#include <algorithm>

#include "opus/wire_codec.h"

namespace opus::manager::test {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

ControllerPlayer::ControllerPlayer(std::uint64_t epoch, const std::string& address)
    : context_(zmq_ctx_new()), router_(zmq_socket(context_, ZMQ_ROUTER)), epoch_(epoch) {
    const int zero = 0;
    zmq_setsockopt(router_, ZMQ_LINGER, &zero, sizeof zero);
    // A port given again may take its old connections a moment to leave.
    bool bound = false;
    for (int i = 0; i < 200 && !bound; ++i) {
        bound = zmq_bind(router_, address.c_str()) == 0;
        if (!bound) zmq_poll(nullptr, 0, 20);
    }
    REQUIRE(bound);
    char name[256];
    std::size_t size = sizeof name;
    zmq_getsockopt(router_, ZMQ_LAST_ENDPOINT, name, &size);
    address_ = name;
}

ControllerPlayer::~ControllerPlayer() {
    zmq_close(router_);
    zmq_ctx_term(context_);
}

bool ControllerPlayer::receive(int timeout_ms) {
    zmq_pollitem_t item{router_, 0, ZMQ_POLLIN, 0};
    if (zmq_poll(&item, 1, timeout_ms) <= 0) return false;
    std::string parts[2];
    for (std::string& part : parts) {
        zmq_msg_t message;
        zmq_msg_init(&message);
        zmq_msg_recv(&message, router_, 0);
        part.assign(static_cast<const char*>(zmq_msg_data(&message)), zmq_msg_size(&message));
        zmq_msg_close(&message);
    }
    auto decoded = wire::decode(parts[1]);
    if (const auto* error = std::get_if<wire::DecodeError>(&decoded)) FAIL("the manager said: " << error->text);
    auto& frame = std::get<wire::Frame>(decoded);
    for (const wire::Message& message : frame.messages) {
        if (const auto* hello = std::get_if<wire::Hello>(&message)) {
            ++hellos;
            peer_ = parts[0];
            session_ = hello->session;
            sent_ = 0;
            send(wire::Welcome{session_, epoch_, 0, {{0, 2, "", "r0"}}});
        }
    }
    frames.push_back(std::move(frame.messages));
    return true;
}

void ControllerPlayer::maybe_beat() {
    if (!beats_ || session_ == 0 || Clock::now() - last_beat_ < std::chrono::seconds(1)) return;
    last_beat_ = Clock::now();
    send(wire::Heartbeat{1});
}

bool ControllerPlayer::hear_until(const std::function<bool()>& enough) {
    const auto end = Clock::now() + std::chrono::seconds(10);
    while (!enough()) {
        if (Clock::now() >= end) return false;
        maybe_beat();
        receive(100);
    }
    return true;
}

void ControllerPlayer::hear_for(std::chrono::milliseconds time) {
    for (const auto end = Clock::now() + time; Clock::now() < end;) {
        maybe_beat();
        receive(20);
    }
}

void ControllerPlayer::send(wire::Message message) {
    wire::Frame frame{epoch_, session_, ++sent_, {}};
    frame.messages.push_back(std::move(message));
    std::string bytes;
    wire::encode(frame, bytes);
    zmq_send(router_, peer_.data(), peer_.size(), ZMQ_SNDMORE);
    zmq_send(router_, bytes.data(), bytes.size(), 0);
}

bool ControllerPlayer::hear_members(std::size_t count) {
    return hear_until([&] {
        std::size_t members = 0;
        for (const auto& r : said<wire::Register>()) members += r.comms.size();
        return members >= count;
    });
}

bool ControllerPlayer::hear_demand_of(RankId rank, std::uint64_t seq) {
    return hear_until([&] {
        const auto demands = said<wire::Demand>();
        return std::any_of(demands.begin(), demands.end(), [&](const auto& d) {
            return std::any_of(d.launches.begin(), d.launches.end(), [&](const auto& l) {
                return l.launch == wire::LocalLaunch{rank, seq};
            });
        });
    });
}

bool ControllerPlayer::hear_done_of(RankId rank, std::uint64_t seq) {
    return hear_until([&] {
        const auto dones = said<wire::Done>();
        return std::any_of(dones.begin(), dones.end(), [&](const auto& d) {
            return std::any_of(d.launches.begin(), d.launches.end(), [&](const auto& l) {
                return l.launch == wire::LocalLaunch{rank, seq};
            });
        });
    });
}

}  // namespace opus::manager::test
