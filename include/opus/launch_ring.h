// The launch ring: one shared-memory segment per rank process, between libopus_shim.so and
// opus-manager. This header is the whole contract. Version 1.
//
//   segment (a file of the manager's runtime directory, tmpfs, mode 0600; descriptor passed over the
//   manager's Unix socket, attach.h)
//
//   offset 0      ┌───────────────────────────────────────────────┐
//                 │ SegmentHeader   identity, written once         │  manager, before the shim maps it
//                 │   line: manager word  heartbeat, open, asleep  │  manager
//                 │   line: head          next free slot           │  shim threads, by CAS
//                 │         comm_changes  entries were written     │  shim
//                 │   line: retired, reusable  see below           │  manager
//                 │   line: counters      what the shim did        │  shim
//   comms_offset  ├───────────────────────────────────────────────┤
//                 │ CommEntry[kMaxComms]                           │
//                 │   line 0: identity    written once a life      │  shim
//                 │   line 1: open, lost; which GPU it runs on     │  shim
//                 │   line 2: verdict and why, freed, go           │  manager
//   slots_offset  ├───────────────────────────────────────────────┤
//                 │ LaunchRecord / LaunchExtension[slots], 64 B    │  shim
//   ready_offset  │ GateWord[slots]   ready = seq + 1              │  shim (host gate) or GPU (stream gate)
//                 │                   skipped = seq + 1            │  shim
//   done_offset   │ GateWord[slots]   done  = seq + 1              │  GPU, or shim when a call failed
//   go_offset     │ GateWord[slots]   go    = seq + 1, occupied    │  manager
//   lit_offset    │ u32[kLitPeers]    epoch of light per peer      │  manager (read by the net gate)
//                 └───────────────────────────────────────────────┘
//
// Life of a launch in slot s = seq % slots:
//
//     free ──claim (CAS head), write ops, commit (release)──▶ recorded          shim
//     recorded ──gate reached──▶ ready[s] = seq + 1                              shim | GPU
//     ready ──its circuits are up, or it may pass──▶ go[s] = seq + 1 (| abort)   manager
//     recorded ──inside a run──▶ go[s] = seq + 1, before ready (early release)   manager
//     that ──its run is revoked──▶ go[s] = seq (retract); ready? then go again   manager
//     inside a run, not recorded yet──▶ go of its communicator > seq             manager
//     go ──kernel finished──▶ done[s] = seq + 1                                  GPU | shim
//     done, and all before it done──▶ retired > seq: the slot is free            manager
//     done, and one before it not───▶ reusable > seq: the slot is free           manager
//
// Which slots are free: those of sequences below `retired`. As a rule launches end before the ring has gone round. One
// that does not (a receive posted early) is passed over:
//   - The manager marks its slots `occupied`, then stores `reusable` beyond it. While reusable > retired, the slots of
//     sequences below `reusable` are free, but for the occupied ones. When the launch is done its mark goes back to 0.
//   - A sequence whose slot is occupied has no launch. The shim stores `skipped` for it and takes the next that are free;
//     the manager reads past it, and it is free again when all before it are free, or passed over.
//   - `retired` then stands still for good: a manager older than minor 3, which knows of no skipped sequence, finds more
//     launches than a ring holds, and opens all gates.
//   - A shim that does its part says so in each launch (kLaunchSkips). For any other nothing is passed over.
//
// A launch that is captured into a CUDA graph (kLaunchReplayed) has one record, made when it is captured, and one gate and one
// done for each replay, made by the GPU alone. They are counted in the `replays` of its slot's three words, from 1 on:
//
//     captured ──a replay's gate is reached──▶ ready.replays += 1                GPU
//     ready.replays = r ──its circuits are up, or it may pass──▶ go.replays = r  manager
//     go.replays >= r ──kernel finished──▶ done.replays += 1                     GPU
//     graph and executables are gone──▶ done[s] = seq + 1                        shim
//     done ──▶ go.replays = 0 when the slot is free, as that of any launch       manager
//     recorded ──▶ ready, done.replays = 0, before the commit                    shim
//
// Replays of one graph take turns, so the r-th done is that of the r-th gate. Its ready, go and done words are not used
// otherwise. Inside a run without end `go.replays` is stored one ahead: so the next replay does not wait for the manager.
//
// A launch that is `kLaunchCommGo` waits at the go word of its communicator instead: it goes when that is above `seq`. So the
// manager need not have seen the launch: inside a run it stores a `go` that lies ahead of what is recorded, and later launches
// wait for nobody and ring for nobody. The manager stores the go word of the slot as well, for a gate that comes to stand on the
// host. A shim marks launches so that become ready behind every earlier launch of their communicator that may still wait: lone
// collectives over the communicator's ring on the stream of its launch before.
//
// Every word has one writer and only grows, so a reader needs no lock and either side may die at any
// instruction. Exceptions: `occupied`, counts of replays (the GPU counts, the shim clears), and a go that was stored
// early, which may be retracted. For that a gate that is `kLaunchFenced` stores ready, then looks at go, and the manager
// stores go = seq, then looks at ready (that of a communicator: reads the ring as well, for launches that it has not
// seen), all four in one total order (seq_cst): so one of the two sees the other. What is ready by then has started,
// whether it has gone or not, and its go is stored again. The manager trusts no byte the shim wrote: it copies, then
// validates (manager/ring.*).
//
// A gate is open when  its go >= seq + 1,  or `open` of the segment is not 0,  or `open` of its
// communicator is not 0 (a stream gate that holds several: `opened` of its slot),  or the heartbeat has stood still for the hold time, or is what it was when
// another gate gave up waiting for it.
//
// Freestanding on purpose: the shim includes this and links nothing but libc.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "opus/gpu_identity.h"
#include "opus/types.h"

