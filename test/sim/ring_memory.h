// Segments of ranks: the very memory that shim and manager share, here in one process and used again from
// schedule to schedule.
#pragma once

#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "opus/launch_ring.h"

namespace opus::sim {

class RingMemory {
public:
    static constexpr std::uint32_t kMostSlots = 128;

    // Cleared, of so many slots. The pool keeps it; all are free again after reset().
    ring::View take(std::uint32_t slots) {
        if (used_ == pages_.size())
            pages_.emplace_back(static_cast<std::byte*>(::operator new (bytes(), std::align_val_t{4096})));
        std::byte* base = pages_[used_++].get();
        const ring::Layout at{slots};
        std::memset(base, 0, at.comms_offset() + 32 * sizeof(ring::CommEntry));  // no rank has more communicators
        std::memset(base + at.slots_offset(), 0, at.lit_offset() - at.slots_offset());
        return ring::view_of(base, slots);
    }
    void reset() { used_ = 0; }

private:
    static constexpr std::size_t bytes() { return ring::Layout{kMostSlots}.bytes(); }
    struct Release {
        void operator()(std::byte* p) const { ::operator delete (p, std::align_val_t{4096}); }
    };
    struct Page : std::unique_ptr<std::byte, Release> {
        explicit Page(std::byte* p) : unique_ptr(p) { std::memset(p, 0, bytes()); }
    };
    std::vector<Page> pages_;
    std::size_t used_ = 0;
};

}  // namespace opus::sim
