// Words that more than one program uses: identities, keys and circuits.
//
// Plain values, no ownership, safe to copy between threads. Standard library only, header only.
// The words themselves are those of docs/design.md: rail, port, circuit, launch, gang, grant, done.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace opus {

using TimeNs = std::int64_t;  // nanoseconds of whatever clock the caller lives in; the cores never read one

// Indices into Fabric (fabric.h). They mean something only beside the fabric that gave them.
using NodeIndex = std::uint32_t;
using GpuId = std::uint32_t;   // fabric-wide GPU index
using PortId = std::uint32_t;  // fabric-wide NIC port index
using RailIndex = std::uint32_t;
using SwitchIndex = std::uint32_t;
using SwitchPort = std::uint32_t;  // port number as printed on the switch, from 1

inline constexpr std::uint32_t kNone = 0xffffffffu;

// A communicator. Every member derives the same 128 bits (shim/communicator.*), whoever it is.
struct CommId {
    std::uint64_t hi = 0;
    std::uint64_t lo = 0;
    auto operator<=>(const CommId&) const = default;
};

// A rank process on a node. The manager numbers them; the number is kept in the rank's segment, so
// it survives the manager.
using RankId = std::uint32_t;

// One launch of one rank: `seq` is its slot sequence in that rank's ring (launch_ring.h).
struct LaunchId {
    NodeIndex node = kNone;
    RankId rank = kNone;
    std::uint64_t seq = 0;
    auto operator<=>(const LaunchId&) const = default;
};

// What members of a communicator meet at (docs/protocol.md, "Keys").
enum class KeyKind : std::uint8_t {
    coll = 0,       // the communicator's n-th collective
    p2p = 1,        // the n-th transfer src -> dst of the communicator, directed
    conn = 2,       // first collective use: NCCL makes its connections, on the host
    conn_p2p = 3,   // first use of src -> dst, likewise
    conn_mesh = 4,  // the communicator's n-th connection of each with each: windows, device communicators
    put = 5,        // the n-th one-sided operation src -> dst: src alone comes to it
};
inline constexpr std::uint8_t kKeyKinds = 6;

struct Key {
    CommId comm;
    KeyKind kind = KeyKind::coll;
    std::uint32_t src = 0;  // rank in the communicator; 0 where it is not directed
    std::uint32_t dst = 0;
    std::uint64_t n = 0;  // counted from 0 by the shim on every call; 0 for conn and conn_p2p. Of replays: replayed_key()
    auto operator<=>(const Key&) const = default;
};

// From one rank to another.
inline bool is_directed(KeyKind kind) {
    return kind == KeyKind::p2p || kind == KeyKind::conn_p2p || kind == KeyKind::put;
}
// What NCCL does on the host, before any kernel.
inline bool is_connection(KeyKind kind) {
    return kind == KeyKind::conn || kind == KeyKind::conn_p2p || kind == KeyKind::conn_mesh;
}
// Who has to come to it: all members, both ends, or the sender.
inline std::uint32_t places_of(KeyKind kind, std::uint32_t size) {
    return !is_directed(kind) ? size : kind == KeyKind::put ? 1 : 2;
}

// What is captured into a CUDA graph runs at every replay, without a call. Captured operations are counted apart from calls,
// and each of them is a sequence of its own: the n-th key of it belongs to its n-th replay. All in the 48 bits of a number.
inline constexpr std::uint64_t kReplayed = 1ull << 47;
inline constexpr unsigned kReplayBits = 30;  // replays of one captured operation; more are not held
inline constexpr std::uint64_t kMostCaptured = 1ull << (47 - kReplayBits);  // operations of one kind between the same members
constexpr std::uint64_t replayed_key(std::uint64_t captured, std::uint64_t replay) {
    return kReplayed | captured << kReplayBits | replay;
}

// Where replays cannot be held, the operation is recorded once, when it is captured, with this key, by all of its members; that
// launch lasts as long as its graph. Whose replays can be held never comes to it.
constexpr std::uint64_t kPinned = (1ull << kReplayBits) - 2;
constexpr std::uint64_t pinned_key(std::uint64_t captured) { return replayed_key(captured, kPinned); }
constexpr bool is_pinned(std::uint64_t n) { return (n & kReplayed) != 0 && (n & ((1ull << kReplayBits) - 1)) == kPinned; }

// A sequence of keys: the key without its number, or without that of its replay.
inline Key sequence_of(Key key) {
    key.n = (key.n & kReplayed) == 0 ? 0 : key.n >> kReplayBits << kReplayBits;
    return key;
}

