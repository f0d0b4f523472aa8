// Writing launches into the ring. Safe for several threads; no lock, no allocation, no system call
// but while the ring is full.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "opus/launch_ring.h"
#include "shim/process.h"

namespace opus::shim {

inline constexpr std::uint64_t kFull = ~std::uint64_t{0};

// Looks which slots are free, and waits until so many in a row are: at most OPUS_RING_WAIT_MS, never where nothing is
// held (observe mode), nor again while the manager gives no sign of life. False: full.
bool await_space(Ring& ring, std::uint64_t slots);

// As await_space, for launches that are to be recorded one behind the other, at most half the ring. Takes no slot, and says nothing.
void await_room(Ring& ring, std::uint64_t slots);

// The sequence of the first of `slots` free slots, now the caller's; kFull after a bounded wait.
inline std::uint64_t claim(Ring& ring, std::uint64_t slots) {
    std::atomic<std::uint64_t>& head = *ring.head;
    std::uint64_t seq = head.load(std::memory_order_relaxed);
    for (;;) {
        if (seq + slots > ring.limit.load(std::memory_order_acquire)) [[unlikely]] {
            if (!await_space(ring, slots)) return kFull;
            seq = head.load(std::memory_order_relaxed);
        } else if (head.compare_exchange_weak(seq, seq + slots, std::memory_order_acq_rel, std::memory_order_relaxed)) {
            return seq;
        }
    }
}

// One slot. False where that takes more than a glance: then claim().
inline bool claim_at_once(Ring& ring, std::uint64_t& seq) {
    std::atomic<std::uint64_t>& head = *ring.head;
    seq = head.load(std::memory_order_relaxed);
    return seq < ring.limit.load(std::memory_order_acquire) &&
           head.compare_exchange_strong(seq, seq + 1, std::memory_order_acq_rel, std::memory_order_relaxed);
}

// gate, op_count, flags and reserved of a record, as the one word that they lie in.
class LaunchHead {
public:
    constexpr LaunchHead(ring::Gate gate, std::uint32_t op_count, std::uint16_t flags)
        : word_(std::uint64_t(gate) | std::uint64_t(op_count) << 16 | std::uint64_t(flags) << 32) {}
    std::uint32_t op_count() const { return std::uint32_t(word_ >> 16) & 0xffff; }
    constexpr explicit LaunchHead(std::uint64_t word) : word_(word) {}
    std::uint16_t flags() const { return std::uint16_t(word_ >> 32); }
    std::uint64_t word() const { return word_; }
    void store(ring::LaunchRecord& record) const { memcpy(&record.gate, &word_, sizeof word_); }

private:
    std::uint64_t word_;
};
static_assert(offsetof(ring::LaunchRecord, op_count) == offsetof(ring::LaunchRecord, gate) + 2 &&
              offsetof(ring::LaunchRecord, flags) == offsetof(ring::LaunchRecord, gate) + 4 &&
              offsetof(ring::LaunchRecord, stream) == offsetof(ring::LaunchRecord, gate) + 8);

// Publishes what was written into `seq` (never near kSeqMask: 2^48 launches). Sequentially consistent: the doorbell is
// looked at next, and a manager that falls asleep in between must see either the record or be seen asleep.
inline void commit(ring::LaunchRecord& record, std::uint64_t seq) {
    record.commit.store(ring::kCommitTag + 1 + seq, std::memory_order_seq_cst);
}

inline void fill(ring::LaunchRecord& record, LaunchHead head, std::uint64_t stream, const ring::OpEntry& op) {
    record.ticks = 0;  // reading the counter would cost as much as the rest of a push
    head.store(record);
    record.stream = stream;
    record.op = op;
}

// A launch of one operation, when another thread was faster or the ring may be full.
std::uint64_t push_slowly(Ring& ring, LaunchHead head, std::uint64_t stream, const ring::OpEntry& op);

// A launch of one operation, not captured: the way of nearly all. kFull: it could not be.
inline std::uint64_t push(Ring& ring, LaunchHead head, std::uint64_t stream, const ring::OpEntry& op) {
    std::uint64_t seq = 0;
    if (!claim_at_once(ring, seq)) [[unlikely]]
        return push_slowly(ring, head, stream, op);
    ring::LaunchRecord& record = ring.record(seq);
    fill(record, head, stream, op);
    commit(record, seq);
    return seq;
}

// A launch of head.op_count() operations, at most kMaxOps and at most half the ring.
std::uint64_t push(Ring& ring, LaunchHead head, std::uint64_t stream, const ring::OpEntry* ops);

// Whether a launch of so many operations can be recorded at all.
bool recordable(const Ring& ring, std::uint32_t ops);

}  // namespace opus::shim
