// Runs: what members may start without asking, and who takes it back.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "controller/core/leases/run.h"
#include "controller/core/room.h"
#include "controller/plan/course.h"

namespace opus::controller {

class Adoption;
class Cuts;
class Fences;
class Gangs;
class Launches;
class Schedule;
class NodeSessions;
class Turns;

class Runs : Room {
public:
    Runs(World& world, Rooms& rooms);

    bool empty() const { return runs_.empty(); }
    Run* find(std::uint64_t grant);
    Run* run_of(const Comm& comm, const Key& sequence, std::uint64_t begin, std::uint64_t end);

    // The soft part of the gang's grant, by node.
    std::map<NodeIndex, std::vector<wire::KeyRange>> begin(const Gang& gang, std::uint64_t grant, std::uint32_t circuits);

    void revoke_for(Gang& gang, const WantedPort& wanted);
    void revoke_on(PairId e, const std::string& why);
    void revoke_of(Comm& comm, const std::string& why, bool endless = true);
    void revoke_endless_at(GpuId gpu, const std::string& why);
    void end_beyond(const plan::Course& course, PortId p);
    void demand_meets_runs(const Launch& launch);
    void quantum_over(std::uint64_t grant);

    // run_ends.cpp
    void hear(NodeIndex n, const wire::Returned& m);
    void node_is_over(Run& run, NodeIndex n);
    void end_of(Comm& comm);
    void adopt_tokens(NodeIndex n, const std::vector<wire::Token>& tokens);
    void look_again(const Comm& comm);  // adopted ones, when more is known
    void look_again();
    void settle_adopted();

    std::string check();  // an invariant, for Core::check()

private:
    // run_offers.cpp
    struct Whole;
    Offers offer_endless(const Gang& gang);
    Offers offer_planned(const Gang& gang);
    bool may_begin(const Gang& gang) const;
    bool is_taken(const Gang& gang, PairId e) const;
    bool serves(PairId e) const;
    TimeNs longest_rest(const Gang& gang) const;
    bool has_rested(PairId e, TimeNs laps_ns) const;
    void list_wholes(const Gang& gang, const std::function<bool(PairId)>& can_lie, Offers& offers, std::vector<Whole>& wholes);
    bool can_offer_tied(Job& job, std::size_t tied, const std::function<bool(PairId)>& can_lie);
    static void begin_behind_asked(Offers& offers);
    static void offer_whole_launches(const std::vector<Whole>& wholes, const std::map<Key, std::uint64_t>& covered,
                                     Offers& offers);
    static bool align(const std::vector<Whole>& wholes, const std::map<Key, std::uint64_t>& covered, Offers& offers);
    bool find_members(const Key& sequence, Offer& offer);
    std::vector<PairId> pairs_of_sequence(Comm& comm, const Key& sequence, bool mesh);

    void join_comm(Comm& comm, std::uint64_t grant);
    void lie_on_pairs(Run& run);
    static bool covers(const Run& run, const KeyState& key);
    void revoke(Run& run, const std::string& why);
    void take_back(Run& run, const std::string& why);
    std::map<NodeIndex, std::vector<wire::PortSteering>> ports_of(const Run& run) const;
    void send_revoke(const Run& run, NodeIndex n);
    void close(Run& run);
    void adopt_token(NodeIndex n, const wire::Token& token);

    std::map<std::uint64_t, Run> runs_;  // by grant
    std::set<std::uint64_t> kept_;       // that have a quantum
    std::set<std::uint64_t> again_;      // adopted ones that are to be looked at

    Launches& launches_;
    Gangs& gangs_;
    Schedule& schedule_;
    Fences& fences_;
    Turns& turns_;
    Cuts& cuts_;
    Adoption& adoption_;
    NodeSessions& node_sessions_;
};

}  // namespace opus::controller
