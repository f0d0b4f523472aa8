// Plays the controller: a ROUTER that welcomes managers, keeps what they say, sends what a test wants.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "opus/wire.h"

namespace opus::manager::test {

class ControllerPlayer {
public:
    explicit ControllerPlayer(std::uint64_t epoch = 1, const std::string& address = "tcp://127.0.0.1:*");
    ~ControllerPlayer();
    ControllerPlayer(const ControllerPlayer&) = delete;
    ControllerPlayer& operator=(const ControllerPlayer&) = delete;

    const std::string& address() const { return address_; }
    std::uint64_t session() const { return session_; }

    // Hears until `enough` or 10 s have passed; what it returns is whether it was enough.
    bool hear_until(const std::function<bool()>& enough);
    void hear_for(std::chrono::milliseconds time);
    void send(wire::Message message);
    void beat(bool on) { beats_ = on; }

    std::vector<std::vector<wire::Message>> frames;  // of the manager, in order
    std::uint64_t hellos = 0;

    template <class M>
    std::vector<M> said() const {
        std::vector<M> found;
        for (const auto& frame : frames)
            for (const wire::Message& message : frame)
                if (const auto* m = std::get_if<M>(&message)) found.push_back(*m);
        return found;
    }
    template <class M>
    bool hear() {
        return hear_until([this] { return !said<M>().empty(); });
    }
    // So many members of communicators have registered; a rank may register alone, before its communicators.
    bool hear_members(std::size_t count);
    bool hear_demand_of(RankId rank, std::uint64_t seq);
    bool hear_done_of(RankId rank, std::uint64_t seq);

private:
    bool receive(int timeout_ms);
    void maybe_beat();

    void *context_ = nullptr, *router_ = nullptr;
    std::string address_, peer_;
    std::uint64_t epoch_, session_ = 0, sent_ = 0;
    bool beats_ = false;
    std::chrono::steady_clock::time_point last_beat_{};
};

}  // namespace opus::manager::test
