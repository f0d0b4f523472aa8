// What opus-manager is around its core: readers of rings, the connection to the controller, recovery.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "manager/core/core.h"
#include "manager/shell/ring_reader.h"
#include "test/sim/random.h"
#include "test/sim/scenario.h"

namespace opus::sim {

class World;

class ManagerHost {
public:
    ManagerHost(World& world, const Scenario& scenario, NodeIndex node);

    void start();
    void die();
    bool alive() const { return core_ != nullptr; }
    std::uint64_t life() const { return life_; }
    TimeNs alone_for() const;  // without a word from a controller
    const manager::Core* core() const { return core_.get(); }

    bool attach(std::uint32_t rank);  // false: nobody answers
    void rank_gone(std::uint32_t rank);
    void look_soon(std::uint32_t rank, TimeNs after);
    std::uint32_t rank_of(RankId id) const;  // the latest that had this number

    // Calendar.
    void look(std::uint64_t number);
    void tick(std::uint64_t number);
    void retracted(std::uint64_t life);

    // The connection (network.h).
    void connected(std::uint64_t session);
    void disconnected();
    void hear(wire::Frame& frame);

private:
    struct LocalRank {
        std::uint32_t rank = 0;
        manager::RingReader reader;
        bool dirty = false;
    };

    void add(std::uint32_t rank, bool recovered);
    void feed(const manager::Event& event);
    void perform_all();
    void look_at(LocalRank& local, bool scan);
    void settle();
    void send(std::vector<wire::Message>&& messages);
    void perform(manager::Send&& a) { perform(a); }
    void perform(manager::Send& a);
    void perform(const manager::SetGo& a);
    void perform(const manager::ReleaseEarly& a);
    void perform(const manager::ReleaseAhead& a);
    void perform(manager::Retract& a);
    void perform(const manager::SetVerdict& a);
    void perform(const manager::SetOpen& a);
    void perform(const manager::Retired& a);
    void perform(const manager::FreeComm& a);
    void perform(const manager::Steer&) {}
    void perform(const manager::SetNode&) {}
    void perform(const manager::ForgetRank& a);
    void perform(const manager::EndSession& a);
    void perform(const manager::End& a);
    void perform(const manager::WakeAt& a);
    void perform(const manager::Log& a);

    World& world_;
    const Scenario& s_;
    NodeIndex node_;
    Random random_;
    std::unique_ptr<manager::Core> core_;
    std::uint64_t life_ = 0;
    std::map<RankId, LocalRank> ranks_;
    std::map<RankId, std::uint32_t> numbers_;  // of all ranks, dead ones too
    RankId next_rank_ = 0;
    manager::Actions actions_;
    std::vector<manager::Event> events_;
    std::vector<wire::Message> outgoing_;
    std::deque<manager::Retract> taking_back_;
    std::uint64_t look_number_ = 0, tick_number_ = 0;
    TimeNs heard_ns_ = 0;
    TimeNs look_at_ns_ = -1, last_scan_ns_ = 0;
    bool reconnect_ = false;
    // ControllerLink's.
    bool connected_ = false, desynced_ = false;
    std::uint64_t session_ = 0, epoch_ = 0, sent_ = 0, received_ = 0;
};

}  // namespace opus::sim
