#include "shim/host_gate.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <ctime>

#include "shim/message.h"
#include "shim/process.h"
#include "shim/thread_state.h"

namespace opus::shim {

namespace {

enum class Look { closed, open, fail, ended };

struct Waits {
    std::atomic<std::uint32_t> threads{0};
    std::atomic<std::uint64_t> seq{kFull};  // the launch of the last of them
};
constinit Waits waits[ring::kMaxComms];

constexpr std::uint64_t kLeaveNs = 1'000'000'000;

void pause_for(long ns) {
    const timespec pause{0, ns};
    nanosleep(&pause, nullptr);
}

void relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

Look look_at_go(std::uint64_t word, std::uint64_t value) {
    if ((word & ~ring::kGoAbort) < value) return Look::closed;
    return (word & ring::kGoAbort) != 0 ? Look::fail : Look::open;
}

// How far the application has gone in ending one of the communicators.
ring::CommOpen most_open(const ring::OpEntry* ops, std::uint32_t count) {
    std::uint32_t most = 0;
    for (std::uint32_t i = 0; i < count; ++i)
        if (const std::uint32_t open = process.view.comms[ops[i].comm].open.load(std::memory_order_seq_cst); open > most)
            most = open;
    return static_cast<ring::CommOpen>(most);
}

Look look_at_open(const ring::OpEntry* ops, std::uint32_t count) {
    const auto open = static_cast<ring::Open>(process.view.header->open.load(std::memory_order_acquire));
    if (open != ring::Open::closed) return open == ring::Open::abort ? Look::fail : Look::open;
    return most_open(ops, count) != ring::CommOpen::closed ? Look::ended : Look::closed;
}

// Watches the manager's heartbeat from the moment the wait begins.
class Hold {
public:
    Look look(std::uint64_t now) {
        ring::SegmentHeader& header = *process.view.header;
        const std::uint64_t beat = header.heartbeat.load(std::memory_order_relaxed);
        if (beat != beat_) {
            beat_ = beat;
            since_ = now;
        }
        const bool known_dead = beat == header.dead_beat.load(std::memory_order_relaxed);
        if (!known_dead && now - since_ < process.hold_ns) return Look::closed;
        header.dead_beat.store(beat, std::memory_order_relaxed);
        header.gave_up.fetch_add(1, std::memory_order_relaxed);
        return process.policy == Policy::abort ? Look::fail : Look::open;
    }

private:
    std::uint64_t beat_ = process.view.header->heartbeat.load(std::memory_order_relaxed);
    std::uint64_t since_ = monotonic_ns();
};

bool spin(const std::atomic<std::uint64_t>& go, std::uint64_t value) {
    const std::uint64_t until = monotonic_ns() + process.settings.OPUS_SPIN_US * 1000;
    do {
        for (int i = 0; i < 64; ++i) {
            if (look_at_go(go.load(std::memory_order_acquire), value) != Look::closed) return true;
            relax();
        }
    } while (monotonic_ns() < until);
    return false;
}

Look sleep_until_open(std::uint64_t seq, const ring::OpEntry* ops, std::uint32_t count) {
    const std::uint64_t slot = seq & process.view.mask;
    std::atomic<std::uint64_t>& go = process.view.go[slot].value;
    std::atomic<std::uint32_t>& waiter = process.view.ready[slot].waiter;
    Hold hold;
    Look seen = Look::closed;
    waiter.store(1, std::memory_order_seq_cst);
    for (;;) {
        const std::uint64_t word = go.load(std::memory_order_seq_cst);
        if ((seen = look_at_go(word, seq + 1)) != Look::closed) break;
        if ((seen = look_at_open(ops, count)) != Look::closed) break;
        if ((seen = hold.look(monotonic_ns())) != Look::closed) break;
        // The low half of the word, which alone changes from launch to launch, and the abort bit with it.
        const timespec slice{0, 20'000'000};
        syscall(SYS_futex, &go, FUTEX_WAIT, std::uint32_t(word), &slice, nullptr, 0);
    }
    waiter.store(0, std::memory_order_relaxed);
    return seen;
}

// What was revoked before goes on to NCCL, which knows what to say.
Look wait_for_go(std::uint64_t seq, const ring::OpEntry* ops, std::uint32_t count) {
    if (most_open(ops, count) == ring::CommOpen::revoked) return Look::open;
    const std::atomic<std::uint64_t>& go = process.view.go[seq & process.view.mask].value;
    Look seen = spin(go, seq + 1) ? look_at_go(go.load(std::memory_order_acquire), seq + 1) : Look::closed;
    if (seen == Look::closed) seen = sleep_until_open(seq, ops, count);
    return most_open(ops, count) == ring::CommOpen::aborted ? Look::ended : seen;
}

bool refuse(Look why) {
    thread_words.refusal = why == Look::ended ? ncclInvalidUsage : ncclSystemError;
    if (why == Look::fail)
        say_once(Level::error,
                 "a launch cannot have its circuits and OPUS_POLICY is abort: the call fails with ncclSystemError "
                 "(opus-ctl why tells more)");
    return false;
}

}  // namespace

void begin_wait(std::uint32_t comm, std::uint64_t seq) {
    waits[comm].seq.store(seq, std::memory_order_relaxed);
    waits[comm].threads.fetch_add(1, std::memory_order_seq_cst);
}

void end_wait(std::uint32_t comm) { waits[comm].threads.fetch_sub(1, std::memory_order_seq_cst); }

bool is_aborted(const Communicator& c) {
    return c.index != kNone && c.entry()->open.load(std::memory_order_seq_cst) == std::uint32_t(ring::CommOpen::aborted);
}

void let_waiting_leave(const Communicator& c) {
    const std::uint64_t until = monotonic_ns() + kLeaveNs;
    while (waits[c.index].threads.load(std::memory_order_seq_cst) != 0 && monotonic_ns() < until) pause_for(200'000);
}

void await_waiting(Communicator& c) {
    if (c.index == kNone || waits[c.index].threads.load(std::memory_order_seq_cst) == 0) return;
    while (waits[c.index].threads.load(std::memory_order_seq_cst) != 0) pause_for(1'000'000);
    const std::uint64_t seq = waits[c.index].seq.load(std::memory_order_relaxed);
    if (seq == kFull) return;
    const std::atomic<std::uint64_t>& done = process.view.done[seq & process.view.mask].value;
    for (const std::uint64_t until = monotonic_ns() + kLeaveNs; monotonic_ns() < until; pause_for(200'000)) {
        const LockGuard guard(c.settling);
        if (done.load(std::memory_order_acquire) > seq || c.deferred != nullptr) return;
    }
}

bool pass_host_gate(std::uint64_t seq, const ring::OpEntry* ops, std::uint32_t count) {
    store_ready(seq);
    process.view.header->gated.fetch_add(1, std::memory_order_relaxed);
    return await_go(seq, ops, count);
}

bool await_go(std::uint64_t seq, const ring::OpEntry* ops, std::uint32_t count) {
    const std::atomic<std::uint64_t>& go = process.view.go[seq & process.view.mask].value;
    Look seen = look_at_go(go.load(std::memory_order_acquire), seq + 1);
    if (seen == Look::open) return true;
    for (std::uint32_t i = 0; i < count; ++i) begin_wait(ops[i].comm, seq);
    if (seen == Look::closed) seen = wait_for_go(seq, ops, count);
    if (seen != Look::open) return refuse(seen);
    end_wait(ops, count);
    return true;
}

}  // namespace opus::shim
