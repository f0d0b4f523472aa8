// The emulated switch itself: ports, circuits, and where light passes at a given moment. Pure: commands
// and the time come in, nothing goes out; no socket, no clock. The rules are those that real switches
// hold (docs/drivers.md, "What the emulator enforces").
//
// The map changes when the command is taken; the light follows a dark time later. Paths that a command
// does not change stay lit. Light passes both ways.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "opus/fabric.h"
#include "opus/switch_driver.h"

namespace opus::emulator {

inline constexpr TimeNs kNever = std::numeric_limits<TimeNs>::max();

// What a port's light does: nothing is connected or it is held dark; the mirrors are under way; nearly
// there, some light; there.
enum class Light : std::uint8_t { blocked, dark, tuning, tuned };

enum class Conflict : std::uint8_t { preempt, refuse };  // `connect` onto a port that has a circuit

// Of a command: code 0 when done, else an SCPI-99 error and its text.
struct Outcome {
    int code = 0;
    std::string text;
};

struct OpticalPlaneOptions {
    std::uint32_t ingress = 0;
    std::uint32_t egress = 0;  // 0: any port to any other
    TimeNs dark_ns = 0;
    Conflict conflict = Conflict::preempt;
    bool partial = false;  // a bad pair of a batch: apply those before it, as some devices do
};

class OpticalPlane {
public:
    explicit OpticalPlane(const OpticalPlaneOptions& options);

    std::uint32_t size() const { return options_.ingress + options_.egress; }
    const OpticalPlaneOptions& options() const { return options_; }
    void set_partial(bool on) { options_.partial = on; }

    // A batch is validated whole, then applied. `only`: circuits not in the batch go dark.
    Outcome connect(std::span<const CrossConnect> batch, bool only, TimeNs now);
    // Names one end of each circuit; ports without a circuit are no error.
    Outcome disconnect(std::span<const SwitchPort> ports, TimeNs now);
    // Names both ends; a circuit that is not there is an error.
    Outcome disconnect_pairs(std::span<const CrossConnect> batch, TimeNs now);
    void disconnect_all(TimeNs now);
    Outcome set_enabled(std::span<const SwitchPort> ports, bool on, TimeNs now);

    // Faults: no light ever passes a stuck port, whatever the map says.
    Outcome set_stuck(std::span<const SwitchPort> ports, TimeNs now);
    void relight(TimeNs now);  // every circuit goes through its dark time again (a reboot that restores)

    Outcome check_ports(std::span<const SwitchPort> ports) const;
    bool enabled(SwitchPort port) const { return ports_[port].enabled; }
    SwitchPort peer(SwitchPort port) const { return ports_[port].peer; }  // by the map; 0: none
    std::vector<CrossConnect> circuits() const;                           // as connected: (first, second)

    // Where light that enters `port` comes out now; 0 in the dark. The data plane asks for each frame.
    SwitchPort lit_peer(SwitchPort port, TimeNs now) const {
        const Port& p = ports_[port];
        return now >= p.lit_ns ? p.peer : 0;
    }
    Light light(SwitchPort port, TimeNs now) const;
    double power_dbm(SwitchPort port, TimeNs now) const;

    std::uint64_t reconfigurations() const { return reconfigurations_; }  // commands that changed the map

private:
    struct Port {
        SwitchPort peer = 0;
        bool first = false;  // named first when connected
        bool enabled = true;
        bool stuck = false;
        TimeNs lit_ns = kNever;  // from then on light passes
    };

    Outcome check_pair(const CrossConnect& pair) const;
    bool joined(const CrossConnect& pair) const { return ports_[pair.first].peer == pair.second; }
    void make(const CrossConnect& pair, TimeNs now);
    bool cut(SwitchPort port);
    void aim(SwitchPort port, TimeNs now);  // the light of this port's circuit starts over

    OpticalPlaneOptions options_;
    std::vector<Port> ports_;  // from 1
    std::uint64_t reconfigurations_ = 0;
};

}  // namespace opus::emulator
