// The switches: cross-connects, dark time, and what goes wrong with them. Stands where drivers and switches
// stand, so it speaks opus/switch_driver.h's events.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "controller/core/core.h"
#include "test/sim/random.h"
#include "test/sim/scenario.h"

namespace opus::sim {

class World;

class OpticalPlane {
public:
    OpticalPlane(World& world, const Scenario& scenario);

    // The controller's drivers.
    void start_drivers();
    void end_drivers();
    void program(const controller::Program& p);
    void read_map(const controller::ReadMap& r);

    // Calendar.
    void driver_up(SwitchIndex sw, std::uint64_t generation);
    void execute(std::uint32_t command);
    void settle(std::uint32_t command);
    void deliver(SwitchIndex sw, std::uint64_t answer);

    void begin(const Fault& fault);
    void end(const Fault& fault);
    void cut_for_test(PairIndex pair);
    // The controller tells that it takes this circuit away: until now it has counted on it.
    void counted_on(const Circuit& circuit);

    bool lit(PairIndex pair) const { return lit_[pair] > 0; }
    // ... and the controller has not told the switch to take it away.
    bool stays_lit(PairIndex pair) const;
    // Somebody else than the controller has taken light of it, and the controller has not read the map since.
    bool darkened_by_others(PairIndex pair) const;
    // ... and has not made the light again since.
    bool robbed(PairIndex pair) const;
    // What the switch says of a port now: the NIC port it leads to, kNone, or another client's.
    PortId says(PortId port) const;
    bool at_work() const;  // a change set has not been answered
    bool carried_out_since(SwitchIndex sw, TimeNs at) const { return switches_[sw].carried_out_ns >= at; }

private:
    struct Mirror {
        SwitchPort peer = 0;  // 0: none
        bool light = false;
        std::uint64_t version = 0;
        std::uint64_t condemned = 0;  // command (number + 1) that is to cut it
        std::uint64_t decided = 0;  // the first such, carried out or not, until the controller counts on the circuit again
        SwitchPort taken = 0;       // where it led, lit, before another hand or a reboot
        TimeNs taken_ns = 0;
        SwitchPort robbed = 0;  // the same, until the controller has made light there
        bool strange = false;   // joined by another hand, and not known to the controller since
    };
    struct SwitchModel {
        std::vector<Mirror> ports;  // by switch port
        std::vector<PortId> cable;
        bool session = false;
        bool down = false;
        std::uint64_t generation = 0;
        TimeNs busy_until = 0;
        TimeNs carried_out_ns = -1;                                       // when it last did as it was told
        std::uint32_t slow = 0, refuse = 0, refuse_all = 0, partial = 0;  // faults at work
        std::multiset<SwitchPort> stuck;
        std::vector<std::uint32_t> pending;  // commands not answered
    };
    struct Command {
        SwitchIndex sw = 0;
        OpId op = 0;
        std::uint64_t generation = 0;
        bool read = false, answered = false, lost = false, slow = false;
        ChangeSet changes;
        TimeNs sent_ns = 0, deadline_ns = 0;
        TimeNs not_before_ns = 0;  // it has reached the switch, which takes its time
        std::uint64_t life = 0;    // of the controller that said it
        std::vector<std::pair<CrossConnect, std::uint64_t>> moving;
        DriverError error = DriverError::none;
    };
    struct Answer {
        DriverEvent event;
        std::uint64_t generation = 0;
        bool always = false;  // whatever became of the session; of this life of the controller
        std::uint64_t life = 0;
        TimeNs made_ns = 0;
    };

    void map_is_read(SwitchIndex sw, TimeNs made_ns);
    void cut(SwitchIndex sw, SwitchPort port, const Command* by);  // null: by others
    void condemn(std::uint32_t command, SwitchPort port);
    void pardon(std::uint32_t command);
    void light(SwitchIndex sw, const CrossConnect& c);
    void answer(SwitchIndex sw, DriverEvent event, TimeNs after, bool always = false);
    void answer_command(std::uint32_t id, DriverError error, TimeNs after);
    void drop_session(SwitchIndex sw, const char* why);
    TimeNs latest(const Command& c) const;
    void reconnect(SwitchIndex sw);
    PairIndex pair_of(SwitchIndex sw, SwitchPort a, SwitchPort b) const;
    std::uint32_t new_command(SwitchIndex sw, OpId op, TimeNs timeout_ns);
    bool applies(const ChangeSet& changes, SwitchModel& sw) const;

    World& world_;
    const Scenario& s_;
    Random random_;
    std::vector<SwitchModel> switches_;
    std::vector<Command> commands_;
    std::vector<Answer> answers_;
    std::vector<std::uint32_t> lit_;
    std::uint32_t moving_ = 0, answers_due_ = 0;
    bool drivers_ = false;
    std::uint64_t life_ = 0;
};

}  // namespace opus::sim
