// Loops of ring pushes for callgrind, which collects inside measured() only.
// usage: bench_ring CALLS bare|push|nothing
#include <cstdlib>
#include <cstring>

#include "shim/process.h"
#include "shim/ring_writer.h"

using namespace opus;

namespace {

// The floor: one producer, one consumer, a 64-byte record copied and published; no claim, no time stamp.
struct BareRing {
    alignas(64) std::atomic<std::uint64_t> head{0};
    alignas(64) std::atomic<std::uint64_t> tail{0};
    struct alignas(64) Record {
        std::uint64_t words[8];
    };
    Record* records;
    std::uint64_t mask;
};

inline bool push(BareRing& ring, const BareRing::Record& record) {
    const std::uint64_t head = ring.head.load(std::memory_order_relaxed);
    if (head - ring.tail.load(std::memory_order_acquire) > ring.mask) return false;
    ring.records[head & ring.mask] = record;
    ring.head.store(head + 1, std::memory_order_release);
    return true;
}

BareRing bare;
shim::Ring view;

}  // namespace

__attribute__((noinline)) void push_bare(const BareRing::Record& record) { push(bare, record); }
__attribute__((noinline)) void push_launch(const ring::OpEntry& op) {
    shim::push(view, {ring::Gate::host, 1, 0}, 0x1000, op);
}
__attribute__((noinline)) void push_nothing(const ring::OpEntry& op) { __asm__ volatile("" ::"r"(&op) : "memory"); }

__attribute__((noinline)) void measured(int calls, int what) {
    BareRing::Record record{};
    ring::OpEntry op{};
    if (what == 0)
        for (int i = 0; i < calls; ++i) push_bare(record);
    else if (what == 1)
        for (int i = 0; i < calls; ++i) push_launch(op);
    else
        for (int i = 0; i < calls; ++i) push_nothing(op);
}

int main(int argc, char** argv) {
    if (argc != 3) return 1;
    void* memory = aligned_alloc(4096, ring::Layout{4096}.bytes());
    memset(memory, 0, ring::Layout{4096}.bytes());
    view.lie_on(ring::view_of(memory, 4096));
    shim::process.view.lie_on(view);
    view.limit = 4096;
    bare.records = static_cast<BareRing::Record*>(aligned_alloc(64, 4096 * 64));
    bare.mask = 4095;
    measured(atoi(argv[1]), strcmp(argv[2], "bare") == 0 ? 0 : strcmp(argv[2], "push") == 0 ? 1 : 2);
    free(bare.records);
    free(memory);
    return 0;
}
