// Writing launches into the ring. Safe for several threads; no lock, no allocation, no system call
// but while the ring is full.
#pragma once

#include <atomic>
#include <cstdint>

#include "opus/launch_ring.h"

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace opus::shim {

inline constexpr std::uint64_t kFull = ~std::uint64_t{0};

inline std::uint64_t time_stamp() {
#if defined(__x86_64__)
    return __rdtsc();
#elif defined(__aarch64__)
    std::uint64_t t;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(t));
    return t;
#else
    return 0;
#endif
}

// Waits, at most OPUS_RING_WAIT_MS, for `slots` free ones. False: still full.
bool await_space(const ring::View& view, std::uint64_t slots);

// The sequence of the first of `slots` free slots, now the caller's; kFull after a bounded wait.
inline std::uint64_t claim(const ring::View& view, std::uint64_t slots) {
    std::atomic<std::uint64_t>& head = view.header->head;
    std::uint64_t seq = head.load(std::memory_order_relaxed);
    for (;;) {
        if (seq + slots > view.header->retired.load(std::memory_order_acquire) + view.mask + 1) [[unlikely]] {
            if (!await_space(view, slots)) return kFull;
            seq = head.load(std::memory_order_relaxed);
            continue;
        }
        if (head.compare_exchange_weak(seq, seq + slots, std::memory_order_acq_rel, std::memory_order_relaxed))
            return seq;
    }
}

// gate and flags of a record, as one word of it.
struct LaunchHead {
    ring::Gate gate;
    std::uint16_t op_count;
    std::uint16_t flags;
    std::uint16_t reserved;
};
static_assert(sizeof(LaunchHead) == 8);

// Publishes what was written into `seq`. Sequentially consistent: the doorbell is looked at next, and a
// manager that falls asleep in between must see either the record or be seen asleep.
inline void commit(ring::LaunchRecord& record, std::uint64_t seq) {
    record.commit.store(ring::kCommitTag | ((seq + 1) & ring::kSeqMask), std::memory_order_seq_cst);
}

inline void fill(ring::LaunchRecord& record, LaunchHead head, std::uint64_t stream, const ring::OpEntry& op) {
    record.ticks = time_stamp();
    record.gate = static_cast<std::uint16_t>(head.gate);
    record.op_count = head.op_count;
    record.flags = head.flags;
    record.reserved = 0;
    record.stream = stream;
    record.op = op;
}

// A launch of one operation.
inline std::uint64_t push(const ring::View& view, LaunchHead head, std::uint64_t stream, const ring::OpEntry& op) {
    const std::uint64_t seq = claim(view, 1);
    if (seq == kFull) [[unlikely]] return kFull;
    ring::LaunchRecord& record = view.record(seq);
    fill(record, head, stream, op);
    commit(record, seq);
    return seq;
}

// A launch of head.op_count operations, at most kMaxOps and at most half the ring.
std::uint64_t push(const ring::View& view, LaunchHead head, std::uint64_t stream, const ring::OpEntry* ops);

// Whether a launch of so many operations can be recorded at all.
bool recordable(const ring::View& view, std::uint32_t ops);

}  // namespace opus::shim
