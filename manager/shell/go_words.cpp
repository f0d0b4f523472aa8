#include "manager/shell/go_words.h"

#include "manager/core/core.h"
#include "manager/shell/futex.h"

namespace opus::manager {

void store_go(const ring::View& view, std::uint64_t seq, bool abort) {
    const std::uint64_t slot = is_replay(seq) ? slot_of_replay(seq) & view.mask : seq & view.mask;
    auto& go = is_replay(seq) ? view.go[slot].replays : view.go[slot].value;
    const std::uint64_t value = (is_replay(seq) ? number_of_replay(seq) : seq) + 1;
    // Sequentially consistent with the waiter's word: either the sleeper sees go, or we see the sleeper.
    go.store(value | (abort ? ring::kGoAbort : 0), std::memory_order_seq_cst);
    if (view.ready[slot].waiter.load(std::memory_order_seq_cst) != 0) futex_wake(go);
}

}  // namespace opus::manager
