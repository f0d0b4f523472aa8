#include "shim/ring_writer.h"

#include <ctime>

#include "shim/message.h"
#include "shim/process.h"

namespace opus::shim {

bool await_space(Ring& ring, std::uint64_t slots) {
    const auto room = [&] {
        const std::uint64_t limit = ring.header->retired.load(std::memory_order_acquire) + ring.mask + 1;
        std::uint64_t known = ring.limit.load(std::memory_order_relaxed);
        while (known < limit && !ring.limit.compare_exchange_weak(known, limit, std::memory_order_acq_rel)) {}
        return ring.head->load(std::memory_order_relaxed) + slots <= limit;
    };
    if (room()) return true;
    const std::uint64_t deadline = monotonic_ns() + process.settings.OPUS_RING_WAIT_MS * 1'000'000;
    ring_doorbell();
    while (!room()) {
        if (monotonic_ns() >= deadline || ring.header->open.load(std::memory_order_relaxed) != 0) {
            say_once(Level::warn,
                     "the launch ring of %u slots is full: launches pass unrecorded (raise OPUS_RING_SLOTS)", ring.mask + 1);
            return false;
        }
        const timespec pause{0, 50'000};
        nanosleep(&pause, nullptr);
    }
    return true;
}

bool recordable(const Ring& ring, std::uint32_t ops) {
    return ops <= ring::kMaxOps && ring::slots_for(ops) <= (ring.mask + 1) / 2;
}

std::uint64_t push_slowly(Ring& ring, LaunchHead head, std::uint64_t stream, const ring::OpEntry& op) {
    return push(ring, head, stream, &op);
}

std::uint64_t push(Ring& ring, LaunchHead head, std::uint64_t stream, const ring::OpEntry* ops) {
    const std::uint64_t seq = claim(ring, ring::slots_for(head.op_count()));
    if (seq == kFull) return kFull;
    for (std::uint32_t i = 1; i < head.op_count(); ++i) ring.extension(seq + 1 + (i - 1) / 2).op[(i - 1) % 2] = ops[i];
    ring::LaunchRecord& record = ring.record(seq);
    fill(record, head, stream, ops[0]);
    commit(record, seq);
    return seq;
}

}  // namespace opus::shim