namespace opus::ring {

inline constexpr std::uint64_t kMagic = 0x31474e525355504full;  // "OPUSRNG1"
inline constexpr std::uint32_t kVersionMajor = 1;
// 1: dead_beat; 2: kLaunchFenced; 3: creation and reason, kLaunchSkips, kOpConnects; 4: pci and uuid of a CommEntry,
// kMaxOps (was 1024), kOpMesh, kLaunchLasts, one-sided operations; 5: kLaunchReplayed; 6: `ways` of a CommEntry;
// 7: kLaunchLasts of captured operations (pinned_key), `also` and `known_as` of a CommEntry; 8: kLaunchCommGo, `go` of
// a CommEntry, kDozes
inline constexpr std::uint32_t kVersionMinor = 8;
inline constexpr std::uint32_t kMaxComms = 256;
inline constexpr std::uint32_t kDefaultSlots = 4096;  // power of two
inline constexpr std::uint32_t kMaxSlots = 65536;
inline constexpr std::uint32_t kMaxOps = 16384;  // op entries of one launch, and half the ring; more passes unrecorded
inline constexpr std::uint32_t kMaxOpsBefore4 = 1024;
inline constexpr std::uint32_t kLitPeers = 4096;
inline constexpr std::size_t kLine = 64;

// A committed header slot holds kCommitTag | (seq + 1). No op entry can look like one: its top 32
// bits are a peer, below 2^31.
inline constexpr std::uint64_t kCommitTag = 0xc0de'0000'0000'0000ull;
inline constexpr std::uint64_t kSeqMask = 0x0000'ffff'ffff'ffffull;

inline constexpr std::uint64_t kGoAbort = 1ull << 63;  // in a go word: do not start, fail

enum class Gate : std::uint16_t { none = 0, host = 1, stream = 2, net = 3 };

// One operation, or `count` like ones to one peer, of a launch. 32 bytes.
struct OpEntry {
    std::uint8_t kind;    // OpKind
    std::uint8_t dtype;   // ncclDataType_t
    std::uint16_t comm;   // index into CommEntry[]
    std::uint32_t peer;   // p2p: peer rank; rooted collectives: root; else 0. Below 2^31.
    std::uint64_t n;      // first key number: collectives, or transfers with that peer and direction; captured ones apart
    std::uint32_t count;  // consecutive key numbers n .. n + count - 1, at least 1
    std::uint32_t flags;  // kOp*
    std::uint64_t bytes;  // per rank, summed over count
};
inline constexpr std::uint32_t kOpFirstUse = 1;  // brings its conn key as well (launch with kLaunchConn, or host gate)
inline constexpr std::uint32_t kOpConnects = 2;  // brings its conn key only (host gate): a pair that an AlltoAll connects
inline constexpr std::uint32_t kOpMesh =
    4;  // a collective that may need every pair of nodes; with its conn key: number n of these

// First slot of a launch. `commit` is stored last, with release. 64 bytes.
struct LaunchRecord {
    std::atomic<std::uint64_t> commit;  // kCommitTag | (seq + 1)
    std::uint64_t ticks;                // time stamp counter at the call, or 0
    std::uint16_t gate;                 // Gate
    std::uint16_t op_count;             // 1 .. kMaxOps; further ops follow in extensions
    std::uint16_t flags;                // kLaunch*
    std::uint16_t reserved;
    std::uint64_t stream;  // opaque: launches of equal `stream` become ready in order
    OpEntry op;
};
inline constexpr std::uint16_t kLaunchConn =
    1;  // connections only: keys are the conn keys of its ops; done when the real call returns
inline constexpr std::uint16_t kLaunchUngated = 2;   // observe mode: recorded, never held
inline constexpr std::uint16_t kLaunchHostDone = 4;  // done is written by the host (no stream write available)
inline constexpr std::uint16_t kLaunchMarksReady = 8;  // gate none: the stream writes ready when it gets there, and goes on
inline constexpr std::uint16_t kLaunchMixed =
    16;  // its gate also stands before operations, or first uses, of communicators that are not held
inline constexpr std::uint16_t kLaunchFenced = 32;  // its gate orders its ready before its first look at go

inline constexpr std::uint16_t kLaunchSkips = 64;      // its shim knows occupied slots
inline constexpr std::uint16_t kLaunchReplayed = 128;  // captured into a graph; not below minor 5
// Done when what it connected is no more, or the graph that it was captured into; later launches do not wait for that.
inline constexpr std::uint16_t kLaunchLasts = 256;
inline constexpr std::uint16_t kLaunchCommGo = 512;  // waits at the go word of its communicator; not below minor 8
// Of captured ones: their counts stay when the graph is gone. Else a replay that was let go ahead might never be told of.
inline constexpr std::uint16_t kLaunchKeepsCounts = 1024;

// Slots 2.. of a launch: two more ops each. 64 bytes.
struct LaunchExtension {
    OpEntry op[2];
};

struct alignas(kLine) GateWord {
    std::atomic<std::uint64_t> value;
    std::atomic<std::uint32_t> waiter;    // ready words only: a host thread sleeps on go (futex on its low half)
    std::atomic<std::uint32_t> occupied;  // go words only. 1: a launch below `reusable` is not done with this slot
    std::atomic<std::uint64_t> skipped;   // ready words only. seq + 1: there is no launch `seq`
    std::atomic<std::uint32_t> opened;    // ready words only. 1: of a stream gate that holds several communicators one is ended
    std::atomic<std::uint64_t> replays;   // of a captured launch: ready, let go, done
};

// Life of an entry. A member that knows its rank and size before NCCL's creation (ncclCommInit*) registers at once; one
// that learns them from it (ncclCommSplit, Shrink) is `entering` until that has returned:
//
//     free ──┬────────────────────────▶ registered ──destroyed, or its creation failed──▶ retired ──freed──▶ free
//            └──▶ entering ──returned──────▲
//                    └──failed, or alone in it──▶ free, at once: no launch has named it
enum class CommState : std::uint32_t { free = 0, registered = 1, retired = 2, entering = 3 };

// What the application has done to a communicator: every gate of it is open. A launch that waits on the host then fails
// instead, and after an Abort any: NCCL frees what it would launch on.
enum class CommOpen : std::uint32_t { closed = 0, revoked = 1, aborted = 2 };

inline constexpr std::uint32_t kWaysOwnNic = 1;   // what it sends leaves by its own GPU's NIC, whatever the receiver's is
inline constexpr std::uint32_t kWaysAtOnce = 4;   // NCCL connects it while it is made (nccl_connects_late)
inline constexpr std::uint32_t kWaysOwnHost = 2;  // its node is its host, whatever NVLink joins

// One communicator of this rank. Line 0 is written, then `state` stored with release.
struct CommEntry {
    alignas(kLine) CommId id;
    CommId parent;  // zero for a root communicator
    std::uint32_t rank;                   // kNone while entering, as size
    std::uint32_t size;
    std::uint32_t device;                 // CUDA ordinal as the process sees it
    std::uint32_t family;                 // entries of equal family serialise inside NCCL (splitShare)
    std::uint32_t generation;             // grows each time the entry is reused
    std::uint32_t mode;                   // Mode
    std::atomic<std::uint32_t> state;     // CommState
    std::atomic<std::uint32_t> creation;  // CreationState
    // line 1
    alignas(kLine) std::atomic<std::uint32_t> open;  // CommOpen
    std::atomic<std::uint32_t> lost;                 // launches that passed unrecorded (ring full, too many ops)
    PciAddress pci;  // of `device`, as the driver says; 0: it does not, or OPUS_GPU does. Written as line 0 is
    GpuUuid uuid;    // likewise
    std::uint32_t ways;  // kWays*, likewise
    CommId also;  // another id of it, by which some members know it, as far as this one can tell (ncclCommGrow); or zero. Likewise
    // line 2
    alignas(kLine) std::atomic<std::uint32_t> verdict;  // Verdict; futex word. Back to unknown before `freed` is stored
    std::atomic<std::uint32_t> freed;  // generation whose retirement the manager has seen through: the entry may be reused
    std::atomic<std::uint32_t> reason;       // Reason; stored before `verdict`
    std::atomic<std::uint32_t> reason_rank;  // the member that it is about, kNone: none; stored before `verdict`
    CommId known_as;  // not `id`, if it is not zero: what most members call it, and all its children's ids are made of. Likewise
    std::atomic<std::uint64_t> go;  // of its launches that are kLaunchCommGo; 0 before `freed` is stored
};

enum class Open : std::uint32_t { closed = 0, pass = 1, abort = 2 };

// Values of `asleep`. Who dozes looks again within milliseconds: a launch that goes anyway rings only where the go word
// of its communicator is to be moved on, kLeftToRing launches before its end.
inline constexpr std::uint32_t kAwake = 0, kAsleep = 1, kDozes = 2;
inline constexpr std::uint64_t kLeftToRing = 8;

struct SegmentHeader {
    // line 0, written by the manager before it hands the descriptor out; version stored last.
    alignas(kLine) std::uint64_t magic;
    std::atomic<std::uint32_t> version;  // major << 16 | minor
    std::uint32_t bytes;                 // of the whole segment
    std::uint32_t slots;                 // power of two
    RankId rank_id;
    std::uint32_t pid;  // of the rank, as the manager sees it
    std::uint32_t hold_ms;    // of the attach request; 0: not set
    std::uint64_t pid_start;  // start time of pid (/proc/pid/stat field 22): tells a reused pid
    std::uint32_t mode;       // Mode
    std::uint32_t policy;     // Policy
    std::uint32_t gpu;        // local GPU index, kNone until a communicator says
    std::uint32_t reserved0;
    // line 1
    alignas(kLine) std::atomic<std::uint64_t> heartbeat;  // manager: from 1 on, grows at least every second while it lives
    std::atomic<std::uint32_t> open;                      // Open: lets everything pass, or fails everything. Sticky.
    std::atomic<std::uint32_t> asleep;  // else than kAwake: ring the doorbell after recording or a host `ready`
    // line 2
    alignas(kLine) std::atomic<std::uint64_t> head;
    std::atomic<std::uint64_t> comm_changes;  // grows after each change of a CommEntry, before the doorbell
    // line 3
    alignas(kLine) std::atomic<std::uint64_t> retired;
    std::atomic<std::uint64_t> reusable;  // counts while it is beyond `retired`
    // line 4, shim, relaxed counters for people
    alignas(kLine) std::atomic<std::uint64_t> recorded;
    std::atomic<std::uint64_t> gated;
    std::atomic<std::uint64_t> passed;  // formed a launch but did not ask (intra, passes, degraded)
    std::atomic<std::uint64_t> lost;
    std::atomic<std::uint64_t> gave_up;  // gates opened by a stale heartbeat
    // The heartbeat at which one of them opened. While it stays that, further gates do not wait for it: a stream holds
    // many behind each other, and their hold times would add up.
    std::atomic<std::uint64_t> dead_beat;  // shim or GPU
    // line 5: identity the shim adds after attaching, job name for people
    alignas(kLine) char job[64];
};

static_assert(sizeof(OpEntry) == 32);
static_assert(sizeof(LaunchRecord) == 64 && offsetof(LaunchRecord, op) == 32);
static_assert(sizeof(LaunchExtension) == 64);
static_assert(sizeof(GateWord) == 64 && offsetof(GateWord, waiter) == 8 && offsetof(GateWord, occupied) == 12 &&
              offsetof(GateWord, skipped) == 16 && offsetof(GateWord, replays) == 32);
static_assert(sizeof(CommEntry) == 192 && offsetof(CommEntry, open) == 64 && offsetof(CommEntry, verdict) == 128);
static_assert(offsetof(CommEntry, state) == 56 && offsetof(CommEntry, creation) == 60);
static_assert(offsetof(CommEntry, reason) == 136 && offsetof(CommEntry, reason_rank) == 140);
static_assert(offsetof(CommEntry, also) == 104 && offsetof(CommEntry, known_as) == 144 && offsetof(CommEntry, go) == 160);
static_assert(sizeof(SegmentHeader) == 384);
static_assert(offsetof(SegmentHeader, heartbeat) == 64 && offsetof(SegmentHeader, open) == 72);
static_assert(offsetof(SegmentHeader, head) == 128 && offsetof(SegmentHeader, comm_changes) == 136 &&
              offsetof(SegmentHeader, retired) == 192 && offsetof(SegmentHeader, reusable) == 200);
// The gate kernel knows both by one address.
static_assert(offsetof(SegmentHeader, dead_beat) == offsetof(SegmentHeader, gave_up) + 8);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<std::uint32_t>::is_always_lock_free);

