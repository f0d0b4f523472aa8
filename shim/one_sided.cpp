// One-sided operations: a rank writes into a window of another, which makes no call for it. So their keys are for the
// sender alone (KeyKind::put): a launch is held until there is light from it to the peer. Who waits for a signal moves
// no byte, and is not held.
#include <cstdlib>

#include "shim/first_uses.h"
#include "shim/group.h"
#include "shim/hooks.h"
#include "shim/launch.h"
#include "shim/thread_state.h"

namespace opus::shim {

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 29, 2)

namespace {

// Null: the call passes.
Communicator* find_sender(ncclComm_t comm, int peer) {
    if (thread_words.inside != 0) return nullptr;
    Communicator* c = communicators.find(comm);
    if (c == nullptr) return nullptr;
    settle_slow(*c);
    const bool goes_out = c->sends != nullptr && std::uint32_t(peer) < c->size && std::uint32_t(peer) != c->rank;
    if (goes_out && c->verdict->load(std::memory_order_relaxed) != std::uint32_t(Verdict::intra) && serves_minor(4))
        return c;
    process.view.header->passed.fetch_add(1, std::memory_order_relaxed);
    return nullptr;
}

// As in a group of its own.
template <class Call>
ncclResult_t send_one_sided(Communicator& c, const PendingOp& op, Call call) {
    if (thread_words.depth != 0) {
        ncclResult_t result;
        {
            const Inside inside;
            result = call();
        }
        collect(c, op, result);
        return result;
    }
    if (const ncclResult_t started = handlers::ncclGroupStart(); started != ncclSuccess) return started;
    const ncclResult_t result = send_one_sided(c, op, call);
    const ncclResult_t ended = handlers::ncclGroupEnd();
    return result == ncclSuccess ? ended : result;
}

}  // namespace

ncclResult_t handlers::ncclPutSignal(const void* src, size_t count, ncclDataType_t datatype, int peer,
                                     ncclWindow_t window, size_t offset, int signal, int context, unsigned int flags,
                                     ncclComm_t comm, cudaStream_t stream) {
    const auto call = [&] {
        return real.ncclPutSignal(src, count, datatype, peer, window, offset, signal, context, flags, comm, stream);
    };
    Communicator* c = find_sender(comm, peer);
    if (c == nullptr) return call();
    return send_one_sided(
        *c, {c, stream, width(datatype) * count, std::uint32_t(peer), OpKind::put_signal, std::uint8_t(datatype)}, call);
}

ncclResult_t handlers::ncclSignal(int peer, int signal, int context, unsigned int flags, ncclComm_t comm,
                                  cudaStream_t stream) {
    const auto call = [&] { return real.ncclSignal(peer, signal, context, flags, comm, stream); };
    Communicator* c = find_sender(comm, peer);
    return c != nullptr ? send_one_sided(*c, {c, stream, 0, std::uint32_t(peer), OpKind::signal, 0}, call) : call();
}

#endif

}  // namespace opus::shim
