// This process's communicators: what the shim knows of each, found by the pointer that NCCL gave.
//
// Lookups are lock-free and may run beside a creation or a destruction; those take one lock. A
// Communicator that is destroyed stays readable for a while (others may be inside a call with it: Abort).
#pragma once

#include <nccl.h>

#include <atomic>
#include <cstdint>

#include "opus/launch_ring.h"
#include "shim/cuda_driver.h"
#include "shim/lock.h"

namespace opus::shim {

struct DeferredDone;
struct Lasting;
struct PendingChild;
struct Pin;

// Transfers to, or from, one peer.
struct PeerSequence {
    std::uint64_t next = 0;   // key number of the next
    std::uint64_t group = 0;  // the group (its stamp) in which `entry` is this peer's OpEntry
    std::uint64_t captured = 0;  // into graphs: the next
    std::uint32_t entry = 0;
    bool connected = false;  // NCCL has, for a transfer or a collective that is made of some
};

inline constexpr std::uint32_t kNotPlain = kNone;

// What a lone call behind a gate would else put together at each launch (fast_path.h). Of one stream: the
// last on which the communicator launched.
struct FastPath {
    cudaStream_t stream;
    std::uint64_t stream_name;
    std::uint64_t head;       // LaunchHead of its records
    std::uint64_t ring_head;  // likewise, of collectives over its ring
    CUdeviceptr ring_go;      // what their gates look at; 0: the go word of their slot
    ring::Gate gate;
    bool on_driver;  // there are contexts and captures, and the stream says done
    CUcontext context;
    CUfunction function;  // the gate kernel
    GateArguments arguments;
    GateArguments::List list;
};

struct Communicator {
    const std::atomic<std::uint32_t>* verdict;  // the CommEntry's, or a constant
    std::uint64_t collectives = 0;              // key number of the next
    // Its last launch that looks at the go word of its slot (ring::kLaunchCommGo); kFull: none that is not done.
    std::uint64_t apart = 0;
    PeerSequence* sends = nullptr;              // [size]
    PeerSequence* recvs = nullptr;              // [size]
    PeerSequence* puts = nullptr;               // [size], from the first one-sided operation on
    std::uint32_t index = kNone;                // in the segment's table; kNone: not there, never asks
    std::uint32_t rank = 0;
    std::uint32_t size = 0;
    std::atomic<std::uint32_t> slow{0};          // kSlow*: something is to be settled before its next launch
    std::uint32_t plain_verdict = kNotPlain;     // while this is its verdict, launches take the plain way (calls.cpp)
    std::uint32_t fast_path_verdict = kNotPlain;  // likewise transfers the fast path, which holds them
    std::uint32_t ring_verdict = kNotPlain;      // and collectives, where their ring is connected
    std::uint32_t mesh_verdict = kNotPlain;      // and those that are made of transfers, where every pair is
    ring::Gate gate = ring::Gate::host;          // of its launches; stream: where the stream allows (stream_gate.h)

    bool ring_connected = false;
    std::uint32_t unconnected = 0;  // transfers to and from this rank that are not connected yet: peers, twice

    ncclComm_t handle = nullptr;
    FastPath fast_path{};
    CommId id;
    CommId parent;
    bool joined = false;         // by ncclCommGrow: the others may call it otherwise (CommEntry::known_as)
    std::uint64_t captured = 0;  // collectives, into graphs: number of the next
    CUevent last_end = nullptr;  // since it has captured something: the end of its last launch, call or replay
    std::uint32_t device = 0;
    std::uint32_t family = 0;
    std::uint32_t generation = 0;
    bool split_shares = false;  // config.splitShare, inherited by children made without a config
    bool shrink_shares = false;
    bool in_order = false;  // config.launchOrderImplicit, likewise: serialises with the others of its device
    bool windows = false;   // has had one: NCCL may make meshes of its AllGathers and ReduceScatters
    bool mesh_connected = false;
    std::uint64_t meshes = 0;  // number of the next connection of each with each
    std::uint32_t device_comms = 0;
    Lasting* lasting = nullptr;  // what holds circuits for these
    Pin* pins = nullptr;         // likewise for graphs that cannot say when they are gone
    std::uint64_t splits = 0;    // ncclCommSplit calls on it so far
    std::uint64_t grows = 0;     // likewise ncclCommGrow
    DriverContext* context = nullptr;
    DeferredDone* deferred = nullptr;  // kSlowDeferred
    PendingChild* children = nullptr;  // kSlowChildren
    std::uint64_t made_ns = 0;         // kSlowRequired: NCCL's creation has ended
    bool lost_once = false;
    bool told_unheld = false;  // its user

    // Scratch of the group that has it (group.cpp).
    std::uint64_t group = 0;
    std::uint32_t group_part = 0;

    // What is to be settled. One thread launches, others ask for errors meanwhile (PyTorch's watchdog): whoever comes
    // first settles it, under this lock. A bit of `slow` is cleared last, so who finds it clear finds all of it settled.
    // Before creation_lock, where both are held.
    Lock settling;
    bool left = false;                 // its end has begun: its handle may be freed

