// What opus-controller is around its core: sessions, frames, drivers.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "controller/core/core.h"
#include "controller/shell/sessions.h"
#include "test/sim/random.h"
#include "test/sim/scenario.h"

namespace opus::sim {

class World;

class ControllerHost {
public:
    ControllerHost(World& world, const Scenario& scenario);

    void start();
    void die();
    bool alive() const { return core_ != nullptr; }
    bool fences() const;  // a port
    std::uint64_t life() const { return life_; }
    const controller::Core* core() const { return core_.get(); }
    controller::Core* core() { return core_.get(); }

    void hear(std::uint32_t connection, wire::Frame& frame);
    void hear(SwitchIndex sw, const DriverEvent& event);
    void closed(std::uint32_t connection);  // its transport has noticed
    void tick(std::uint64_t number);
    void every_second(std::uint64_t life);
    void thought(std::uint64_t number);

private:
    void halve(controller::Actions& actions);
    void check_fence(PortId port);
    void feed(const controller::Event& event);
    void carry_out(controller::Action& action);
    void post(NodeIndex node, std::uint64_t session, wire::Message&& message);
    void send_outbox();
    void flush();
    void hello(const std::string& peer, const wire::Frame& frame, const wire::Hello& hello);
    void end_session(NodeIndex node, const std::string& reason);
    controller::plan::Order drawn_order(const controller::plan::Task& task);
    bool send(const std::string& peer, wire::Frame&& frame);

    World& world_;
    const Scenario& s_;
    Random random_, thoughts_random_;
    struct Thinking {
        std::uint64_t life = 0, id = 0;
        std::shared_ptr<const controller::plan::Task> task;
    };
    std::vector<Thinking> thinking_;
    std::unique_ptr<controller::Core> core_;
    std::unique_ptr<controller::Sessions> sessions_;
    std::uint64_t life_ = 0, epoch_ = 0, tick_number_ = 0;
    std::vector<std::vector<wire::Message>> outbox_;
    std::vector<NodeIndex> outbox_nodes_, unreachable_;
    std::set<std::string> strangers_;
    std::set<std::string> closed_;
    controller::Actions actions_;
};

}  // namespace opus::sim
