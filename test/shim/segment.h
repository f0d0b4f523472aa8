// A launch ring in a test program's own memory, which the shim of that program writes to.
#pragma once

#include <cstdlib>
#include <cstring>

#include "shim/process.h"
#include "shim/ring_writer.h"

namespace opus::shim {

class Segment {
public:
    explicit Segment(std::uint32_t slots) : memory_(aligned_alloc(4096, ring::Layout{slots}.bytes())) {
        memset(memory_, 0, ring::Layout{slots}.bytes());
        view.lie_on(ring::view_of(memory_, slots));
        process.view.lie_on(view);
        process.settings.OPUS_RING_WAIT_MS = 1;
        view.header->heartbeat = 1;
    }
    ~Segment() {
        process.view.lie_on({});
        free(memory_);
    }
    Segment(const Segment&) = delete;
    Segment& operator=(const Segment&) = delete;

    void occupy(std::uint32_t slot) { view.go[slot].occupied = 1; }
    // As its manager maps it.
    ring::View managers_view() const { return ring::view_of(memory_, view.mask + 1); }

    Ring view;

private:
    void* memory_;
};

}  // namespace opus::shim
