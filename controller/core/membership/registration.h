// Registration: ranks and communicators that come and go, and whether a communicator is held.
#pragma once

#include <string>
#include <vector>

#include "controller/core/room.h"

namespace opus::controller {

class Adoption;
class Creation;
class Cuts;
class Gangs;
class Holds;
class Jobs;
class Joined;
class Launches;
class Runs;
class Schedule;
class Suspension;

class Registration : Room {
public:
    Registration(World& world, Rooms& rooms);

    void register_ranks(NodeIndex node, const std::vector<wire::RankInfo>& infos);
    void register_member(NodeIndex node, const wire::CommMember& m);
    void member_gone(NodeIndex node, RankId rank, const CommId& id);
    void end_rank(NodeIndex node, RankId rank, const char* how);
    void erase_comm_if_gone(Comm& comm);
    void settle(Comm& comm);  // who has not come will not come

    void degrade(Comm& comm, Policy how, Reason reason, const std::string& why, std::uint32_t slot = kNone);
    void tell_verdict(const wire::CommVerdict& verdict, NodeIndex node);

private:
    void take_place(Comm& comm, NodeIndex node, const wire::CommMember& m);
    void revive(Comm& comm, std::uint32_t slot);
    void let_go(Comm& comm);           // of all circuits
    void hold_again(Comm& comm);       // those that are known now
    void ask_again(const Comm& comm);  // those that run, and wait for it
    void evaluate(Comm& comm);
    void set_verdict(Comm& comm, Judgement judged, std::string why = {});
    wire::CommVerdict verdict_of(Comm& comm) const;
    std::string words_of(const Comm& comm, const Judgement& judged) const;
    std::string words_of_claim(const Comm& comm, std::uint32_t slot) const;
    void comm_lost_member(Comm& comm);

    Launches& launches_;
    Gangs& gangs_;
    Schedule& schedule_;
    Jobs& jobs_;
    Runs& runs_;
    Cuts& cuts_;
    Suspension& suspension_;
    Holds& holds_;
    Adoption& adoption_;
    Creation& creation_;
    Joined& joined_;
};

}  // namespace opus::controller