    ring::CommEntry* entry() const;
    // A launch of it went, or will go, unrecorded although others may wait for it.
    void count_lost();
    void settle_later(std::uint32_t what) { slow.fetch_or(what, std::memory_order_release); }
    void settled(std::uint32_t what) { slow.fetch_and(~what, std::memory_order_release); }
    bool is_settled() const { return slow.load(std::memory_order_acquire) == 0; }
    // The fast paths are open to what has its connections, or to nothing.
    void open_fast_path();
    void close_fast_path() { fast_path_verdict = ring_verdict = mesh_verdict = kNotPlain; }
};

inline constexpr std::uint32_t kSlowDeferred = 1;    // launches whose done waits for ncclInProgress to end
inline constexpr std::uint32_t kSlowCreating = 2;  // NCCL's creation of it goes on; a child's rank and size are not known
inline constexpr std::uint32_t kSlowChildren = 4;  // NCCL makes children of it, and has not given their pointers yet
inline constexpr std::uint32_t kSlowRequired = 8;  // OPUS_REQUIRE=enforce: its user is told ncclInProgress until it is judged

extern const std::atomic<std::uint32_t> kAlwaysIntra;
extern const std::atomic<std::uint32_t> kAlwaysPasses;

// The flat table from NCCL's pointer to ours.
class CommunicatorTable {
public:
    static constexpr std::uint32_t kBuckets = 1024;
    static constexpr std::uint32_t kMost = 768;

    // Null also where `comm` is not in the first place its hash gives: nearly all are.
    Communicator* glance(ncclComm_t comm) const {
        Communicator* c = buckets_[bucket(comm)].load(std::memory_order_acquire);
        return c != nullptr && c->handle == comm ? c : nullptr;
    }
    Communicator* find(ncclComm_t comm) const {
        for (const auto* at = &buckets_[bucket(comm)];; ++at) {
            Communicator* c = at->load(std::memory_order_acquire);
            if (c == nullptr || c->handle == comm) return c;
        }
    }
    // Under the caller's lock. False: full.
    bool insert(ncclComm_t comm, Communicator* value);
    Communicator* remove(ncclComm_t comm);

private:
    static std::uint32_t bucket(ncclComm_t comm) {
        return std::uint32_t((reinterpret_cast<std::uintptr_t>(comm) * 0x9e3779b97f4a7c15ull) >> 54);
    }
    std::atomic<Communicator*> buckets_[kBuckets + kMost + 1] = {};  // a chain runs on past the last hash, and never wraps
    std::uint32_t used_ = 0;                                         // places taken, removed ones included
};

[[gnu::visibility("hidden")]] extern CommunicatorTable communicators;
[[gnu::visibility("hidden")]] extern Lock creation_lock;

// What a creation knows before NCCL is asked.
struct Creation {
    ncclComm_t* out = nullptr;
    ncclComm_t from = nullptr;  // its parent
    CommId id;
    CommId parent;
    CommId also;          // CommEntry::also
    bool joins = false;   // a new member, by ncclCommGrow
    std::uint32_t rank = kNone;  // kNone: the getters will say
    std::uint32_t size = kNone;
    std::uint32_t device = kNone;
    std::uint32_t family = 0;  // 0: its own
    bool split_shares = false;
    bool shrink_shares = false;
    bool in_order = false;
    std::uint32_t index = kNone;  // its entry, where registered before the real call
    std::uint32_t generation = 0;
    DriverContext* context = nullptr;  // of the thread that asked
};

// Before the real call, always: once that has returned on any member, a manager can know of all of them. Claims and
// publishes an entry, unless it is known to be of one rank.
void register_early(Creation& creation);
// After the real call: `result` of it. Makes the communicator known, or takes the registration back; one that NCCL goes on
// to make is known when that ends.
// Returns it where it wants a verdict before its first launch (await_verdict), else null.
Communicator* conclude(Creation& creation, ncclResult_t result);
// NCCL's creation has ended, of a communicator that was known before (kSlowCreating). Under its lock.
void created(Communicator& c, ncclResult_t result);
// The same of children whose pointers are given only then: `result` is what their parent says. What it is to say now.
// Under the parent's lock.
ncclResult_t settle_children(Communicator& parent, ncclResult_t result);
// Their parent is about to go: NCCL ends what it makes of it.
void forget_children(Communicator& parent);
// Of a communicator whose user is to hear of it as NCCL does (kSlowRequired): ncclInProgress until it is judged.
ncclResult_t required_state(Communicator& c);

// Takes it out of the table: NCCL may give its pointer to another as soon as the real call frees it.
Communicator* forget(ncclComm_t comm);
// After the real call: its entry is free once the manager has seen it through.
void retire(Communicator* c);

// Waits, bounded by the hold time, until the manager has judged it. Returns its verdict, or `passes`.
Verdict await_verdict(Communicator& c);
// Says once, in one line, that its launches are not held, and why.
void tell_unheld(Communicator& c);
// After a creation that has ended: waits for the verdict. With OPUS_REQUIRE=enforce a communicator that is not held is
// refused: the result is an error.
ncclResult_t admit_created(Communicator& c, ncclComm_t* out);
// Ends a communicator that NCCL has made and its user is not to have. `*out` is null then.
void refuse(Communicator& c, ncclComm_t* out);

// After an entry was written: the manager looks at the table when this has grown.
void tell_change();
void retire_entry(std::uint32_t index);
void release(Communicator* c);

std::uint64_t occurrence_of(const CommId& what);

}  // namespace opus::shim