// Where things lie, from the number of slots alone. The only place that computes offsets.
struct Layout {
    std::uint32_t slots;
    constexpr std::size_t comms_offset() const { return 4096; }
    constexpr std::size_t slots_offset() const { return comms_offset() + kMaxComms * sizeof(CommEntry); }
    constexpr std::size_t ready_offset() const { return slots_offset() + std::size_t(slots) * kLine; }
    constexpr std::size_t done_offset() const { return ready_offset() + std::size_t(slots) * kLine; }
    constexpr std::size_t go_offset() const { return done_offset() + std::size_t(slots) * kLine; }
    constexpr std::size_t lit_offset() const { return go_offset() + std::size_t(slots) * kLine; }
    constexpr std::size_t bytes() const { return lit_offset() + kLitPeers * sizeof(std::uint32_t); }
};
static_assert(Layout{kDefaultSlots}.slots_offset() == 53248);
static_assert(Layout{kDefaultSlots}.bytes() % 4096 == 0);

// Slots a launch of `op_count` ops takes.
constexpr std::uint32_t slots_for(std::uint32_t op_count) { return 1 + op_count / 2; }

// A mapped segment. Does not own the mapping.
struct View {
    SegmentHeader* header = nullptr;
    CommEntry* comms = nullptr;
    std::byte* slots = nullptr;
    GateWord* ready = nullptr;
    GateWord* done = nullptr;
    GateWord* go = nullptr;
    std::atomic<std::uint32_t>* lit = nullptr;
    std::uint32_t mask = 0;  // slots - 1

    LaunchRecord& record(std::uint64_t seq) const {
        return *reinterpret_cast<LaunchRecord*>(slots + (seq & mask) * kLine);
    }
    LaunchExtension& extension(std::uint64_t seq) const {
        return *reinterpret_cast<LaunchExtension*>(slots + (seq & mask) * kLine);
    }
};

inline View view_of(void* base, std::uint32_t slots) {
    auto* b = static_cast<std::byte*>(base);
    const Layout at{slots};
    View v;
    v.header = reinterpret_cast<SegmentHeader*>(b);
    v.comms = reinterpret_cast<CommEntry*>(b + at.comms_offset());
    v.slots = b + at.slots_offset();
    v.ready = reinterpret_cast<GateWord*>(b + at.ready_offset());
    v.done = reinterpret_cast<GateWord*>(b + at.done_offset());
    v.go = reinterpret_cast<GateWord*>(b + at.go_offset());
    v.lit = reinterpret_cast<std::atomic<std::uint32_t>*>(b + at.lit_offset());
    v.mask = slots - 1;
    return v;
}

}  // namespace opus::ring
