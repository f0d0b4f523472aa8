// Why does it wait? The missing member, the port, who holds it, and since when.
#pragma once

#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "controller/core/holders.h"
#include "controller/core/room.h"

namespace opus::controller {

class Gangs;

// What has been said while one question is answered. It is the same for all launches of a key or of a gang.
struct PortReasons {
    std::vector<std::string> state, ports;
};
struct Explained {
    explicit Explained(World& world) : holders(world) {}
    HolderTable holders;
    std::map<std::pair<const KeyState*, bool>, std::vector<std::string>> missing;  // who, to a launch that is open, or not
    std::unordered_map<const Gang*, PortReasons> ports;
};

class Explain : Room {
public:
    Explain(World& world, Rooms& rooms);

    WhyPage why(TimeNs at, const WhyQuestion& question);
    void explain_missing(const Launch& launch, std::vector<std::string>& reasons, Explained& said) const;
    void explain_ports(const Gang& gang, std::vector<std::string>& reasons, Explained& said) const;

    void watch_waiting();  // at the end of a step: somebody looks after gangs that wait
    void tell_waiting();

private:
    Why explain(Launch& launch, Explained& said);
    std::vector<std::string> explain_missing(const KeyState& key, bool open) const;
    bool explain_state(const Gang& gang, std::vector<std::string>& reasons) const;
    const PortReasons& explain_ports(const Gang& gang, Explained& said) const;

    bool armed_ = false;

    Gangs& gangs_;
};

}  // namespace opus::controller
