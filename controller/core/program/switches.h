// Switches: their sessions, and what their maps say.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "controller/core/room.h"

namespace opus::controller {

class Adoption;
class ChangeSets;
class Fences;
class Schedule;
class Suspension;

class Switches : Room {
public:
    Switches(World& world, Rooms& rooms);

    void handle(const SwitchEvent& e);
    void doubt_all();
    void read_map(SwitchIndex s);
    void read_maps_again();
    bool is_reading_due() const { return options_.map_period_ns > 0 && now_ >= read_again_ns_; }
    TimeNs switch_timeout(SwitchIndex sw) const;
    TimeNs command_time(SwitchIndex sw) const;

private:
    void answer(SwitchIndex s, const SessionUp& e);
    void answer(SwitchIndex s, const SessionDown& e);
    void answer(SwitchIndex s, const MapRead& e);
    void answer(SwitchIndex s, const Applied& e);
    void answer(SwitchIndex, const PortPower&) {}
    void notice(PortId p, PortId believed, PortId found, std::vector<std::string>& differences);
    std::set<PortId> changed_since_asked(const SwitchState& sw) const;
    void adopt_circuit(const Circuit& circuit);
    void show_differences(SwitchIndex s, std::vector<std::string> differences);
    void adopt_map(SwitchIndex s, const MapRead& e);

    TimeNs read_again_ns_ = 0;  // maps of switches at rest

    Schedule& schedule_;
    ChangeSets& change_sets_;
    Fences& fences_;
    Suspension& suspension_;
    Adoption& adoption_;
};

}  // namespace opus::controller
