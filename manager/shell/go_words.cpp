#include "manager/shell/go_words.h"

#include "manager/shell/futex.h"

namespace opus::manager {

void store_go(const ring::View& view, std::uint64_t seq, bool abort) {
    auto& go = view.go[seq & view.mask].value;
    // Sequentially consistent with the waiter's word: either the sleeper sees go, or we see the sleeper.
    go.store((seq + 1) | (abort ? ring::kGoAbort : 0), std::memory_order_seq_cst);
    if (view.ready[seq & view.mask].waiter.load(std::memory_order_seq_cst) != 0) futex_wake(go);
}

}  // namespace opus::manager
