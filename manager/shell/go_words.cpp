#include "manager/shell/go_words.h"

#include "manager/shell/futex.h"

namespace opus::manager {
namespace {

void move_on(std::atomic<std::uint64_t>& go, std::uint64_t upto, bool abort) {
    if ((go.load(std::memory_order_relaxed) & ~ring::kGoAbort) < upto)
        go.store(upto | (abort ? ring::kGoAbort : 0), std::memory_order_seq_cst);
}

}  // namespace

void store_go(const ring::View& view, std::uint64_t seq, bool abort, std::uint32_t comm) {
    const std::uint64_t slot = is_replay(seq) ? slot_of_replay(seq) & view.mask : seq & view.mask;
    auto& go = is_replay(seq) ? view.go[slot].replays : view.go[slot].value;
    const std::uint64_t value = (is_replay(seq) ? number_of_replay(seq) : seq) + 1;
    // Sequentially consistent with the waiter's word: either the sleeper sees go, or we see the sleeper.
    go.store(value | (abort ? ring::kGoAbort : 0), std::memory_order_seq_cst);
    if (comm != kNone) move_on(view.comms[comm].go, seq + 1, abort);
    if (view.ready[slot].waiter.load(std::memory_order_seq_cst) == 0) return;
    futex_wake(go);
    if (comm != kNone) futex_wake(view.comms[comm].go);
}

void store_comm_go(const ring::View& view, std::uint32_t comm, std::uint64_t upto) {
    move_on(view.comms[comm].go, upto, false);
    futex_wake(view.comms[comm].go);  // whoever sleeps there may not have been seen
}

std::uint64_t retract_comm_go(const ring::View& view, std::uint32_t comm, std::uint64_t upto) {
    auto& go = view.comms[comm].go;
    const std::uint64_t before = go.load(std::memory_order_relaxed) & ~ring::kGoAbort;
    if (before > upto) go.store(upto, std::memory_order_seq_cst);
#ifndef __SANITIZE_THREAD__  // which does not know fences, and makes every access stronger anyway
    std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
    return before;
}

}  // namespace opus::manager
