// Jobs: which ranks are of one, and what is learned of what their launches have done.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "controller/core/provision/job.h"
#include "controller/core/room.h"

namespace opus::controller {

class Launches;
class Runs;
class Turns;

class Jobs : Room {
public:
    Jobs(World& world, Rooms& rooms);

    void join(NodeIndex node, Rank& rank);
    void leave(NodeIndex node, const Rank& rank);
    std::vector<JobStatus> status() const;  // by name
    std::vector<PortPlan> plan(const std::string& job, std::size_t most_turns) const;

    // A launch is asked for, and over. `seen`: without its times, and what its bytes take.
    void check_fit(const Launch& launch);
    void note_seen(NodeIndex node, const wire::LaunchDone& done, plan::Seen seen, std::uint64_t bytes);
    static std::vector<plan::SeenKey> keys_of(const Launch& launch);

    void look_soon(Job& job) { due_.insert(&job); }
    void look();  // is the plan of those that are due still a good one?
    void handle(const Thought& e);
    void port_changed(PortId p);  // it is fenced, or is not any more

private:
    class PlanFollower;
    struct ByName {
        bool operator()(const Job* a, const Job* b) const { return a->name < b->name; }
    };
    std::vector<plan::Pair> pairs_of(const plan::SeenKey& key);
    TimeNs unmoved_ns(const plan::Lap& lap) const;
    TimeNs bytes_ns(const Rank& rank, NodeIndex node, const std::vector<plan::SeenKey>& keys, std::uint64_t bytes) const;
    void end_runs(const Job& job, const std::string& why, bool endless);
    std::shared_ptr<const plan::Task> think(Job& job, plan::Task task);

    std::map<std::string, Job> jobs_;
    std::set<Job*, ByName> due_;
    std::uint64_t next_thought_ = 1;

    Launches& launches_;
    Turns& turns_;
    Runs& runs_;
};

}  // namespace opus::controller
