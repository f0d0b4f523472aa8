// Ranks of this node that come and go, the communicators of which they are members, and whether these are held.
#pragma once

#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "manager/core/gpu_places.h"
#include "manager/core/room.h"

namespace opus::manager {

class EarlyReleases;
class Holds;
class Launches;
class Reports;
class Runs;
class Session;

class Members : Room {
public:
    Members(World& world, Rooms& rooms);

    void handle(const RankUp& e);
    void handle(const RankDown& e);
    void handle(const CommEntering& e);
    void handle(const CommUp& e);
    void handle(const CommCreated& e);
    void handle(const CommDown& e);
    void handle(const CommLost& e);
    void hear(const wire::Verdicts& m);

    void place_all(const std::vector<wire::GpuAssignment>& gpus);
    void release(Rank& rank, std::uint16_t index, bool tell);
    void degrade_here(const CommId& comm);
    std::uint32_t local_members(const Key& key) const;

    std::string check() const;  // an invariant, for Core::check()

private:
    // A communicator, as far as this node has members of it.
    struct Group {
        std::vector<std::pair<RankId, std::uint16_t>> members;  // rank, its communicator entry
        Verdict verdict = Verdict::unknown;
        Reason reason = Reason::none;  // why it is not held
        std::uint32_t reason_rank = kNone;
    };
    bool place(Rank& rank, std::uint32_t index);  // true: its process is on another GPU than was known
    bool creation_failed(Rank& rank, std::uint32_t index);
    void set_verdict(const CommId& comm, Verdict verdict, Reason reason = Reason::none, std::uint32_t reason_rank = kNone);
    void judge_intra(const CommId& comm);

    // joined.cpp: communicators with two ids
    CommId known_as(const CommId& comm) const;
    void join(const CommId& from, const CommId& to);
    void rename(Rank& rank, std::uint16_t index, const CommId& to);
    void enter_group(Rank& rank, std::uint16_t index, Verdict verdict, Reason reason, std::uint32_t reason_rank);
    void emit_verdict(const Rank& rank, std::uint16_t index, Verdict verdict, Reason reason, std::uint32_t reason_rank);
    void forget_joined(const CommId& comm);

    std::unordered_map<CommId, Group> groups_;
    std::unordered_map<CommId, CommId> joined_;  // ids that members of a communicator had before it was known which it is
    GpuPlaces gpus_;

    Launches& launches_;
    Runs& runs_;
    EarlyReleases& early_releases_;
    Reports& reports_;
    Session& session_;
    Holds& holds_;
};

}  // namespace opus::manager
