// Holds what happens to docs/design.md, section 4, by its own books of what is true: who runs, on which
// circuits, by whose word.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "controller/core/core.h"
#include "opus/wire.h"
#include "test/sim/launch_run.h"
#include "test/sim/scenario.h"
#include "test/sim/turns.h"

namespace opus::sim {

class World;

class Inspector {
public:
    Inspector(World& world, const Scenario& scenario);

    // The controller.
    void controller_heard(NodeIndex node, const wire::Message& message);
    void controller_did(const controller::Actions& actions);
    void controller_died();
    // The manager.
    void manager_heard(NodeIndex node, const wire::Message& message);
    void went(LaunchIndex launch, bool abort);
    void manager_says(NodeIndex node, const wire::Message& message);
    void manager_died(NodeIndex node);
    void manager_came(NodeIndex node);  // and has retracted what was released early
    // Ranks.
    void issued(LaunchIndex launch);
    void started(LaunchIndex launch);
    void finished(LaunchIndex launch);
    void gone(std::uint32_t rank);
    // The optical plane. When the controller tells the switch, and before the light goes.
    void decided_to_cut(PairIndex pair, bool in_order = false);
    void cut(PairIndex pair, std::uint64_t life, TimeNs decided_ns);

    // From here on nobody can say whose turn it is; or messages are late.
    void disturbed();
    void delayed() { turns_.delayed(); }
    // Nothing moves: do controller and switches agree, and does nothing hang on to ports?
    void at_rest(bool all_ended);
    // Ranks that wait at a gate for a member that is dead.
    void after_death(std::uint32_t job);

    std::string name(LaunchIndex launch) const;

private:
    struct Soft {  // of a grant: what a node may start unasked
        std::vector<wire::KeyRange> ranges;
        std::uint64_t life = 0;  // of the controller that granted it
        TimeNs at_ns = 0;
        bool heard = false;             // by the manager
        std::vector<PairIndex> robbed;  // by another hand, when the controller took it back
        std::vector<LaunchIndex> let_go;  // under it, on that node
    };
    struct Asked {  // back, and not answered yet
        std::vector<std::uint64_t> grants;
        std::vector<wire::KeyRange> ranges;
    };
    void returned(NodeIndex node, std::uint64_t revocation);
    bool starts_under_run(LaunchIndex launch);
    void whole(LaunchIndex launch);
    void judged(const wire::Verdicts& verdicts);
    bool reachable(NodeIndex node) const;
    void hold(LaunchIndex launch);
    void release(LaunchIndex launch);
    void resumed(LaunchIndex launch);
    bool is_excused(const LaunchRun& launch) const {
        return launch.passed || launch.suspended || launch.told_pass || launch.given_up;
    }
    void listed(NodeIndex node, const wire::Snapshot& snapshot);
    void check_listed();
    void check_back();
    void note_given_up();
    void note_robbed(NodeIndex node, const wire::Revoke& revoke);
    bool is_through(LaunchIndex launch, PairIndex pair) const;
    bool leads_to_given_up(PairIndex pair) const;
    void note_half_done(LaunchIndex launch);
    void note_waited();
    void check_half_done(PairIndex pair);
    bool is_member(const Part& part, std::uint32_t rank) const;
    LaunchIndex launch_of(NodeIndex node, RankId rank, std::uint64_t seq) const;
    std::string describe(const std::vector<wire::KeyRange>& ranges) const;
    template <class F>
    void for_each_pair(LaunchIndex launch, F&& f) const;  // of keys that are enforced

    World& world_;
    const Scenario& s_;
    Turns turns_;
    std::vector<std::vector<LaunchIndex>> held_for_;  // by pair: launches granted and not done
    std::vector<std::vector<LaunchIndex>> issued_;    // by flow: launches with this key
    std::vector<std::uint32_t> unrecorded_;           // by flow: its launches that have begun unrecorded
    std::vector<LaunchIndex> grant_;
    std::vector<LaunchIndex> back_;  // listed in this step by a node that had been given up
    std::uint64_t heard_ = 0;
    NodeIndex listed_node_ = kNone;  // its snapshot is with the controller in this step
    std::map<RankId, std::uint32_t> listed_;
    std::vector<std::map<std::uint64_t, Soft>> soft_;                             // by node, by grant
    std::vector<std::map<std::uint64_t, Soft>> left_;                             // by node: its dead manager's
    std::vector<std::map<std::uint64_t, std::vector<std::uint64_t>>> returning_;  // by node, by revocation: heard, not answered
    std::vector<std::map<std::uint64_t, Asked>> asked_;                           // by node, by revocation
    std::map<LaunchIndex, std::vector<PairIndex>> robbed_;  // started under runs that were being taken back
    std::vector<FlowIndex> half_done_;                      // transfers that one end has finished alone
    std::vector<bool> dropped_;   // by flow: a launch of it was suspended, or somebody has waited for it
    std::vector<bool> given_up_;  // by node
    std::vector<bool> reported_;  // by node
    std::vector<bool> open_;      // by communicator: no longer held, by the controller's word
};

}  // namespace opus::sim
