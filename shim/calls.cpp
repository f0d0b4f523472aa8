// The handlers of collectives and transfers, from the table. The path of a lone call: a few dozen
// instructions of the application's thread beside the gate itself.
#include "shim/group.h"
#include "shim/hooks.h"
#include "shim/host_gate.h"
#include "shim/launch.h"
#include "shim/process.h"
#include "shim/stream_gate.h"
#include "shim/thread_state.h"

namespace opus::shim {

namespace {

// Bytes of an ncclDataType_t; 0 for one that is newer than this table.
constexpr std::uint8_t kWidth[16] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
inline std::uint64_t width(ncclDataType_t type) { return kWidth[std::uint32_t(type) & 15]; }

inline void count_passed() { process.view.header->passed.fetch_add(1, std::memory_order_relaxed); }

// What may become a launch: null for what the shim does not know, for NCCL calling itself, and for
// what needs no circuit and no key.
inline Communicator* admit(ncclComm_t comm, std::size_t count) {
    if (thread_words.inside != 0) [[unlikely]] return nullptr;
    Communicator* c = communicators.find(comm);
    if (c == nullptr || count == 0) [[unlikely]] return nullptr;
    if (c->verdict->load(std::memory_order_relaxed) == std::uint32_t(Verdict::intra)) {
        count_passed();
        return nullptr;
    }
    return c;
}

enum class Course { pass, start, fail };

// A launch of one call, between its record and its done.
struct Flight {
    std::uint64_t seq;
    std::uint64_t connections;
};

// Circuits for the connections first, then the ordinary launch behind its kernel.
__attribute__((noinline)) Course begin_stream_gated(Communicator& c, ring::OpEntry& op, cudaStream_t stream, Flight& flight) {
    if (op.flags != 0) {
        bool fail = false;
        flight.connections = hold_connections(&op, 1, fail);
        if (fail) return Course::fail;
        if (flight.connections == kFull) c.count_lost();
        op.flags = 0;
    }
    const LaunchHead head{ring::Gate::stream, 1, record_flags(1), 0};
    flight.seq = push(process.view, head, stream_name(c, stream), op);
    if (flight.seq == kFull) {
        c.count_lost();
        return Course::start;
    }
    process.view.header->recorded.fetch_add(1, std::memory_order_relaxed);
    const InContext current(*c.context);
    if (!enqueue_gate(c, flight.seq, stream)) {
        if (pass_host_gate(flight.seq, &op, 1)) return Course::start;
        store_done(flight.seq);
        return Course::fail;
    }
    process.view.header->gated.fetch_add(1, std::memory_order_relaxed);
    ring_doorbell();
    return Course::start;
}

bool on_capturing_stream(const Communicator& c, cudaStream_t stream) {
    const InContext current(*c.context);
    return capturing(stream);
}

Course begin(Communicator& c, ring::OpEntry& op, cudaStream_t stream, Flight& flight) {
    flight.connections = kFull;
    if (!records(c)) return Course::pass;
    if (driver.cuStreamIsCapturing != nullptr && on_capturing_stream(c, stream)) {
        // A graph's launches repeat without a call: they pass until graphs are served.
        count_passed();
        return Course::pass;
    }
    const ring::Gate gate = gate_for(c, stream);
    if (gate == ring::Gate::stream) return begin_stream_gated(c, op, stream, flight);
    const LaunchHead head{gate, 1, record_flags(1), 0};
    flight.seq = push(process.view, head, stream_name(c, stream), op);
    if (flight.seq == kFull) [[unlikely]] {
        c.count_lost();
        return Course::start;
    }
    process.view.header->recorded.fetch_add(1, std::memory_order_relaxed);
    if (gate == ring::Gate::none) {
        store_ready(flight.seq);
        return Course::start;
    }
    if (pass_host_gate(flight.seq, &op, 1)) return Course::start;
    store_done(flight.seq);
    return Course::fail;
}

__attribute__((noinline)) void end_otherwise(Communicator& c, const Flight& flight, const LaunchStream& at, ncclResult_t result) {
    if (result == ncclInProgress) {
        if (flight.connections != kFull) defer_done(c, flight.connections, nullptr, 0);
        if (flight.seq != kFull) defer_done(c, flight.seq, &at, 1);
        return;
    }
    if (flight.connections != kFull) store_done(flight.connections);
    if (flight.seq != kFull && result == ncclSuccess) enqueue_done(flight.seq, &at, 1);
    if (result == ncclSuccess) return;
    // NCCL launched nothing, and a peer may wait for what this key promised.
    if (flight.seq != kFull) store_done(flight.seq);
    c.count_lost();
}

inline void end(Communicator& c, const Flight& flight, cudaStream_t stream, ncclResult_t result) {
    const LaunchStream at{stream, c.context};
    if (result == ncclSuccess && (flight.seq != kFull) & (flight.connections == kFull)) [[likely]]
        enqueue_done(flight.seq, &at, 1);
    else
        end_otherwise(c, flight, at, result);
}

inline ring::OpEntry entry_of(const Communicator& c, OpKind kind, ncclDataType_t type, std::uint32_t peer,
                              std::uint64_t n, std::uint64_t bytes) {
    return {std::uint8_t(kind), std::uint8_t(type), std::uint16_t(c.index), peer, n, 1,
            n == 0 ? ring::kOpFirstUse : 0, bytes};
}

// The whole of a hooked call. `call` is the real one.
template <class Call>
inline ncclResult_t run(Communicator& c, OpKind kind, ncclDataType_t type, std::uint32_t peer, std::uint64_t bytes,
                        cudaStream_t stream, std::uint64_t& sequence, Call call) {
    if (thread_words.depth != 0) {
        ncclResult_t result;
        {
            const Inside inside;
            result = call();
        }
        collect(c, {&c, stream, bytes, peer, kind, std::uint8_t(type)}, result);
        return result;
    }
    const Inside inside;
    ring::OpEntry op = entry_of(c, kind, type, peer, sequence++, bytes);
    Flight flight;
    const Course course = begin(c, op, stream, flight);
    if (course == Course::fail) [[unlikely]] return ncclSystemError;
    const ncclResult_t result = call();
    if (course == Course::start) end(c, flight, stream, result);
    return result;
}

// A communicator with something to settle first, or one whose size is not known: its counters cannot be.
inline bool usable(Communicator& c) {
    if (c.slow != 0) [[unlikely]] settle_slow(c);
    return c.sends != nullptr;
}

}  // namespace

#define OPUS_HOOK(name, params, args)

#define OPUS_COLL(name, params, args, kind, root, elements)                                            \
    ncclResult_t handlers::name params {                                                               \
        Communicator* c = admit(comm, count);                                                          \
        if (c == nullptr || !usable(*c)) return real.name args;                                        \
        [[maybe_unused]] const std::uint64_t ranks = c->size;                                          \
        return run(*c, OpKind::kind, datatype, std::uint32_t(root), width(datatype) * (elements), stream, \
                   c->collectives, [&] { return real.name args; });                                    \
    }

#define OPUS_P2P(name, params, args, kind)                                                             \
    ncclResult_t handlers::name params {                                                               \
        Communicator* c = admit(comm, count);                                                          \
        if (c == nullptr || !usable(*c)) return real.name args;                                        \
        const auto other = std::uint32_t(peer);                                                        \
        if (other == c->rank || other >= c->size) return real.name args;                               \
        return run(*c, OpKind::kind, datatype, other, width(datatype) * count, stream,                 \
                   c->kind##s[other].next, [&] { return real.name args; });                            \
    }

#define OPUS_PASS(name, params, args)                                                                  \
    ncclResult_t handlers::name params {                                                               \
        if (thread_words.inside == 0 && communicators.find(comm) != nullptr) count_passed();           \
        return real.name args;                                                                         \
    }

#include "shim/hook_table.h"

}  // namespace opus::shim
