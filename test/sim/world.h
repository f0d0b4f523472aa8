// One schedule: all parts, one calendar, one verdict.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "test/sim/calendar.h"
#include "test/sim/controller_host.h"
#include "test/sim/inspector.h"
#include "test/sim/journal.h"
#include "test/sim/launch_run.h"
#include "test/sim/manager_host.h"
#include "test/sim/network.h"
#include "test/sim/optical_plane.h"
#include "test/sim/rank.h"
#include "test/sim/ring_memory.h"
#include "test/sim/scenario.h"
#include "test/sim/traffic.h"

namespace opus::sim {

inline constexpr std::int64_t kRealtime = 1'700'000'000'000'000'000;  // of every host, when virtual time begins

struct Outcome {
    std::string failure;  // empty: all held
    std::uint64_t events = 0;
    TimeNs virtual_ns = 0;
    std::uint64_t launches = 0, grants = 0, suspensions = 0, passes = 0, unroutable = 0, crowded = 0, moves = 0;
    std::uint64_t runs = 0, run_launches = 0, revocations = 0;
    std::uint64_t released_early = 0, retracted = 0, raced = 0,
                  ahead = 0;  // released early; retracted; started all the same
    std::uint64_t speculations = 0, used = 0, wrong = 0;
    std::uint64_t full_rings = 0, filled_rings = 0;  // hosts waited for room; there was none
};

struct WorldOptions {
    bool log = false;
    std::uint32_t check_every = 1;  // the cores' own check(): every so many steps
    bool runs = false;              // grants cover what ranks say of the rest of their phases
    bool wire = false;              // frames are encoded and decoded on their way
};

class World {
public:
    World(const Scenario& scenario, RingMemory& memory, const WorldOptions& options);
    Outcome run();

    const Scenario& scenario;
    WorldOptions options;
    TimeNs now = 0;
    Calendar calendar;
    Journal journal;
    RingMemory& memory;
    std::vector<LaunchRun> launches;
    OpticalPlane plane;
    Traffic traffic;
    Inspector inspector;
    Network network;
    ControllerHost controller;
    std::vector<std::unique_ptr<ManagerHost>> managers;
    std::vector<std::unique_ptr<Rank>> ranks;
    std::vector<std::uint32_t> arrivals;  // by creation: callers that are in it

    void after(TimeNs ns, Kind kind, std::uint32_t who, std::uint64_t what = 0) {
        calendar.add(now + ns, {kind, who, what});
    }
    void fail(std::string what);
    std::string describe(FlowIndex flow) const;  // its key, who is there, the circuits it needs
    bool failed() const { return !outcome_.failure.empty(); }
    bool due_for_check() { return ++steps_ % options.check_every == 0; }
    ManagerHost& manager_of(std::uint32_t rank) { return *managers[scenario.ranks[rank].node]; }

    void rank_ended(std::uint32_t rank);
    void rank_died(std::uint32_t rank, bool aborts_job);
    void count_controller();  // before its core goes
    std::uint32_t mutations_left = 1;
    Outcome& outcome() { return outcome_; }

private:
    struct JobState {
        bool started = false, over = false, aborted = false;
        std::uint32_t living = 0;
        TimeNs aborted_ns = 0;
    };
    void dispatch(const Entry& e);
    void start_job(std::uint32_t job);
    void begin_fault(std::uint32_t index);
    void end_fault(std::uint32_t index);
    void inspect();
    std::string why();

    Outcome outcome_;
    std::vector<JobState> jobs_;
    std::vector<std::uint32_t> manager_deaths_;
    std::uint32_t controller_deaths_ = 0;
    std::uint32_t jobs_left_ = 0;
    TimeNs ended_ns_ = -1;
    TimeNs deadline_ns_ = 0, healed_ns_ = 0;
    std::uint64_t steps_ = 0;
    std::vector<std::string> last_log_;
};

}  // namespace opus::sim
