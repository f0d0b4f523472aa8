// What the controller believes of ports, circuits and switches. It believes only what a switch has said:
// a port is unknown from the moment something went wrong until the switch's map has been read.
#pragma once

#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "controller/core/gangs/gang.h"
#include "controller/core/gangs/launch.h"
#include "opus/fabric.h"
#include "opus/switch_driver.h"

namespace opus::controller {

inline constexpr PortId kForeign = 0xfffffffeu;     // joined to a switch port that is no NIC's
inline constexpr PortId kUnreported = 0xfffffffdu;  // its node has not been told where it leads

// A pair of GPUs. Launches hold pairs, not circuits: senders stripe over every port that leads to the
// peer, so while a key needs a pair, every circuit of the pair stays.
struct GpuPair {
    GpuId a = kNone, b = kNone;
    std::vector<Circuit> up;
    std::vector<Circuit> coming;      // in change sets under way
    std::uint32_t claims = 0;         // gangs being programmed that need it
    std::vector<KeyState*> holders;   // keys with a launch in flight
    std::vector<std::uint64_t> runs;  // grants whose run may use it at any time
    double most_bytes = 0;            // that a gang has moved over it
    std::uint64_t uses = 0;           // keys that it has been used for

    bool held() const { return !holders.empty() || !runs.empty(); }
    bool busy() const { return claims > 0 || held(); }
};

struct Reservation {
    const Gang* gang = nullptr;
    PairId pair = kNone;
};

enum class FencedBy : std::uint8_t { nobody, controller, hand };

struct PortState {
    PortId peer = kNone;    // where its circuit leads, or kForeign
    PairId pair = kNone;    // the circuit's pair
    OpId op = 0;            // moving under this change set
    OpId leaves = 0;        // this one takes its circuit away, and names its other end only
    bool unknown = true;    // in doubt until read back
    bool absent = true;     // its node has not reported in this epoch: busy if it has a circuit
    bool no_light = false;  // joined by the map, but no light was seen
    PortId seen = kNone;    // the last peer to which this controller has seen light
    // Distrust (fences.cpp): change sets that were to join it alone to another and failed, one after the other.
    std::uint32_t failures = 0;
    TimeNs failing_ns = 0;  // the first of them began
    TimeNs trial_ns = 0;    // it is not tried unasked before
    std::uint32_t trials = 0;
    FencedBy fenced_by = FencedBy::nobody;
    TimeNs fenced_ns = 0;
    std::string fenced_why;
    bool on_trial = false;          // fenced by the controller, and whoever needs it may try it
    TimeNs doubt_until_ns = 0;      // its switch may still be carrying out a command whose session was lost
    std::uint64_t changed = 0;      // step of the last change: an older read-back says nothing about it
    PortId reported = kUnreported;  // where its node was last told that it leads; kNone: dark
    TimeNs since_ns = 0;
    TimeNs stay_ns = 0;  // the longest for which light has been up there before somebody else wanted the port
    std::string note;
    bool dark_by_fault =
        false;  // a fence or a failure has taken its light: it may have it back, also where one circuit would do
    std::uint32_t kept_for = 0;  // uses to come, by a plan: it has their light, or is getting it
    std::vector<Reservation> reservations;

