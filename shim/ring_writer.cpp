#include "shim/ring_writer.h"

#include <ctime>

#include "shim/message.h"
#include "shim/process.h"

namespace opus::shim {

namespace {

void raise(std::atomic<std::uint64_t>& word, std::uint64_t value) {
    std::uint64_t known = word.load(std::memory_order_relaxed);
    while (known < value && !word.compare_exchange_weak(known, value, std::memory_order_acq_rel)) {}
}

bool is_occupied(const Ring& ring, std::uint64_t seq) {
    return ring.go[seq & ring.mask].occupied.load(std::memory_order_acquire) != 0;
}

// The first of `slots` free sequences in a row, from `seq` on and below `end`; kFull: there are none.
std::uint64_t find_free(const Ring& ring, std::uint64_t seq, std::uint64_t slots, std::uint64_t end) {
    std::uint64_t free = 0;
    for (; seq < end; ++seq) {
        free = is_occupied(ring, seq) ? 0 : free + 1;
        if (free == slots) return seq + 1 - slots;
    }
    return kFull;
}

// Moves the head to the next `slots` free ones in a row, if it does not stand there. False: there are none. The limit
// never lies beyond an occupied slot that the head has not passed: a slot that is free below `end` stays so until it is
// claimed.
bool pass_occupied(Ring& ring, std::uint64_t slots, std::uint64_t end) {
    std::uint64_t seq = ring.head->load(std::memory_order_acquire);
    const std::uint64_t free = find_free(ring, seq, slots, end);
    if (free == kFull) return false;
    if (free > seq) {
        if (!ring.head->compare_exchange_strong(seq, free, std::memory_order_acq_rel)) return true;  // look again
        for (; seq < free; ++seq) ring.ready[seq & ring.mask].skipped.store(seq + 1, std::memory_order_seq_cst);
        ring_doorbell();
    }
    std::uint64_t limit = free + slots;
    while (limit < end && !is_occupied(ring, limit)) ++limit;
    raise(ring.limit, limit);
    return true;
}

bool make_room(Ring& ring, std::uint64_t slots) {
    const std::uint64_t retired = ring.header->retired.load(std::memory_order_acquire);
    const std::uint64_t reusable = ring.header->reusable.load(std::memory_order_acquire);
    if (reusable > retired) return pass_occupied(ring, slots, reusable + ring.mask + 1);
    raise(ring.limit, retired + ring.mask + 1);
    return ring.head->load(std::memory_order_relaxed) + slots <= retired + ring.mask + 1;
}

bool may_wait(const Ring& ring) {
    const std::uint64_t beat = ring.header->heartbeat.load(std::memory_order_relaxed);
    return process.mode != Mode::observe && beat != ring.full_beat.load(std::memory_order_relaxed) &&
           beat != ring.header->dead_beat.load(std::memory_order_relaxed);
}

// Until there is room. False: in vain.
bool wait_for_room(Ring& ring, std::uint64_t slots) {
    const std::uint64_t beat = ring.header->heartbeat.load(std::memory_order_relaxed);
    const std::uint64_t deadline = monotonic_ns() + process.settings.OPUS_RING_WAIT_MS * 1'000'000;
    while (!make_room(ring, slots)) {
        if (ring.header->open.load(std::memory_order_relaxed) != 0) return false;
        if (monotonic_ns() >= deadline) {
            if (beat == ring.header->heartbeat.load(std::memory_order_relaxed))
                ring.full_beat.store(beat, std::memory_order_relaxed);
            return false;
        }
        const timespec pause{0, 50'000};
        nanosleep(&pause, nullptr);
    }
    return true;
}

}  // namespace

bool await_space(Ring& ring, std::uint64_t slots) {
    if (make_room(ring, slots)) return true;
    ring_doorbell();
    if (may_wait(ring) && wait_for_room(ring, slots)) return true;
    say_once(Level::warn, "the launch ring of %u slots is full: launches pass unrecorded (raise OPUS_RING_SLOTS)",
             ring.mask + 1);
    return false;
}

void await_room(Ring& ring, std::uint64_t slots) {
    if (slots > (ring.mask + 1) / 2) slots = (ring.mask + 1) / 2;
    if (ring.head->load(std::memory_order_relaxed) + slots <= ring.limit.load(std::memory_order_acquire) || make_room(ring, slots)) return;
    ring_doorbell();
    if (may_wait(ring)) wait_for_room(ring, slots);
}

bool recordable(const Ring& ring, std::uint32_t ops) {
    if (ops > ring::kMaxOpsBefore4 && (ops > ring::kMaxOps || !serves_minor(4))) return false;
    return ring::slots_for(ops) <= (ring.mask + 1) / 2;
}

std::uint64_t push_slowly(Ring& ring, LaunchHead head, std::uint64_t stream, const ring::OpEntry& op) {
    return push(ring, head, stream, &op);
}

std::uint64_t push(Ring& ring, LaunchHead head, std::uint64_t stream, const ring::OpEntry* ops) {
    const std::uint64_t seq = claim(ring, ring::slots_for(head.op_count()));
    if (seq == kFull) return kFull;
    for (std::uint32_t i = 1; i < head.op_count(); ++i) ring.extension(seq + 1 + (i - 1) / 2).op[(i - 1) % 2] = ops[i];
    if ((head.flags() & ring::kLaunchReplayed) != 0) {  // the counts of what was captured before into this slot
        ring.ready[seq & ring.mask].replays.store(0, std::memory_order_relaxed);
        ring.done[seq & ring.mask].replays.store(0, std::memory_order_relaxed);
    }
    ring::LaunchRecord& record = ring.record(seq);
    fill(record, head, stream, ops[0]);
    commit(record, seq);
    return seq;
}

}  // namespace opus::shim
