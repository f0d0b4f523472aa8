#include "shim/ring_writer.h"

#include <ctime>

#include "shim/message.h"
#include "shim/process.h"

namespace opus::shim {

bool await_space(const ring::View& view, std::uint64_t slots) {
    const std::uint64_t deadline = monotonic_ns() + process.settings.OPUS_RING_WAIT_MS * 1'000'000;
    const auto room = [&] {
        return view.header->head.load(std::memory_order_relaxed) + slots <=
               view.header->retired.load(std::memory_order_acquire) + view.mask + 1;
    };
    ring_doorbell();
    while (!room()) {
        if (monotonic_ns() >= deadline || view.header->open.load(std::memory_order_relaxed) != 0) {
            say_once(Level::warn, "the launch ring of %u slots is full: launches pass unrecorded (raise OPUS_RING_SLOTS)",
                     view.mask + 1);
            return false;
        }
        const timespec pause{0, 50'000};
        nanosleep(&pause, nullptr);
    }
    return true;
}

bool recordable(const ring::View& view, std::uint32_t ops) {
    return ops <= ring::kMaxOps && ring::slots_for(ops) <= (view.mask + 1) / 2;
}

std::uint64_t push(const ring::View& view, LaunchHead head, std::uint64_t stream, const ring::OpEntry* ops) {
    const std::uint64_t seq = claim(view, ring::slots_for(head.op_count));
    if (seq == kFull) return kFull;
    for (std::uint32_t i = 1; i < head.op_count; ++i)
        view.extension(seq + 1 + (i - 1) / 2).op[(i - 1) % 2] = ops[i];
    ring::LaunchRecord& record = view.record(seq);
    fill(record, head, stream, ops[0]);
    commit(record, seq);
    return seq;
}

}  // namespace opus::shim