    bool fenced() const { return fenced_by != FencedBy::nobody && !on_trial; }
};

struct Suspect {  // what a failed change set should have joined
    Circuit circuit;
    bool counts = false;    // the failure may be the port's: not a lost session's, nor that of one circuit among others
    bool no_light = false;  // the map may read right and the light still be missing
    TimeNs begun_ns = 0;
    PortId tried = kNone;  // it alone was in question
};

struct SwitchState {
    bool session = false;
    bool map_known = false;  // since the session came up
    OpId reading = 0;
    std::uint64_t read_step = 0;
    TimeNs read_ns = 0;  // when it was asked
    std::uint32_t read_failures = 0;
    std::string identity, last_error;
    std::vector<std::string> differences;  // found last, and when
    TimeNs differed_ns = 0;
    std::vector<PortId> cable;  // by switch port; kNone: no NIC
    std::vector<Suspect> suspects;
    // Change sets that failed, and none has been carried out since (fences.cpp).
    std::uint32_t failed = 0;
    TimeNs failing_ns = 0;       // the first of them began
    std::vector<PortId> common;  // ports that all of them turn, sorted
    bool at_fault = false;       // there is no such port
    std::uint32_t rests = 0;
    TimeNs rest_until_ns = 0;    // it is told nothing until then
    TimeNs carried_out_ns = -1;  // the last one that it carried out began
};

struct OpGang {
    std::uint64_t gang = 0;
    std::uint32_t attempt = 0;
};

struct Op {  // a change set under way
    OpId id = 0;
    SwitchIndex sw = kNone;
    std::vector<std::pair<PairId, Circuit>> connect;
    std::vector<PortId> disconnect;  // one end each
    std::vector<PortId> dark;        // every port that loses its circuit and gets none
    std::vector<OpGang> gangs;
    bool planned = false;   // a turn of a plan
    PortId tries = kNone;   // made to see whether this port works
    std::uint64_t ctl = 0;  // request to answer, if has_ctl
    bool has_ctl = false;
    TimeNs begun_ns = 0;

    std::vector<PortId> turned() const;  // those that get a circuit, sorted
};

// Why a gang may not use a port now, the first that applies.
enum class Obstacle : std::uint8_t { none, fenced, unknown, moving, absent, claimed, busy, reserved };

class Inventory {
public:
    explicit Inventory(const Fabric& fabric);

    const Fabric& fabric() const { return *fabric_; }
    PortState& port(PortId p) { return ports_[p]; }
    const PortState& port(PortId p) const { return ports_[p]; }
    GpuPair& pair(PairId e) { return pairs_[e]; }
    const GpuPair& pair(PairId e) const { return pairs_[e]; }
    std::size_t pair_count() const { return pairs_.size(); }
    SwitchState& sw(SwitchIndex s) { return switches_[s]; }
    const SwitchState& sw(SwitchIndex s) const { return switches_[s]; }
    std::map<OpId, Op>& ops() { return ops_; }
    const std::map<OpId, Op>& ops() const { return ops_; }

    PairId pair_between(GpuId x, GpuId y);

    bool known(PortId p) const;  // the switch has said what it does, and it stands still
    bool usable(const Circuit& c) const {
        return known(c.a) && known(c.b) && !ports_[c.a].no_light && !ports_[c.b].no_light;
    }
    const Circuit* lit(PairId e) const;  // a circuit of the pair that light passes, or null

    std::uint32_t fewest_circuits(const std::vector<PairId>& pairs) const;  // that a pair of them has; 0: of none

    void light(const Circuit& circuit, std::uint64_t step, TimeNs now);
    void darken(PortId p, std::uint64_t step, TimeNs now);  // both ends
    void end_stay(PortId p, TimeNs now);                    // somebody else wants its light
    void see(const Circuit& circuit);                       // light passes: a switch has said so, or a launch uses it

    // For turning the port to another peer.
    Obstacle obstacle(PortId p, const Gang& gang) const;
    // For using its circuit as it is, if it is of `pair`; else as above.
    Obstacle obstacle(const WantedPort& wanted, const Gang& gang) const;
    bool reserved_by(const Gang& gang, PortId p) const;
    bool reserved_by(const Gang& gang, PortId p, PairId pair) const;  // for this pair
    bool reserved_earlier(PortId p, const Gang& gang, PairId but_for) const;
    bool reserved_by_other(PortId p, const Gang& gang, PairId but_for) const;

    std::uint64_t fence_generation = 0;

private:
    const Fabric* fabric_;
    std::vector<PortState> ports_;
    std::vector<GpuPair> pairs_;
    std::unordered_map<std::uint64_t, PairId> pair_of_;
    std::vector<SwitchState> switches_;
    std::map<OpId, Op> ops_;
};

const char* name_of(Obstacle obstacle);

}  // namespace opus::controller
