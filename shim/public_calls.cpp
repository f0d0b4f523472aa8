// opus_version, opus_state, opus_stats (opus/opus.h).
#include <cstddef>
#include <cstring>

#include "opus/opus.h"
#include "shim/process.h"

#define OPUS_PUBLIC __attribute__((visibility("default")))
#define OPUS_TEXT_(x) #x
#define OPUS_TEXT(x) OPUS_TEXT_(x)

using opus::shim::process;

extern "C" {

OPUS_PUBLIC const char* opus_version(void) {
    return OPUS_TEXT(OPUS_VERSION_MAJOR) "." OPUS_TEXT(OPUS_VERSION_MINOR) "." OPUS_TEXT(OPUS_VERSION_PATCH);
}

OPUS_PUBLIC opus_state_t opus_state(void) { return process.state(); }

OPUS_PUBLIC int opus_stats(opus_stats_t* stats) {
    if (stats == nullptr || stats->struct_bytes < offsetof(opus_stats_t, recorded) + sizeof stats->recorded) return -1;
    opus_stats_t now{};
    now.struct_bytes = stats->struct_bytes;
    if (process.attached.load(std::memory_order_acquire)) {
        const auto& header = *process.view.header;
        now.recorded = header.recorded.load(std::memory_order_relaxed);
        now.gated = header.gated.load(std::memory_order_relaxed);
        now.passed = header.passed.load(std::memory_order_relaxed);
        now.lost = header.lost.load(std::memory_order_relaxed);
        now.gave_up = header.gave_up.load(std::memory_order_relaxed);
    }
    // A caller of an older header has a shorter struct.
    memcpy(stats, &now, stats->struct_bytes < sizeof now ? std::size_t(stats->struct_bytes) : sizeof now);
    return 0;
}

}  // extern "C"