// A cross-connect between two NIC ports, light both ways. Normalised: a < b.
struct Circuit {
    PortId a = kNone;
    PortId b = kNone;
    auto operator<=>(const Circuit&) const = default;
};
inline Circuit make_circuit(PortId x, PortId y) { return x < y ? Circuit{x, y} : Circuit{y, x}; }

// Operations as the launch ring and the wire name them. Numbers are part of both contracts: never
// renumber, never reuse.
enum class OpKind : std::uint8_t {
    none = 0,
    all_reduce = 1,
    all_gather = 2,
    reduce_scatter = 3,
    reduce = 4,
    broadcast = 5,
    all_to_all = 6,
    gather = 7,
    scatter = 8,
    send = 9,
    recv = 10,
    put_signal = 11,
    signal = 12,
    wait_signal = 13,
};
inline constexpr std::uint8_t kOpKinds = 14;

// How a rank asks to be treated (OPUS_MODE).
enum class Mode : std::uint8_t { off = 0, observe = 1, enforce = 2 };

// What becomes of a communicator's launches. The controller decides (intra: the manager).
enum class Verdict : std::uint32_t {
    unknown = 0,   // not all members have registered yet
    enforced = 1,  // every member registered in enforce mode: launches are gated
    passes = 2,    // some member is not in enforce mode, or has no shim: nothing is held
    intra = 3,     // all members on one node: never asks
    degraded = 4,  // a launch was passed (hold expiry, unroutable, ring overflow, dead member)
};
inline constexpr std::uint32_t kVerdicts = 5;

// Why a communicator passes or is degraded. Part of the ring and of the wire: never renumber, never reuse.
enum class Reason : std::uint32_t {
    none = 0,        // it is held, or an older program does not say
    missing = 1,     // a member never registered: it has no shim, or its node no manager
    mode = 2,        // a member is not in enforce mode
    gpu = 3,         // a member's GPU is not in the fabric file
    size = 4,        // members disagree about the size
    left = 5,        // a member left, or its creation failed, before all had come
    died = 6,        // a member ended, or a launch waits for one that left
    unrecorded = 7,  // a member let launches pass unrecorded
    passed = 8,      // a launch was passed: its circuits are impossible, or its hold time was over
    unjudged = 9,    // nobody judged it within the hold time
    observe = 10,    // the controller only observes
    claimed = 11,    // a member claims a GPU that another process of its job has
    connects = 12,   // a member's NCCL connects it while it is made, before any circuit can be asked for
};
inline constexpr std::uint32_t kReasons = 13;

// How far NCCL's creation of a communicator has come on one member.
enum class CreationState : std::uint8_t {
    unreported = 0,  // an older shim does not say
    entered = 1,     // the call is about to be made, or goes on
    returned = 2,    // it has returned without an error: so all members have entered it
};
inline constexpr std::uint32_t kCreationStates = 3;

// What to do when a launch cannot have its circuits (OPUS_POLICY).
enum class Policy : std::uint8_t { proceed = 0, abort = 1 };

inline std::size_t hash_mix(std::size_t h, std::uint64_t v) {
    v += 0x9e3779b97f4a7c15ull + h;
    v = (v ^ (v >> 30)) * 0xbf58476d1ce4e5b9ull;
    v = (v ^ (v >> 27)) * 0x94d049bb133111ebull;
    return static_cast<std::size_t>(v ^ (v >> 31));
}

}  // namespace opus

template <>
struct std::hash<opus::CommId> {
    std::size_t operator()(const opus::CommId& c) const noexcept { return opus::hash_mix(c.hi, c.lo); }
};
template <>
struct std::hash<opus::Key> {
    std::size_t operator()(const opus::Key& k) const noexcept {
        auto h = opus::hash_mix(k.comm.hi, k.comm.lo);
        h = opus::hash_mix(h, (std::uint64_t(k.src) << 32) | k.dst);
        return opus::hash_mix(h, (k.n << 2) | std::uint64_t(k.kind));
    }
};
template <>
struct std::hash<opus::LaunchId> {
    std::size_t operator()(const opus::LaunchId& l) const noexcept {
        return opus::hash_mix((std::uint64_t(l.node) << 32) | l.rank, l.seq);
    }
};
template <>
struct std::hash<opus::Circuit> {
    std::size_t operator()(const opus::Circuit& c) const noexcept {
        return opus::hash_mix(0, (std::uint64_t(c.a) << 32) | c.b);
    }
};
