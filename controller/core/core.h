// The controller's core: pure. Events and the time come in, actions go out; no clock, socket, thread,
// file or random number. The daemon, both simulations (tools/sim, test/sim) and the tests drive the very same object.
//
// Gathers demand into gangs, plans circuits, schedules them first come first served, grants, suspends,
// passes, and keeps the inventory of what each switch says. The rules are docs/protocol.md; names here
// are the names there.
//
// The shell answers Hello (Welcome, Refused), checks epoch, session and sequence, and hands every other
// message of a frame here in order, Heartbeat included: the core notes when a node was heard of last. The shell watches for
// silence, and says NodeLost.
// Actions are to be carried out in order: what a node is told comes before the switch is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "controller/plan/course.h"
#include "controller/plan/search.h"
#include "opus/fabric.h"
#include "opus/switch_driver.h"
#include "opus/wire.h"

namespace opus::controller {

inline constexpr TimeNs kDefaultHoldNs = 30'000'000'000;

// The least hold time with which a switch can serve: one command may fail as late as commands do, and another be
// carried out.
constexpr TimeNs needed_hold_ns(TimeNs dark_ns) { return 8 * dark_ns + 100'000'000; }

struct CoreOptions {
    std::uint64_t epoch = 1;
    TimeNs t_break_ns = 0;                        // 0: twice the dark time of the switches concerned, at least 20 ms
    TimeNs register_timeout_ns = 3'000'000'000;   // from NCCL's return on one member to the last one's registration
    TimeNs node_grace_ns = 30'000'000'000;        // a lost or never seen node keeps its ports busy so long
    TimeNs switch_timeout_ns = 0;                 // deadline of one change set; 0: 4 x dark time + 1 s
    TimeNs map_period_ns = 10'000'000'000;        // the map of a switch at rest is read again so often; 0: never
    bool first = true;  // no controller just before it: else what that one sent is waited out to its deadline
    std::uint32_t port_failures_to_fence = 3;
    TimeNs port_trial_ns = 1'000'000'000;  // a port that failed is tried after so long, then after twice that, ...
    bool provision = true;  // move circuits ahead of demand, by a plan of what jobs do again and again
    bool runs = true;       // grants cover what is to follow on the same light
    // How long light is at rest before a run on it has no end. None: by the job's laps (runs.cpp); 0: no time at all.
    std::optional<TimeNs> rest_ns = {};
    bool guard = true;      // of a job that is slower for its plan none is followed (controller/plan/guard.h)
    bool observe = false;   // there are no switches to command: every communicator passes
};

// --- events ---------------------------------------------------------------------------------------

struct NodeMessage {  // a decoded frame's message, after session checks by the shell
    NodeIndex node = kNone;
    std::uint64_t session = 0;
    wire::Message message;
};
struct NodeSession {
    NodeIndex node = kNone;
    std::uint64_t session = 0;
};  // Hello accepted: forget the old session
struct NodeLost {
    NodeIndex node = kNone;
    std::uint64_t session = 0;
};  // silence or end of session
struct SwitchEvent {
    SwitchIndex sw = kNone;
    DriverEvent event;
};
struct CtlConnect {
    std::uint64_t id = 0;
    PortId a = kNone, b = kNone;
    bool force = false;
};
struct CtlDisconnect {
    std::uint64_t id = 0;
    PortId port = kNone;
    bool force = false;
};
struct CtlFence {
    std::uint64_t id = 0;
    PortId port = kNone;
    std::string why;
};
struct CtlUnfence {
    std::uint64_t id = 0;
    PortId port = kNone;
};
struct Thought {
    std::uint64_t id = 0;
    plan::Order order;
};  // what came of a Think
struct Tick {};  // at or after the time of the last WakeAt

using Event = std::variant<NodeSession, NodeMessage, NodeLost, SwitchEvent, CtlConnect, CtlDisconnect, CtlFence,
                           CtlUnfence, Thought, Tick>;

// --- actions --------------------------------------------------------------------------------------

struct SendTo {
    NodeIndex node = kNone;
    std::uint64_t session = 0;
    wire::Message message;
};
struct Program {
    SwitchIndex sw = kNone;
    OpId op = 0;
    ChangeSet changes;
    TimeNs timeout_ns = 0;
};
struct ReadMap {
    SwitchIndex sw = kNone;
    OpId op = 0;
    TimeNs timeout_ns = 0;
};
struct CtlDone {
    std::uint64_t id = 0;
    bool ok = false;
    std::string text;
};
struct WakeAt {
    TimeNs at_ns = 0;
};  // replaces the last one
struct Think {  // plan::find_order, beside everything else; it takes milliseconds to seconds. Answered by a Thought,
                // unless nobody but this keeps the task any more
    std::uint64_t id = 0;
    std::shared_ptr<const plan::Task> task;
};
enum class LogLevel : std::uint8_t { debug, info, warn, error };
struct Log {
    LogLevel level = LogLevel::info;
    std::string text;
};

// What happened, for traces, recordings and metrics; names resolve against the fabric.
struct Trace {
    enum class Kind : std::uint8_t {
        gang_complete,
        gang_granted,
        gang_done,
        launch_done,
        circuit_up,
        circuit_down,
        program_begin,
        program_end,
        suspend,
        resume,
        pass,
        port_fenced,
        port_unfenced,
        circuit_lost,  // by another hand, or a fault: nobody here moved it
    };
    Kind kind{};
    TimeNs at_ns = 0;
    std::uint64_t id = 0;  // gang ticket, op, or 0
    LaunchId launch = {};
    Circuit circuit = {};
    CommId comm = {};
    OpKind op = OpKind::none;
    std::uint64_t bytes = 0;
    TimeNs ready_ns = 0, go_ns = 0,
           done_ns = 0;                // launches: CLOCK_REALTIME; gang_granted: ready_ns is since when it was complete
    bool held = true;                  // launch_done: false where nothing held it (observed, passed)
    TimeNs queue_ns = 0, dark_ns = 0;  // gang_granted: what it waited for, ports and light
};

using Action = std::variant<SendTo, Program, ReadMap, CtlDone, WakeAt, Think, Log, Trace>;
using Actions = std::vector<Action>;

// --- what people may ask --------------------------------------------------------------------------

struct Counters {
    std::uint64_t demands = 0, grants = 0, gangs = 0, gangs_without_move = 0, reconfigurations = 0, circuits_moved = 0,
                  suspensions = 0, passes = 0, aborts = 0, switch_errors = 0, launches_done = 0, launches_seen = 0,
                  unroutable = 0,
                  crowded = 0,  // gangs that ports can serve only launch by launch: opened, and lit in turn
        differences = 0,        // ports found leading elsewhere than was believed
        speculations = 0, speculations_used = 0, speculations_wrong = 0, runs = 0,
                  run_launches = 0,  // started without being asked for
        revocations = 0, overtakes = 0;  // gangs that waited for their turn in a plan in vain
    // Sum over granted gangs from completion to grant, without the time switches took (control-plane
    // time), and that time itself.
    TimeNs control_ns = 0, dark_wait_ns = 0, queue_wait_ns = 0;
    // Dark time that granted gangs would have waited for, had nothing moved ahead of demand; and that they did wait for.
    TimeNs dark_hidden_ns = 0, dark_exposed_ns = 0;
};

enum class PortUse : std::uint8_t { dark, idle, busy, moving, reserved, unknown, fenced, absent };
struct FenceStatus {  // of a port that is not used for new circuits
    bool by_hand = false;
    TimeNs since_ns = 0;
    std::string why;
    TimeNs tried_ns = 0;  // it is tried then; 0: never by itself
};
struct PortStatus {
    PortId port = kNone;
    PortUse use{};
    PortId peer = kNone;
    std::vector<LaunchId> holders;  // the first of them
    std::size_t holder_count = 0;
    TimeNs since_ns = 0;
    std::string note;
    std::optional<FenceStatus> fence;
};
struct RankStatus {
    NodeIndex node = kNone;
    wire::RankInfo info;
    std::uint32_t launches_in_flight = 0, launches_ready = 0;
};
struct GroupStatus {
    CommId comm;
    std::uint32_t size = 0, registered = 0;
    Verdict verdict{};
    std::string why;  // it is not held
    std::vector<std::pair<GpuId, LaunchId>> members;
    std::string job;
};
struct SwitchStatus {
    SwitchIndex sw = kNone;
    bool session = false;
    bool map_known = false;
    std::string identity;
    std::string last_error;
    std::uint32_t circuits = 0;
    std::vector<std::string> differences;
    TimeNs differed_ns = 0;
    std::string note;
};
struct NodeStatus {
    NodeIndex node = kNone;
    bool session = false;
    bool reported = false;
    TimeNs last_seen_ns = 0;
    std::uint32_t ranks = 0;
    bool given_up = false;  // silent for longer than the grace time: what it ran holds nothing
};

// Whether a job is provisioned, and why not.
struct JobStatus {
    std::string job;
    std::uint32_t ranks = 0;
    bool guarded = false;  // it goes on on demand where it is slower for its plan
    bool planned = false, runs = false;  // now
    std::string state;                     // one line
    std::uint32_t fallbacks = 0;           // to on demand, since plans made it slower
    TimeNs lap_ns = 0;                     // on demand; 0: not known
    double ratio = 0;  // of what planned launches took lately to what they take on demand; 0: not known
    std::size_t lap_phases = 0;            // uses of circuits in the lap that it is in; 0: none is known
    std::uint64_t plans = 0;               // made of that lap so far
    std::size_t planned_ports = 0;         // of the plan that is followed
};

// The plan of a job, port by port: what comes in each lap, one after the other.
struct PortPlan {
    PortId port = kNone;
    std::vector<plan::Course::Planned> turns;
    std::size_t next = 0;  // of them
};

// Why a launch waits: one line each, in the order in which they must end.
struct Why {
    LaunchId launch;
    CommId comm;
    OpKind op = OpKind::none;
    std::uint64_t bytes = 0;
    TimeNs since_ns = 0;
    enum class State : std::uint8_t {
        missing_member,
        queued,
        programming,
        granted,
        suspended,
        passed
    } state{};
    std::vector<std::string> reasons;  // "missing n2.g1 (rank 5 of 8): not ready", "port n0.g1.p0 held by ...", ...
};

// A part of the answer: where there are many, all at once would be long in the making, and longer than a message may be.
struct WhyQuestion {
    std::function<bool(NodeIndex, RankId)> of;  // only of these ranks
    std::size_t from = 0;                       // without the first so many
    std::size_t most = std::numeric_limits<std::size_t>::max();
};
struct WhyPage {
    std::vector<Why> waiting;
    std::size_t all = 0;  // so many wait, told here or not
};

class Core {
public:
    Core(const Fabric& fabric, CoreOptions options);  // keeps a reference to fabric
    ~Core();
    Core(const Core&) = delete;
    Core& operator=(const Core&) = delete;

    // Appends to `out`. `now` never goes back.
    void on(const Event& event, TimeNs now, Actions& out);

    const Counters& counters() const;
    // In their order, beginning with port `from`.
    std::vector<PortStatus> ports(PortId from = 0, std::size_t most = std::numeric_limits<std::size_t>::max()) const;
    std::vector<RankStatus> ranks() const;
    std::vector<GroupStatus> groups() const;
    std::vector<SwitchStatus> switches() const;
    std::vector<NodeStatus> nodes() const;
    std::vector<JobStatus> jobs() const;  // by name
    // By ports, of so many turns at most and a port's more; empty: no plan is followed.
    std::vector<PortPlan> plan(const std::string& job, std::size_t most_turns = std::numeric_limits<std::size_t>::max()) const;
    std::vector<Why> why(TimeNs now) const;  // every launch that is ready and not granted, or suspended
    WhyPage why(TimeNs now, const WhyQuestion& question) const;
    std::string check() const;  // empty, or the first internal invariant that does not hold

private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace opus::controller
