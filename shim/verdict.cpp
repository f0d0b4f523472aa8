// What becomes of a communicator's launches, as far as this process has to do with it: it waits for the verdict, and tells
// its user of one that is not to his liking.
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cstdio>
#include <ctime>

#include "shim/communicator.h"
#include "shim/hooks.h"
#include "shim/message.h"
#include "shim/process.h"
#include "shim/thread_state.h"

namespace opus::shim {

using std::memory_order_acquire;
using std::memory_order_relaxed;

namespace {

bool is_held(std::uint32_t verdict) {
    return verdict == std::uint32_t(Verdict::enforced) || verdict == std::uint32_t(Verdict::intra);
}

// Why, in words. The manager's log has more.
struct Unheld {
    explicit Unheld(const Communicator& c) {
        const ring::CommEntry* entry = c.entry();
        std::uint32_t rank = kNone;
        if (c.verdict == &kAlwaysPasses) {
            reason = Reason::unjudged;
        } else {
            reason = static_cast<Reason>(entry->reason.load(memory_order_relaxed));
            rank = entry->reason_rank.load(memory_order_relaxed);
        }
        char who[24] = "a member";
        if (rank != kNone) snprintf(who, sizeof who, "rank %u", rank);
        write(who, entry == nullptr);
    }

    Reason reason;
    char text[160];

private:
    void write(const char* who, bool full) {
        const char* what = "says why";
        switch (reason) {
            case Reason::missing:
                what = "did not register; load libopus_shim.so there, and start opus-manager on its node";
                break;
            case Reason::mode: what = "does not run with OPUS_MODE=enforce"; break;
            case Reason::gpu: what = "runs on a GPU that the fabric file does not have"; break;
            case Reason::claimed:
                what =
                    "claims a GPU that another rank has; name the GPUs in the fabric file (pci, uuid), or set OPUS_GPU";
                break;
            case Reason::connects:
                what = "has an NCCL that connects it while it is made (2.22.3 or newer with cuMem does so later)";
                break;
            case Reason::left: what = "left, or failed, before all had come"; break;
            case Reason::died: what = "ended"; break;
            case Reason::unrecorded: what = "let launches pass unrecorded (OPUS_RING_SLOTS, opus-manager)"; break;
            case Reason::size:
                who = "its members";
                what = "do not agree about its size";
                break;
            case Reason::passed:
                who = "a launch";
                what = "was let pass without circuits; the manager's log says why";
                break;
            case Reason::unjudged:
                who = full ? "this rank" : "its members";
                what = full ? "has too many communicators at once"
                            : "were not all known within OPUS_HOLD_MS; is there a controller?";
                break;
            default: who = "opus-ctl groups"; break;
        }
        snprintf(text, sizeof text, "%s %s", who, what);
    }
};

// Others may come to wait for our launches: the manager has to know that they will not be asked for.
void give_up_verdict(Communicator& c) {
    c.count_lost();
    c.verdict = &kAlwaysPasses;
}

}  // namespace

Verdict await_verdict(Communicator& c) {
    ring::SegmentHeader& header = *process.view.header;
    const std::uint64_t start = monotonic_ns();
    std::uint64_t beat = header.heartbeat.load(memory_order_relaxed);
    std::uint64_t beat_seen = start;
    for (;;) {
        const std::uint32_t word = c.verdict->load(memory_order_acquire);
        if (word != std::uint32_t(Verdict::unknown)) return static_cast<Verdict>(word);
        if (header.open.load(memory_order_relaxed) != 0 || c.entry()->open.load(memory_order_relaxed) != 0) break;
        const std::uint64_t now = monotonic_ns();
        const std::uint64_t new_beat = header.heartbeat.load(memory_order_relaxed);
        if (new_beat != beat) {
            beat = new_beat;
            beat_seen = now;
        }
        if (beat == header.dead_beat.load(memory_order_relaxed)) break;
        if (now - beat_seen > process.hold_ns || now - start > process.hold_ns) {
            if (now - beat_seen > process.hold_ns) header.dead_beat.store(beat, memory_order_relaxed);
            break;
        }
        const timespec slice{0, 20'000'000};
        syscall(SYS_futex, c.verdict, FUTEX_WAIT, word, &slice, nullptr, 0);
    }
    give_up_verdict(c);
    return Verdict::passes;
}

void tell_unheld(Communicator& c) {
    if (c.told_unheld || c.index == kNone) return;
    c.told_unheld = true;
    const Unheld why(c);
    if (why.reason == Reason::observe) return;  // its operator knows
    if (why.reason == Reason::connects && (c.entry()->ways & ring::kWaysAtOnce) != 0) return;  // it has said so (nccl_settings.h)
    say(Level::warn, "rank %u of a communicator of %u runs without Opus, its launches are not held for circuits: %s", c.rank,
        c.size, why.text);
}

ncclResult_t admit_created(Communicator& c, ncclComm_t* out) {
    if (c.index != kNone) await_verdict(c);
    if (is_held(c.verdict->load(memory_order_acquire))) return ncclSuccess;
    if (process.require != Require::enforcement) {
        tell_unheld(c);
        return ncclSuccess;
    }
    refuse(c, out);
    return ncclSystemError;
}

void refuse(Communicator& c, ncclComm_t* out) {
    if (!c.told_unheld)
        say(Level::error, "a communicator of %u is refused to rank %u (OPUS_REQUIRE=enforce): %s", c.size, c.rank,
            Unheld(c).text);
    const ncclComm_t handle = c.handle;
    forget(handle);
    {
        const Inside inside;
        real.ncclCommAbort(handle);
    }
    retire(&c);
    if (out != nullptr) *out = nullptr;
}

ncclResult_t required_state(Communicator& c) {
    const std::uint32_t word = c.verdict->load(memory_order_acquire);
    if (is_held(word)) {
        c.settled(kSlowRequired);
        return ncclSuccess;
    }
    if (word == std::uint32_t(Verdict::unknown)) {
        if (monotonic_ns() - c.made_ns <= process.hold_ns) return ncclInProgress;
        give_up_verdict(c);
    }
    if (!c.told_unheld) {
        c.told_unheld = true;
        say(Level::error, "a communicator of %u is refused to rank %u (OPUS_REQUIRE=enforce): %s", c.size, c.rank,
            Unheld(c).text);
    }
    return ncclSystemError;
}

}  // namespace opus::shim
