// The manager's core: pure. What the ranks of this node did and what the controller said comes in with
// the time; messages and words to store go out. No clock, socket, thread, file or random number.
//
// Keeps each rank's launches in order, decides which are ready, coalesces demand, starts what lies
// under a token, answers revocations, watches the hold time. The rules are docs/protocol.md.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "opus/launch_ring.h"
#include "opus/types.h"
#include "opus/wire.h"

namespace opus::manager {

struct CoreOptions {
    std::uint32_t default_hold_ms = 30'000;
    TimeNs controller_silence_ns = 3'000'000'000;  // no frame for so long: no controller; where it does not say
    TimeNs heartbeat_ns = 1'000'000'000;
    std::string where = {};  // wire::Hello
    std::uint64_t seat = 0;
    std::vector<PciAddress> host_gpus = {};  // of this host, sorted; empty: not known
};

// --- events: from rings (copied and validated by the shell) ---------------------------------------

struct RankUp {
    wire::RankInfo info;
    Mode mode = Mode::enforce;
    bool recovered = false;  // found alive after a restart of the manager
    std::uint32_t slots = ring::kDefaultSlots;
};
struct RankDown {
    RankId rank = kNone;
};

struct CommEntering {  // an entry says that NCCL's creation begins; rank and size come with CommUp
    RankId rank = kNone;
    std::uint32_t index = 0;  // in the rank's table
    CommId comm;
};
struct CommUp {  // an entry became registered
    RankId rank = kNone;
    std::uint32_t index = 0;  // in the rank's table
    std::uint32_t family = 0;
    wire::CommMember member;             // its gpu: by its ordinal, as good as that is
    Verdict verdict = Verdict::unknown;  // what an earlier manager had stored for it, and why
    Reason reason = Reason::none;
    std::uint32_t reason_rank = kNone;
    GpuIdentity gpu = {};  // what the driver calls it
};
struct CommCreated {
    RankId rank = kNone;
    std::uint32_t index = 0;
};  // NCCL's creation has returned there
struct CommDown {
    RankId rank = kNone;
    std::uint32_t index = 0;
};  // retired, or it entered and never registered
struct CommLost {
    RankId rank = kNone;
    std::uint32_t index = 0;
};  // its `lost` count grew

struct Recorded {  // a committed launch, in ring order
    RankId rank = kNone;
    std::uint64_t seq = 0;
    std::uint16_t flags = 0;  // ring::kLaunch*
    ring::Gate gate{};
    std::uint64_t stream = 0;
    std::vector<ring::OpEntry> ops;  // comm indices checked to be registered
    std::uint32_t slots = 1;
    bool go = false;            // recovered: an earlier manager has let it start
    bool occupied = false;      // recovered: an earlier manager has passed over it
    std::uint64_t replays = 0;  // recovered, of a captured one: so many are done
    bool keyless = false;       // of more keys than a frame holds: it has none, and passes
};
// A captured launch (ring::kLaunchReplayed) is recorded once and runs when its graph does. Each replay is a launch of
// its own, of no slot, recorded when the one before it is done: named by the slot that counts it, and its number. It
// may never be ready: it is forgotten with the captured launch.
constexpr std::uint64_t replay_launch(std::uint64_t slot, std::uint64_t replay) { return replayed_key(slot, replay); }
constexpr bool is_replay(std::uint64_t seq) { return (seq & kReplayed) != 0; }
constexpr std::uint64_t slot_of_replay(std::uint64_t seq) { return (seq & ~kReplayed) >> kReplayBits; }
constexpr std::uint64_t number_of_replay(std::uint64_t seq) { return seq & ((std::uint64_t{1} << kReplayBits) - 1); }
static_assert(ring::kMaxSlots <= kMostCaptured);

// The shim opened gates by itself, because the heartbeat stood still: whatever waits has passed.
struct GaveUp {
    RankId rank = kNone;
};
struct Ready {
    RankId rank = kNone;
    std::uint64_t seq = 0;
};
struct DoneSeen {
    RankId rank = kNone;
    std::uint64_t seq = 0;
};

// --- events: from the controller and time ---------------------------------------------------------

struct ControllerUp {
    std::uint64_t session = 0;
};  // the transport is connected: say Hello with this session
struct ControllerDown {};
struct FromController {
    std::uint64_t epoch = 0, session = 0;
    wire::Message message;
};
struct Tick {};

// A go word of a communicator: its launches that look at it and lie below `upto` go, recorded or not.
struct CommGo {
    RankId rank = kNone;
    std::uint32_t comm = kNone;
    std::uint64_t upto = 0;
};

// The answer to one Retract: those of its launches whose gates were reached all the same, and may have opened. What was
// recorded meanwhile has been told of before.
struct Retracted {
    std::vector<wire::LocalLaunch> launches;
    std::vector<wire::LocalLaunch> reached;
    std::vector<CommGo> comms = {};
};

using Event = std::variant<RankUp, RankDown, CommEntering, CommUp, CommCreated, CommDown, CommLost, Recorded, Ready,
                           DoneSeen, GaveUp, Retracted, ControllerUp, ControllerDown, FromController, Tick>;

// --- actions --------------------------------------------------------------------------------------

struct Send {
    wire::Message message;
};  // in order; the shell puts all of one look into one frame
struct SetGo {
    RankId rank = kNone;
    std::uint64_t seq = 0;
    bool abort = false;
    std::uint32_t comm = kNone;  // the entry whose go word its gate looks at
};
// Stores go before the gate is reached: it will not wait.
struct ReleaseEarly {
    RankId rank = kNone;
    std::uint64_t seq = 0;
    std::uint32_t comm = kNone;  // likewise
};
// The same of what is not recorded yet.
struct ReleaseAhead {
    CommGo go;
};
// Takes that back: launches, and go words of communicators as far as they are beyond `upto`. Then looks for launches that were
// recorded meanwhile, tells of them, and looks which were reached: Retracted answers, with the same launches and communicators.
struct Retract {
    std::vector<wire::LocalLaunch> launches;
    std::vector<CommGo> comms = {};
};
struct SetVerdict {
    RankId rank = kNone;
    std::uint32_t index = 0;
    Verdict verdict{};
    Reason reason = Reason::none;  // why it is not held
    std::uint32_t reason_rank = kNone;
    CommId known_as = {};  // CommEntry::known_as
};
struct SetOpen {
    RankId rank = kNone;
    ring::Open open{};
};
struct Slots {
    std::uint64_t seq = 0;  // of the first
    std::uint32_t count = 1;
    bool operator==(const Slots&) const = default;
};
// Slots below `upto` are free (0: no further than before), but for those that were ever `occupied` and not `freed` since.
struct Retired {
    RankId rank = kNone;
    std::uint64_t upto = 0;
    std::vector<Slots> occupied = {}, freed = {};
};
struct FreeComm {
    RankId rank = kNone;
    std::uint32_t index = 0;
    std::uint32_t generation = 0;
};
struct Steer {
    std::vector<wire::PortSteering> ports;
};
struct SetNode {
    NodeIndex node = kNone;
};
struct ForgetRank {
    RankId rank = kNone;
};  // its segment may be removed
struct EndSession {
    std::string reason;
};  // drop the connection, make another, then ControllerUp anew
struct End {
    std::string reason;
};  // another manager speaks for this node: end this process
struct WakeAt {
    TimeNs at_ns = 0;
};  // replaces the last one
enum class LogLevel : std::uint8_t { debug, info, warn, error };
struct Log {
    LogLevel level = LogLevel::info;
    std::string text;
};

using Action = std::variant<Send, SetGo, ReleaseEarly, ReleaseAhead, Retract, SetVerdict, SetOpen, Retired, FreeComm,
                            Steer, SetNode, ForgetRank, EndSession, End, WakeAt, Log>;
using Actions = std::vector<Action>;

struct Counters {
    std::uint64_t recorded = 0, ready = 0, gone = 0, done = 0, demand_messages = 0, demand_launches = 0,
                  done_messages = 0, passed = 0, expired = 0, rejected = 0;
    std::uint64_t released_early = 0, retracted = 0;  // gates released early
};

class Core {
public:
    Core(std::string node_name, CoreOptions options);
    ~Core();
    Core(const Core&) = delete;
    Core& operator=(const Core&) = delete;

    // Feeds one event. Demand and done are only collected here; flush() sends what has come together.
    void on(const Event& event, TimeNs now, TimeNs realtime_ns, Actions& out);
    // At the end of one look at rings and socket: at most one Demand and one Done. True: carry this out, and call
    // again; what is left can wait until the demand is on its way.
    bool flush(TimeNs now, Actions& out);

    // Launches recorded and not done: while there are any with a stream gate, the shell polls.
    bool pending() const;
    // Of a launch that was let go: somebody waits for its end, on this node or at the controller.
    bool awaits_end(const wire::LocalLaunch& launch) const;
    // Some launches go without us (ReleaseAhead), and when light was last granted here, or asked back.
    bool goes_ahead() const;
    bool holds_back() const;  // others wait, reached or not
    TimeNs lit_ns() const;
    const Counters& counters() const;
    std::string check() const;
    // Ranks, their communicators and launches that are not done, a line each: for last words (opus/assert.h).
    std::vector<std::string> describe() const;

private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace opus::manager
