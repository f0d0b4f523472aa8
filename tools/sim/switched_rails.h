// Gates of a dry run: a controller and a manager a node, the very cores of the daemons, with switches and a
// network that take a fixed time. Everything goes right here (test/sim is where things go wrong).
//
// Simplified: connections of first uses are made already, communicators are registered before time begins,
// and what stays on a node is not held.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "controller/core/core.h"
#include "manager/core/core.h"
#include "tools/replay/dry_run.h"
#include "tools/sim/job_map.h"
#include "tools/virtual_time/calendar.h"

namespace opus::sim {

struct RailsOptions {
    bool provision = true;
    bool runs = true;         // grants cover the rest of a phase
    bool guard = false;       // as long as the job is no slower for either; the daemon's own default is true
    bool early_release = true;  // inside runs
    TimeNs wire_ns = 60'000;  // a message
    TimeNs look_ns = 20'000;  // from a word in a ring to the manager's look, and from its go to the launch
    TimeNs late_ns = 0;       // a launch is seen to be reached up to so much later, drawn for each
    std::uint64_t seed = 1;   // of what is drawn
    std::uint32_t check_every = 1;  // so many events of the controller, its own check() is asked, which looks at all that it knows
    bool keep_turns = false;        // what moved, and when
    std::function<void(const std::string&)> log;
    // Called with each step of the controller (no lap), and with each search for an order of a lap, instead of either,
    // which it is to do: for those who measure what they take.
    std::function<void(const controller::plan::Lap* lap, const std::function<void()>& what)> around =
        [](const controller::plan::Lap*, const std::function<void()>& what) { what(); };
};

// Two ports that were joined: dark from the one time on, lit from the other. Whom they led to before is left unlit.
struct Turn {
    PortId a = kNone, b = kNone;
    std::int64_t from_ns = 0, lit_ns = 0;  // of the dry run
};

class SwitchedRails : public replay::Gates {
public:
    SwitchedRails(JobMap& map, const RailsOptions& options);

    bool recorded(Name name, const replay::DryRunLaunch& launch, std::int64_t now) override;
    void reached(Name name, std::int64_t now) override;
    void ended(Name name, std::int64_t now) override;
    double share(Name name) override;
    std::int64_t next_ns() const override;
    void advance(std::int64_t now, std::vector<Name>& open) override;

    const controller::Counters& counters() const { return controller_->counters(); }
    std::uint64_t frames_up() const { return frames_up_; }  // of managers, to the controller
    // Summed over nodes: how often a node's ranks went on to other communicators or peers. Ranks of a node do so
    // together, or count once each for all.
    double phases() const;
    std::uint64_t frames_down() const { return frames_down_; }
    std::uint64_t decided() const { return decisions_; }  // events of the controller
    std::vector<Turn>& turns() { return turns_; }         // in the order of their beginnings
    std::string fault() const { return fault_; }  // empty, or what the cores' own check found

private:
    struct Manager {
        std::unique_ptr<manager::Core> core;
        std::vector<manager::Event> seen;  // in rings, since its last look
        bool look_due = false;
        std::uint64_t tick = 0;
    };

    void later(TimeNs after, std::function<void()> what) { calendar_.add(now_ + after, std::move(what)); }
    void run_until(TimeNs at);
    void connect();
    void register_ranks(NodeIndex node);
    void see(NodeIndex node, manager::Event event, std::int64_t now);
    void see_late(Name name, manager::Event event);
    void look(NodeIndex node);
    void tell(NodeIndex node, std::vector<wire::Message> messages);
    void flush(NodeIndex node, manager::Actions& actions);
    void perform(NodeIndex node, manager::Actions& actions);
    void perform(NodeIndex node, const manager::SetGo& a);
    void perform(NodeIndex node, const manager::ReleaseEarly& a);
    manager::Retracted perform(NodeIndex node, const manager::Retract& a);
    void say(NodeIndex node, std::vector<wire::Message> messages);
    void hear(NodeIndex node, const std::vector<wire::Message>& messages);
    void log_words(NodeIndex node, const wire::Message& message);
    void decide(const controller::Event& event);
    void program(const controller::Program& p);
    PortId port_at(SwitchIndex sw, SwitchPort port) const { return port_at_[sw][port - 1]; }

    JobMap& map_;
    RailsOptions options_;
    TimeNs now_ = 0;
    std::uint64_t frames_up_ = 0, frames_down_ = 0, decisions_ = 0, controller_tick_ = 0, decided_ = 0;
    struct Phases {
        std::uint64_t now = 0, count = 0;              // what its last launch needed; changes of it
        std::map<std::uint64_t, std::uint64_t> needs;  // of launches that have not started
    };
    std::map<std::uint32_t, Phases> phases_;  // by rank
    virtual_time::Calendar<std::function<void()>> calendar_;
    std::unique_ptr<controller::Core> controller_;
    std::vector<Manager> managers_;
    std::vector<Name> open_;
    using Launch = std::pair<std::uint32_t, std::uint64_t>;           // rank, seq
    std::vector<std::vector<PortId>> port_at_;   // by switch and its port
    std::vector<PortId> leads_;                  // by port: where its light leads
    std::map<GpuPair, std::uint32_t> lit_;       // circuits
    LaunchPairs launch_pairs_;
    std::map<Launch, const LaunchPairs::Pairs*> pairs_;  // of launches that have not ended
    struct Share {
        std::uint64_t changes = 0;  // of circuits, when it was this
        double of_all = 1;
    };
    std::unordered_map<const LaunchPairs::Pairs*, Share> shares_;
    std::uint64_t changes_ = 1;                                       // of circuits
    std::set<Launch> ahead_;                                          // let go, and their gates not reached
    std::set<Launch> waiting_;                                        // at their gates, and not let go
    std::map<Launch, std::uint64_t> streams_;                         // of launches, while some are seen late
    std::map<std::pair<std::uint32_t, std::uint64_t>, TimeNs> seen_;  // by rank and stream: the last event
    std::vector<Turn> turns_;
    std::string fault_;
};

}  // namespace opus::sim
