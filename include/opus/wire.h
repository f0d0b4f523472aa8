// Messages between managers, the controller and opus-ctl: msgpack over ZeroMQ (managers and opus-ctl
// are DEALERs, the controller is a ROUTER). Protocol version 1.
//
//   frame = [ magic, major, minor, epoch, session, sequence, [ [type, body], ... ] ]
//
// A frame carries every message that its sender had ready when it looked, in order. `epoch` is the
// controller's life, `session` the connection's (drawn at random by the manager at each hello),
// `sequence` counts frames of the session from 1 in each direction. A frame of another epoch or
// session is dropped; a gap in the sequence ends the session (the manager says hello again).
// Exception: a frame with Hello or Ctl carries epoch 0 and is judged by its content.
//
// A body is an array of the struct's members in order. Minor versions append members; a reader ignores
// what it does not know and keeps defaults for what is missing. Another major is refused by name.
// Message numbers are never reused. decode() checks every field (include/impl/wire_rules.h: sizes,
// enumerators, ranges), so whoever holds a decoded message holds a checked one; what only the fabric
// knows (is there such a GPU?) its receiver checks.
//
// Encoding and decoding: wire_codec.h.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "opus/types.h"

namespace opus::wire {

inline constexpr std::uint32_t kMagic = 0x4f505553;  // "OPUS"
inline constexpr std::uint32_t kMajor = 1;
inline constexpr std::uint32_t kMinor = 5;
inline constexpr std::size_t kMaxFrameBytes = 16u << 20;
inline constexpr std::size_t kMaxName = 255;             // names: printable, one line
inline constexpr std::size_t kMaxText = 4095;            // reasons: printable, one line
inline constexpr std::size_t kMaxBody = 8u << 20;        // JSON of opus-ctl
inline constexpr std::size_t kMaxList = 1u << 18;        // elements of any list
inline constexpr std::size_t kMaxKeysPerLaunch = 65536;  // summed over its ranges
inline constexpr std::uint64_t kMostKeysPlanned = 4096;  // of a sequence, in a run by a plan; one without end has many more
inline constexpr std::uint32_t kMaxRanks = 1u << 22;     // of one communicator
inline constexpr std::size_t kMaxBystanders = 64;        // processes without Opus that a node tells of
inline constexpr std::uint32_t kMaxLocal = 64;           // GPUs of a node, ports of a GPU

// --- parts -------------------------------------------------------------------------------------

// The place of a member that nobody reads any more: written as T{}, so that older peers find what they expect, and read as anything.
template <class T>
struct Reserved {};
using List = std::vector<std::uint32_t>;

struct LocalLaunch {  // a launch of the node that the frame is from or for
    RankId rank = kNone;
    std::uint64_t seq = 0;
    auto operator<=>(const LocalLaunch&) const = default;
};

// Consecutive keys of one sequence: n .. n + count - 1.
struct KeyRange {
    Key first;
    std::uint32_t count = 1;
    bool mesh = false;  // of collectives: needs every pair of nodes (AlltoAll, windows), not NCCL's ring
    bool operator==(const KeyRange&) const = default;
};

struct LaunchDemand {
    LocalLaunch launch;
    std::vector<KeyRange> keys;
    OpKind op = OpKind::none;  // of the first op, for people and cost models
    std::uint64_t bytes = 0;
    std::int64_t ready_ns = 0;       // CLOCK_REALTIME when its gate was seen reached
    Reserved<List> reserved_run = {};
    bool mixed = false;              // it holds up operations that have no key here: whom they meet is not seen
    bool behind = false;             // its kernel may come after others that nobody here is told of
};

struct LaunchDone {
    LocalLaunch launch;
    std::int64_t ready_ns = 0, go_ns = 0, done_ns = 0;  // CLOCK_REALTIME, 0 where it never was
    bool ungated = false;                               // passed or observed: it never waited for go
};

// A launch that started under the soft part of a grant and was never reported before.
struct LaunchRan {
    LaunchDemand demand;
    LaunchDone done;
};

// A launch that nothing held and nobody asked for (OPUS_MODE=observe): for recordings.
struct LaunchSeen {
    LaunchDone done;
    CommId comm;  // of its first operation
    OpKind op = OpKind::none;
    std::uint64_t bytes = 0;
};

enum class LaunchState : std::uint8_t { ready = 0, in_flight = 1, suspended = 2, passed = 3 };

// A launch as a snapshot tells it.
struct LaunchSnapshot {
    LaunchDemand demand;
    LaunchState state = LaunchState::ready;
    std::uint64_t grant = 0;  // token it started under; 0: none
};

struct CommMember {  // this node's member of a communicator
    CommId comm;
    CommId parent;
    std::uint32_t rank_in_comm = 0;
    std::uint32_t size = 0;
    RankId rank = kNone;        // the process
    std::uint32_t gpu = kNone;  // local GPU index
    Mode mode = Mode::enforce;
    std::uint32_t generation = 0;
    std::vector<KeyRange> done = {};  // snapshot only, one a sequence: this member has finished the keys 0 .. n + count - 1
    Verdict verdict = Verdict::unknown;  // what its launches go by now: a new controller must not hold what an old one passed
    CreationState creation = CreationState::unreported;
    bool own_nic = false;  // its transfers leave by its own GPU's NIC, whatever the receiver's is (opus/ways.h)
    bool own_host = false;  // its NCCL counts hosts, not NVLink domains
    bool at_once = false;   // its NCCL connects it while it is made: no circuits could be asked for
    CommId also = {};       // what members that joined by ncclCommGrow call it; zero: nobody does, or this one does not know
};

// A process that is inside NCCL's creation of a communicator, and does not know its rank and size in it yet. Once it does it
// is a CommMember.
struct CommEntrant {
    CommId comm;
    RankId rank = kNone;
};

struct RankInfo {
    RankId rank = kNone;
    std::uint32_t pid = 0;
    std::uint32_t gpu = kNone;  // local GPU index, kNone until known
    std::uint32_t hold_ms = 0;  // OPUS_HOLD_MS; 0: not set, so the default, or as much as the switches need
    Policy policy = Policy::proceed;
    std::string job;
    Reserved<bool> reserved_paces = {};
};

// A port of this node and where its circuit leads. dark: peer_* are kNone.
struct PortSteering {
    std::uint32_t gpu = 0, port = 0;  // local indices
    NodeIndex peer_node = kNone;
    std::uint32_t peer_gpu = kNone, peer_port = kNone;  // local indices on the peer
};

// --- manager -> controller -----------------------------------------------------------------------

struct Hello {  // opens a session; controller answers Welcome or Refused
    std::string node;
    std::uint64_t session = 0;
    std::uint64_t known_epoch = 0;  // highest epoch this manager has seen
    std::string version;            // of the program, for people
    std::string where = {};         // host, process and runtime directory, for people
    std::uint64_t seat = 0;         // of machine and runtime directory: one manager at a time has it; 0: not told
};

struct Token {  // what a manager still holds of a grant
    std::uint64_t grant = 0;
    std::vector<LocalLaunch> firm;
    std::vector<KeyRange> soft;
    Reserved<bool> reserved_frozen = {};
};

// First message after Welcome; replaces all the controller knew of the node. A launch that the controller
// knew, of a rank that is in it, and that it lacks, is done.
struct Snapshot {
    std::vector<RankInfo> ranks;
    std::vector<CommMember> comms;
    std::vector<LaunchSnapshot> launches;
    std::vector<Token> tokens;
    std::vector<CommEntrant> entering = {};
};

struct Register {  // ranks and communicators that came, and members whose creation has returned
    std::vector<RankInfo> ranks;
    std::vector<CommMember> comms;
    std::vector<CommEntrant> entering = {};
};

struct CommGone {
    CommId comm;
    RankId rank = kNone;
};

struct Retire {  // ranks that ended (crashed or detached), communicators destroyed or degraded
    std::vector<RankId> ranks;
    std::vector<CommGone> comms;
    std::vector<CommGone> degraded;  // lost launches: the controller degrades the communicator for all
    std::vector<CommEntrant> failed = {};  // were entering, and never became members
};

struct Demand {
    std::vector<LaunchDemand> launches;
};

struct Done {
    std::vector<LaunchDone> launches;
    std::vector<LaunchRan> ran = {};
    std::vector<std::uint64_t> ended = {};  // grants of whose soft part this node holds nothing any more
    std::vector<LaunchSeen> seen = {};
};

struct Returned {  // answer to Revoke
    std::uint64_t id = 0;
    std::vector<LocalLaunch> started;        // of those asked about: already past their gate
    std::vector<LocalLaunch> returned;       // not started; ready again
    std::vector<KeyRange> started_upto;      // Revoke: per soft sequence, what was started
    std::vector<LaunchDemand> running = {};  // Revoke: started under what is returned, in flight, never reported before
};

struct Expired {
    std::vector<LocalLaunch> launches;
};  // passed or failed by the manager while it had no controller

// A process of the host that has mapped NCCL and has met no manager: it runs without Opus, or has made no communicator
// yet. For people.
struct Bystander {
    std::uint32_t pid = 0;
    std::string program;  // its command's name
    std::string library;  // the NCCL that it has mapped
    bool shim = false;    // it has the shim mapped, too
};

struct Heartbeat {  // both ways, once a second
    std::int64_t sent_ns = 0;
    Reserved<List> reserved_learned = {}, reserved_withheld = {};
    std::vector<Bystander> bystanders = {};  // by managers: all of them, as far as kMaxBystanders
};

// --- controller -> manager -----------------------------------------------------------------------

struct GpuAssignment {
    std::uint32_t local = 0;
    std::uint32_t ports = 1;
    std::string pci;  // of the fabric file, as uuid; empty: it does not say
    std::string rail;
    std::string uuid = {};
};

struct Welcome {
    std::uint64_t session = 0;
    std::uint64_t epoch = 0;
    NodeIndex node = kNone;
    std::vector<GpuAssignment> gpus;
    Reserved<bool> reserved_provision = {}, reserved_runs = {};
    std::uint32_t grace_ms = 0;    // a node not heard of for so long holds no runs any more; 0: not told
    std::uint32_t silence_ms = 0;  // a session in which nothing is heard for so long is lost; 0: not told
    Reserved<std::uint32_t> reserved_dark_us = {};
    Reserved<bool> reserved_by_rank = {};
};

struct Refused {
    std::uint64_t session = 0;
    std::string reason;
    std::uint32_t taken_ms = 0;  // another manager speaks for the node until it has been silent for so long; 0: no matter of time
};

struct Place {  // of a member
    NodeIndex node = kNone;
    std::uint32_t gpu = kNone;  // local
    bool own_nic = false;       // as of CommMember
    NodeIndex domain = kNone;   // first node of its NVLink domain, where NCCL counts that as one node
    auto operator<=>(const Place&) const = default;
};
struct CommVerdict {
    CommId comm;
    Verdict verdict = Verdict::unknown;
    std::vector<Place> places = {};  // by rank in the communicator, where it is enforced and not too large
    Reason reason = Reason::none;    // why it is not held
    std::uint32_t reason_rank = kNone;  // in the communicator: the member that this is about
    std::string why = {};               // the same in words, one line
    CommId known_as = {};               // not zero: this is no communicator of its own, its members register as that one's
};
struct Verdicts {
    std::vector<CommVerdict> comms;
};

struct Grant {
    std::uint64_t id = 0;
    std::vector<LocalLaunch> firm;       // this node's launches that may start
    std::vector<KeyRange> soft;          // its run: revocable
    std::vector<PortSteering> steering;  // what changed since this node was last told
};

// The soft parts of these grants, which lie on these ports (for people), are to be returned.
struct Revoke {
    std::uint64_t id = 0;
    std::vector<PortSteering> ports;
    std::vector<std::uint64_t> grants = {};
};

struct Pass {  // gang-wide decision: open the gates without circuits, or fail them
    std::vector<LocalLaunch> launches;
    Policy how = Policy::proceed;
    std::string why;  // one line, names the thing and the remedy
};

struct Suspended {
    std::vector<LocalLaunch> launches;
    bool back = false;
};  // for people and lit[]; back: its circuits returned

struct WaitingLaunch {
    LocalLaunch launch;
    std::string misses;
};
struct Waiting {
    std::vector<WaitingLaunch> launches;
};  // complete but not granted, and why

struct Resync {
    std::string reason;
};  // start a new session with a snapshot

// --- opus-ctl <-> controller ----------------------------------------------------------------------

struct CtlRequest {
    std::uint64_t id = 0;
    std::string command;
    std::string arguments;
};  // arguments: JSON object
struct CtlReply {
    std::uint64_t id = 0;
    bool ok = false;
    bool more = false;
    std::string body;
};  // JSON, or error text

// The one list of messages: number, struct. Reserved: 10, 11, 25, 30 (Next, Pace, Recall and Provision of 1.4 and before).
// clang-format off
#define OPUS_WIRE_MESSAGES(X) \
    X(1, Hello) X(2, Snapshot) X(3, Register) X(4, Retire) X(5, Demand) X(6, Done) X(7, Returned) \
    X(8, Expired) X(9, Heartbeat) X(20, Welcome) X(21, Refused) X(22, Verdicts) X(23, Grant) \
    X(24, Revoke) X(26, Pass) X(27, Suspended) X(28, Waiting) X(29, Resync) \
    X(40, CtlRequest) X(41, CtlReply)
// clang-format on

using Message =
    std::variant<Hello, Snapshot, Register, Retire, Demand, Done, Returned, Expired, Heartbeat, Welcome,
                 Refused, Verdicts, Grant, Revoke, Pass, Suspended, Waiting, Resync, CtlRequest, CtlReply>;

struct Frame {
    std::uint64_t epoch = 0;
    std::uint64_t session = 0;
    std::uint64_t sequence = 0;
    std::vector<Message> messages;
};

}  // namespace opus::wire
