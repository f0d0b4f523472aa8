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

namespace opus::shim {

struct DeferredDone;

// Transfers to, or from, one peer.
struct PeerSequence {
    std::uint64_t next = 0;   // key number of the next
    std::uint64_t group = 0;  // the group (its stamp) in which `entry` is this peer's OpEntry
    std::uint32_t entry = 0;
};

struct Communicator {
    const std::atomic<std::uint32_t>* verdict;  // the CommEntry's, or a constant
    std::uint64_t collectives = 0;              // key number of the next
    PeerSequence* sends = nullptr;              // [size]
    PeerSequence* recvs = nullptr;              // [size]
    std::uint32_t index = kNone;                // in the segment's table; kNone: not there, never asks
    std::uint32_t rank = 0;
    std::uint32_t size = 0;
    std::uint32_t slow = 0;  // kSlow*: something is to be settled before its next launch

    ncclComm_t handle = nullptr;
    CommId id;
    CommId parent;
    std::uint32_t device = 0;
    std::uint32_t family = 0;
    std::uint32_t generation = 0;
    bool split_shares = false;   // config.splitShare, inherited by children made without a config
    bool shrink_shares = false;
    std::uint64_t splits = 0;    // ncclCommSplit calls on it so far
    DriverContext* context = nullptr;
    DeferredDone* deferred = nullptr;  // kSlowDeferred
    bool lost_once = false;

    // Scratch of the group that has it (group.cpp).
    std::uint64_t group = 0;
    std::uint32_t group_part = 0;

    ring::CommEntry* entry() const;
    // A launch of it went, or will go, unrecorded although others may wait for it.
    void count_lost();
};

inline constexpr std::uint32_t kSlowDeferred = 1;    // launches whose done waits for ncclInProgress to end
inline constexpr std::uint32_t kSlowIncomplete = 2;  // non-blocking split: rank and size not known yet

extern const std::atomic<std::uint32_t> kAlwaysIntra;
extern const std::atomic<std::uint32_t> kAlwaysPasses;

// The flat table from NCCL's pointer to ours.
class CommunicatorTable {
public:
    static constexpr std::uint32_t kBuckets = 1024;
    static constexpr std::uint32_t kMost = 768;

    Communicator* find(ncclComm_t comm) const {
        const auto key = reinterpret_cast<std::uintptr_t>(comm);
        for (std::uint32_t at = bucket(key);; at = (at + 1) & (kBuckets - 1)) {
            const std::uintptr_t found = buckets_[at].key.load(std::memory_order_acquire);
            if (found == key) return buckets_[at].value.load(std::memory_order_relaxed);
            if (found == 0) return nullptr;
        }
    }
    // Under the caller's lock. False: full.
    bool insert(ncclComm_t comm, Communicator* value);
    Communicator* remove(ncclComm_t comm);

private:
    static constexpr std::uintptr_t kRemoved = 1;
    static std::uint32_t bucket(std::uintptr_t key) {
        return std::uint32_t((std::uint64_t(key) * 0x9e3779b97f4a7c15ull) >> 54);
    }
    struct Bucket {
        std::atomic<std::uintptr_t> key{0};
        std::atomic<Communicator*> value{nullptr};
    };
    Bucket buckets_[kBuckets] = {};
    std::uint32_t used_ = 0;  // keys, removed ones included
};

extern CommunicatorTable communicators;

// What a creation knows before NCCL is asked.
struct Creation {
    ncclComm_t* out = nullptr;
    CommId id;
    CommId parent;
    std::uint32_t rank = kNone;  // kNone: the getters will say
    std::uint32_t size = kNone;
    std::uint32_t device = kNone;
    std::uint32_t family = 0;    // 0: its own
    bool split_shares = false;
    bool shrink_shares = false;
    std::uint32_t index = kNone; // its entry, where registered before the real call
    std::uint32_t generation = 0;
    DriverContext* context = nullptr;  // of the thread that asked
};

// Claims and publishes an entry where rank and size are known and more than one rank takes part.
void register_early(Creation& creation);
// After the real call: `result` of it. Makes the communicator known, or takes the registration back.
// Returns it where it wants a verdict before its first launch (await_verdict), else null.
Communicator* conclude(Creation& creation, ncclResult_t result);
// A non-blocking child whose rank and size were not known: asks NCCL again. True once they are.
bool complete(Communicator& c);

// Takes it out of the table: NCCL may give its pointer to another as soon as the real call frees it.
Communicator* forget(ncclComm_t comm);
// After the real call: its entry is free once the manager has seen it through.
void retire(Communicator* c);

// Waits, bounded by the hold time, until the manager has judged it. Returns its verdict, or `passes`.
Verdict await_verdict(Communicator& c);

std::uint64_t occurrence_of(const CommId& what);

}  // namespace opus::shim
