// I4, by books of its own: among complete gangs that want the same port, first come, first served.
//
// It sees no tickets, only what comes in and goes out. A launch was complete when a key of it was full; its gang's
// ticket is no younger than that. A gang's ticket is no older than the first of all that was ever tied to it by a full
// key while it waited. So what is complaint here is one; not every unfairness is seen.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "test/sim/launch_run.h"
#include "test/sim/scenario.h"

namespace opus::sim {

class World;

class Turns {
public:
    Turns(World& world, const Scenario& scenario);

    void issued(LaunchIndex launch);
    void heard(LaunchIndex launch);      // its demand, by a controller that had not
    void ran(LaunchIndex launch);        // the same, of one that ended under a run
    void suspended(LaunchIndex launch);  // queues again
    void resumed(LaunchIndex launch);
    void passed(LaunchIndex launch);  // needs no turn any more, but what it is tied to keeps its ticket
    void finished(LaunchIndex launch);
    void gone(std::uint32_t rank);  // wants nothing any more: it was told to fail, and has ended
    // Granted in one step. Empty, or who went before whose turn.
    std::string granted(const std::vector<LaunchIndex>& launches);
    // One starts unasked, under a run granted at that time: empty, or who has waited for its ports too long.
    std::string starts(LaunchIndex launch, TimeNs granted_ns);
    // GPUs that somebody wants whose gang has waited for so long.
    std::vector<GpuId> waited_for(TimeNs at_least) const;
    TimeNs break_time() const;
    // Nothing is known of order any more: faults have their own ways (a gang whose switch failed reserves nothing, one
    // whose node is gone is not looked at).
    void distrust() { trusted_ = false; }
    bool trusted() const { return trusted_; }
    void delayed() { delayed_ = true; }  // messages take longer than they should, or never arrive

private:
    enum class Place : std::uint8_t { unknown, waiting, passed, in_flight, done };
    struct Entry {
        Place place = Place::unknown;
        bool mixed = false;        // complete without its peers
        std::uint64_t own = 0;     // when it was complete: its ticket is this or an older one
        std::uint64_t oldest = 0;  // of what it was ever tied to: its ticket is this or a younger one
        TimeNs complete_ns = 0;
    };
    Entry& entry(LaunchIndex launch);
    bool waits(const Entry& e) const { return e.place == Place::waiting || e.place == Place::passed; }
    bool full(FlowIndex flow) const;
    void enter(LaunchIndex launch);
    void tie(LaunchIndex launch);
    std::string judge(const std::vector<LaunchIndex>& gang, const std::vector<LaunchIndex>& granted);
    bool joins(const std::vector<LaunchIndex>& gang) const;
    bool share_key(LaunchIndex x, LaunchIndex y) const;
    TimeNs complete_since(LaunchIndex launch);
    std::vector<PairIndex> pairs_of(LaunchIndex launch) const;
    std::string overtaken(LaunchIndex waiting, const std::vector<PairIndex>& taken, TimeNs waited, TimeNs patience);
    TimeNs dark_time() const;
    TimeNs quantum() const;
    TimeNs turn_time() const;
    bool has_begun(LaunchIndex launch) const;

    World& world_;
    const Scenario& s_;
    std::vector<Entry> entries_;
    std::vector<std::vector<LaunchIndex>> members_;  // by flow: heard, done or not
    std::vector<std::vector<LaunchIndex>> issued_;   // by flow
    std::vector<LaunchIndex> waiting_, resumed_;
    bool trusted_ = true, delayed_ = false;
    std::uint64_t stamp_ = 0;
    std::vector<TimeNs> stamped_ns_{0};  // when each stamp was given
};

}  // namespace opus::sim
