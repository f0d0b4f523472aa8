#include "shim/launch.h"

#include <sys/syscall.h>
#include <unistd.h>
#include <cstdlib>

#include "shim/captured.h"
#include "shim/hooks.h"
#include "shim/host_gate.h"
#include "shim/message.h"
#include "shim/stream_gate.h"
#include "shim/thread_state.h"

namespace opus::shim {

struct DeferredDone {
    DeferredDone* next;
    std::uint64_t seq;
    std::uint32_t count;
    bool ends_as_one;  // what comes next on its communicator waits for all of it (follow, precede of captured.h)
    LaunchStream* streams() { return reinterpret_cast<LaunchStream*>(this + 1); }  // [count], behind it
};

namespace {

// A launch whose kernels stand on several streams is done when the last of them is; one for each slot.
struct Countdown {
    std::atomic<std::uint32_t> left;
    std::uint64_t seq;
};

Countdown* countdown_of(std::uint64_t seq) {
    static Lock lock;
    static Countdown* all = nullptr;
    const LockGuard guard(lock);
    if (all == nullptr) all = static_cast<Countdown*>(calloc(process.view.mask + 1, sizeof(Countdown)));
    return all == nullptr ? nullptr : all + (seq & process.view.mask);
}

void count_down(void* object) {
    auto* countdown = static_cast<Countdown*>(object);
    const std::uint64_t seq = countdown->seq;
    if (countdown->left.fetch_sub(1, std::memory_order_acq_rel) == 1) store_done(seq);
}

bool enqueue_function(const LaunchStream& on, Countdown* countdown) {
    const InContext current(*on.context);
    if (driver.cuLaunchHostFunc != nullptr)
        return driver.cuLaunchHostFunc(on.stream, &count_down, countdown) == CUDA_SUCCESS;
    return driver.cudaLaunchHostFunc != nullptr && driver.cudaLaunchHostFunc(on.stream, &count_down, countdown) == cudaSuccess;
}

}  // namespace

bool records_slowly(Communicator& c) {
    Verdict verdict = static_cast<Verdict>(c.verdict->load(std::memory_order_acquire));
    if (process.mode == Mode::observe && c.index != kNone && verdict != Verdict::intra) return true;
    thread_words.refusal = ncclSuccess;
    if (verdict == Verdict::unknown) {
        begin_wait(c.index);
        verdict = await_verdict(c);
        if (is_aborted(c)) {
            thread_words.refusal = ncclInvalidUsage;
            return false;
        }
        end_wait(c.index);
    }
    if (verdict == Verdict::enforced) return true;
    if (!c.told_unheld && verdict != Verdict::intra && process.mode == Mode::enforce) tell_unheld(c);
    process.view.header->passed.fetch_add(1, std::memory_order_relaxed);
    return false;
}

namespace {

// NCCL is asked under the lock: an answer from before it may be older than a launch that was deferred meanwhile.
ncclResult_t settle_locked(Communicator& c, ncclResult_t heard) {
    if (c.left || c.is_settled()) return heard;
    ncclResult_t result = ncclSuccess;
    {
        const Inside inside;
        if (real.ncclCommGetAsyncError(c.handle, &result) != ncclSuccess) return heard;
    }
    if ((c.slow & kSlowCreating) != 0) created(c, result);
    if ((c.slow & kSlowDeferred) != 0) settle_deferred(c, result);
    if ((c.slow & kSlowChildren) != 0) result = settle_children(c, result);
    if ((c.slow & kSlowRequired) != 0 && result == ncclSuccess) result = required_state(c);
    return result;
}

}  // namespace

ncclResult_t settle_slow(Communicator& c, ncclResult_t heard) {
    const LockGuard guard(c.settling);
    return settle_locked(c, heard);
}

void settle_slow(Communicator& c) {
    if (!c.is_settled()) settle_slow(c, ncclSuccess);
}

void settle_for_good(Communicator& c, ncclResult_t result) {
    const LockGuard guard(c.settling);
    if (result == ncclSuccess)
        settle_locked(c, result);
    else if (c.deferred != nullptr)
        settle_deferred(c, result);
    c.left = true;
}

// The default streams: one for each device, or (2) for each device and thread.
std::uint64_t default_stream_name(const Communicator& c, std::uintptr_t stream) {
    if (stream == 2 && thread_words.number == 0) thread_words.number = std::uint32_t(syscall(SYS_gettid));
    const std::uint64_t thread = stream == 2 ? thread_words.number : 0;
    return (std::uint64_t(c.device + 1) << 48) | (thread << 4) | (stream == 1 ? 0 : stream);
}

std::uint64_t hold_connections(const ring::OpEntry* ops, std::uint32_t count, std::uint64_t behind, std::uint16_t flags, bool& fail) {
    fail = false;
    if (!recordable(process.view, count)) return kFull;
    await_room(process.view, ring::slots_for(count) + behind);
    const LaunchHead head{ring::Gate::host, count, std::uint16_t(ring::kLaunchConn | ring::kLaunchHostDone | ring::kLaunchSkips | flags)};
    const std::uint64_t seq = push(process.view, head, 0, ops);
    if (seq == kFull) return kFull;
    process.view.header->recorded.fetch_add(1, std::memory_order_relaxed);
    fail = !pass_host_gate(seq, ops, count);
    return seq;
}

void mark_ready(std::uint64_t seq, const LaunchStream& at) {
    ring::GateWord& word = process.view.ready[seq & process.view.mask];
    if (stream_writes) {
        const InContext current(*at.context);
        if (driver.cuStreamWriteValue64(at.stream, device_address(&word.value), seq + 1, CU_STREAM_WRITE_VALUE_DEFAULT) !=
            CUDA_SUCCESS)
            word.value.store(seq + 1, std::memory_order_release);
    }
    ring_doorbell();
}

void enqueue_done(std::uint64_t seq, const LaunchStream* streams, std::uint32_t count) {
    if (is_captured(seq)) return capture_end(seq, streams, count);
    if (count == 1 && stream_writes) {
        const InContext current(*streams[0].context);
        const CUdeviceptr word = device_address(&process.view.done[seq & process.view.mask].value);
        if (driver.cuStreamWriteValue64(streams[0].stream, word, seq + 1, CU_STREAM_WRITE_VALUE_DEFAULT) == CUDA_SUCCESS)
            return;
    }
    Countdown* countdown =
        driver.cuLaunchHostFunc != nullptr || driver.cudaLaunchHostFunc != nullptr ? countdown_of(seq) : nullptr;
    if (countdown == nullptr) {  // no CUDA in this process: the call itself was the work
        store_done(seq);
        return;
    }
    countdown->seq = seq;
    countdown->left.store(count, std::memory_order_release);
    for (std::uint32_t i = 0; i < count; ++i)
        if (!enqueue_function(streams[i], countdown)) count_down(countdown);
}

void defer_done(Communicator& c, std::uint64_t seq, const LaunchStream* streams, std::uint32_t count, bool ends_as_one) {
    auto* deferred = static_cast<DeferredDone*>(malloc(sizeof(DeferredDone) + count * sizeof(LaunchStream)));
    if (deferred == nullptr) {
        if (!is_captured(seq)) store_done(seq);
        return;
    }
    deferred->next = nullptr;
    deferred->seq = seq;
    deferred->count = count;
    deferred->ends_as_one = ends_as_one;
    for (std::uint32_t i = 0; i < count; ++i) deferred->streams()[i] = streams[i];
    const LockGuard guard(c.settling);
    if (c.left) {  // nobody will settle it
        if (!is_captured(seq)) store_done(seq);
        free(deferred);
        return;
    }
    DeferredDone** last = &c.deferred;
    while (*last != nullptr) last = &(*last)->next;
    *last = deferred;
    c.settle_later(kSlowDeferred);
    c.plain_verdict = kNotPlain;
    c.close_fast_path();
}

void settle_deferred(Communicator& c, ncclResult_t result) {
    if (result == ncclInProgress) return;
    DeferredDone* next = c.deferred;
    c.deferred = nullptr;
    if (next != nullptr && result != ncclSuccess) c.count_lost();
    while (next != nullptr) {
        DeferredDone* deferred = next;
        next = deferred->next;
        if (deferred->count == 0 || (result != ncclSuccess && !is_captured(deferred->seq)))
            store_done(deferred->seq);
        else
            enqueue_done(deferred->seq, deferred->streams(), deferred->count);
        if (deferred->ends_as_one && deferred->count != 0 && result == ncclSuccess)
            precede(c, deferred->streams()[0], is_captured(deferred->seq));
        free(deferred);
    }
    c.settled(kSlowDeferred);  // its next launch goes behind all of these
}

}  // namespace opus::shim
