// The handlers of collectives and transfers, from the table. The path of a lone call: a few dozen
// instructions of the application's thread beside the gate itself.
#include "shim/captured.h"
#include "shim/fast_path.h"
#include "shim/first_uses.h"
#include "shim/group.h"
#include "shim/hooks.h"
#include "shim/host_gate.h"
#include "shim/launch.h"
#include "shim/process.h"
#include "shim/stream_gate.h"
#include "shim/thread_state.h"
#include "shim/windows.h"

namespace opus::shim {

namespace {

inline void count_passed() { process.view.header->passed.fetch_add(1, std::memory_order_relaxed); }

enum class Admission { pass, plain, fast_path, grouped, slow_path };

// The verdict of which a call of this kind takes the fast path: of what has its connections.
constexpr std::uint32_t Communicator::*fast_path_verdict_of(OpKind kind) {
    if (is_transfer(kind) || kMutation == Mutation::fast_path_unconnected) return &Communicator::fast_path_verdict;
    return is_made_of_transfers(kind) ? &Communicator::mesh_verdict : &Communicator::ring_verdict;
}

// What a call may become: nothing, for what the shim does not know, for NCCL calling itself, and for what
// needs no circuit and no key. Leaves a plain one's communicator in the thread's words.
template <OpKind kind>
inline Admission admit(ncclComm_t comm) {
    ThreadWords& words = thread_words;
    Communicator* c = communicators.glance(comm);
    if (c == nullptr) [[unlikely]]
        return Admission::slow_path;
    const std::uint32_t verdict = c->verdict->load(std::memory_order_relaxed);
    if (verdict == c->plain_verdict && words.anywhere == 0) {
        words.admitted = c;
        return Admission::plain;
    }
    const std::uint32_t fast_path_verdict = c->*fast_path_verdict_of(kind);
    if (verdict == fast_path_verdict && words.anywhere == 0) {
        words.admitted = c;
        return Admission::fast_path;
    }
    if (words.inside != 0) return Admission::pass;
    if (verdict == fast_path_verdict && words.buffers != nullptr) {
        words.admitted = c;
        return Admission::grouped;
    }
    if (verdict != std::uint32_t(Verdict::intra)) return Admission::slow_path;
    count_passed();
    return Admission::pass;
}

enum class Course { pass, start, fail };

Course refuse(std::uint64_t seq, const ring::OpEntry& op) {
    store_done(seq);
    end_wait(op.comm);
    return Course::fail;
}

// Circuits for the connections of a first use. False: do not start.
bool connect_first(Communicator& c, ring::OpEntry& op, Flight& flight) {
    if ((op.flags & ring::kOpFirstUse) == 0) return true;
    bool fail = false;
    const std::uint32_t after = op.flags & ~ring::kOpFirstUse;
    op.flags = ring::kOpFirstUse;
    flight.connections = hold_connections(&op, 1, 1, 0, fail);
    if (!fail && flight.connections == kFull) c.count_lost();
    op.flags = after;
    return !fail;
}

// Circuits for the connections first, then the ordinary launch behind its kernel.
Course begin_stream_gated(Communicator& c, ring::OpEntry op, cudaStream_t stream, bool by_comm, Flight& flight) {
    if (!connect_first(c, op, flight)) return refuse(flight.connections, op);
    const std::uint16_t by = by_comm ? ring::kLaunchCommGo : 0;
    const LaunchHead head{ring::Gate::stream, 1, std::uint16_t(record_flags(1, ring::Gate::stream) | by)};
    flight.seq = push(process.view, head, stream_name(c, stream), op);
    if (flight.seq == kFull) {
        c.count_lost();
        return Course::start;
    }
    if (!by_comm) c.apart = flight.seq;
    process.view.header->recorded.fetch_add(1, std::memory_order_relaxed);
    follow(c, {stream, c.context}, false);
    const InContext current(*c.context);
    if (by_comm ? !enqueue_comm_gate(c, flight.seq, stream) : !enqueue_gate(c, flight.seq, stream)) {
        return pass_host_gate(flight.seq, &op, 1) ? Course::start : refuse(flight.seq, op);
    }
    process.view.header->gated.fetch_add(1, std::memory_order_relaxed);
    by_comm ? ring_unless_gone(c, flight.seq) : ring_doorbell();
    return Course::start;
}

bool on_capturing_stream(const Communicator& c, cudaStream_t stream) {
    const InContext current(*c.context);
    return capturing(stream);
}

// Its circuits stay for the replays.
Course begin_pinned(Communicator& c, const ring::OpEntry& captured, const LaunchStream& at) {
    ring::OpEntry pinned = captured;
    pin_each(captured, [&pinned](const ring::OpEntry& op) { pinned = op; });  // a lone call is one
    const std::uint64_t seq = record_pin(&pinned, 1);
    if (seq != kFull && !pass_host_gate(seq, &pinned, 1)) return refuse(seq, pinned);
    if (seq == kFull || !keep_pin(c, seq, at)) c.count_lost();
    return Course::start;
}

// The call is captured into a graph.
Course begin_captured(Communicator& c, ring::OpEntry op, cudaStream_t stream, Flight& flight) {
    give_number_back(c, op);
    const bool numbered = number_captured(c, op);
    if (!connect_first(c, op, flight)) return refuse(flight.connections, op);
    const LaunchStream at{stream, c.context};
    const Replays replays = numbered ? hold_of_replays(c) : Replays::pass;
    if (replays == Replays::pinned) return begin_pinned(c, op, at);
    if (replays == Replays::gated)
        flight.seq = push(process.view, LaunchHead(ring::Gate::stream, 1, kCapturedFlags), stream_name(c, stream), &op);
    if (flight.seq != kFull && !keep_with_graph(flight.seq, at)) flight.seq = kFull;
    if (flight.seq != kFull) {
        process.view.header->recorded.fetch_add(1, std::memory_order_relaxed);
        follow(c, at, true);
        const InContext current(*c.context);
        if (enqueue_replayed_gate(c, flight.seq, stream)) {
            process.view.header->gated.fetch_add(1, std::memory_order_relaxed);
            ring_doorbell();
            return Course::start;
        }
        flight.seq = kFull;  // its slot is the graph's
    }
    c.count_lost();
    return Course::start;
}

__attribute__((noinline)) Course begin(Communicator& c, ring::OpEntry op, cudaStream_t stream, Flight& flight) {
    flight = {kFull, kFull};
    if (note_use(c, OpKind{op.kind}, op.peer)) op.flags = ring::kOpFirstUse;
    if (c.windows && may_spread(OpKind{op.kind})) op.flags |= ring::kOpMesh;
    if (!records(c)) {
        if (thread_words.refusal == ncclSuccess) return Course::pass;
        end_wait(c.index);
        return Course::fail;
    }
    if (has_driver && on_capturing_stream(c, stream)) {
        const bool held = process.mode == Mode::enforce && c.gate != ring::Gate::none;
        if (held && kMutation != Mutation::let_replays_pass) return begin_captured(c, op, stream, flight);
        count_passed();  // nothing is held
        return Course::pass;
    }
    const ring::Gate gate = gate_for(c, stream);
    const bool by_comm = may_look_at_comm_go(c, op, stream) && gate == ring::Gate::stream;
    prepare_fast_path(c, stream, gate);
    if (gate == ring::Gate::stream) return begin_stream_gated(c, op, stream, by_comm, flight);
    const LaunchHead head{gate, 1, record_flags(1, gate)};
    flight.seq = push(process.view, head, stream_name(c, stream), op);
    if (flight.seq == kFull) [[unlikely]] {
        c.count_lost();
        return Course::start;
    }
    c.apart = flight.seq;
    process.view.header->recorded.fetch_add(1, std::memory_order_relaxed);
    if (gate == ring::Gate::none) {
        mark_ready(flight.seq, {stream, c.context});
        return Course::start;
    }
    return pass_host_gate(flight.seq, &op, 1) ? Course::start : refuse(flight.seq, op);
}

inline ring::OpEntry entry_of(const Communicator& c, OpKind kind, ncclDataType_t type, std::uint32_t peer,
                              std::uint64_t n, std::uint64_t bytes) {
    return {std::uint8_t(kind), std::uint8_t(type), std::uint16_t(c.index), peer, n, 1, 0, bytes};
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
    if (is_rooted_transfers(kind) || (is_made_of_transfers(kind) && c.unconnected != 0)) {
        // Several operations: as in a group of its own.
        if (const ncclResult_t started = handlers::ncclGroupStart(); started != ncclSuccess) return started;
        const ncclResult_t result = run(c, kind, type, peer, bytes, stream, sequence, call);
        const ncclResult_t ended = handlers::ncclGroupEnd();
        return result == ncclSuccess ? ended : result;
    }
    const Inside inside;
    const ring::OpEntry op = entry_of(c, kind, type, peer, sequence++, bytes);
    Flight flight;
    const Course course = begin(c, op, stream, flight);
    if (course == Course::fail) [[unlikely]] {
        c.close_fast_path();
        c.apart = kFull - 1;  // nothing was launched: what a launch before it waits for is not known any more
        return ncclResult_t(thread_words.refusal);
    }
    const ncclResult_t result = call();
    if (course == Course::start) end_flight(c, flight, {stream, c.context}, result);
    return result;
}

// Where streams are, done is theirs to say: it is counted apart from the launch (instructions_test.py).
__attribute__((noinline)) ncclResult_t plain_done(std::uint64_t seq) {
    store_done(seq);
    return ncclSuccess;
}

// The plain way: recorded, with the gate open (OPUS_GATE=none) and no stream to say done. False, and nothing
// has happened: the slow path is to be taken.
inline bool record_plainly(Communicator& c, OpKind kind, ncclDataType_t type, std::uint32_t peer, std::uint64_t bytes,
                           cudaStream_t stream, std::uint64_t& sequence, std::uint64_t& seq) {
    if (!claim_at_once(process.view, seq)) [[unlikely]]
        return false;
    ring::SegmentHeader& header = *process.view.header;
    ring::LaunchRecord& record = process.view.record(seq);
    const LaunchHead head{ring::Gate::none, 1, ring::kLaunchHostDone};
    fill(record, head, reinterpret_cast<std::uintptr_t>(stream), entry_of(c, kind, type, peer, sequence, bytes));
    commit(record, seq);
    ++sequence;  // here, it costs one register less
    header.recorded.fetch_add(1, std::memory_order_relaxed);
    if (header.asleep.load(std::memory_order_seq_cst) != 0) [[unlikely]]
        ring_doorbell_now();
    return true;
}

constexpr bool is_forgotten(std::size_t count) { return kMutation == Mutation::forget_empty_transfers && count == 0; }

// What was admitted may have been overwritten by NCCL calling itself: the record knows its communicator.
__attribute__((noinline)) ncclResult_t fail_plainly(std::uint64_t seq, ncclResult_t result) {
    if (result != ncclInProgress)
        process.view.comms[process.view.record(seq).op.comm].lost.fetch_add(1, std::memory_order_seq_cst);
    store_done(seq);
    return result;
}

// A call inside a group, before the real call: should that fail, NCCL launches nothing of the group, nor do we.
inline bool collect_first(const PendingOp& op) { return thread_words.buffers->ops.add_at_once(op); }

inline ncclResult_t finish_grouped(ncclResult_t result) {
    thread_words.inside = 0;
    if (result != ncclSuccess && result != ncclInProgress) [[unlikely]]
        thread_words.buffers->failed = true;
    return result;
}

// After the real call. Its own function, jumped to, so that nothing but `seq` has to outlive that call.
__attribute__((noinline)) ncclResult_t finish_plainly(std::uint64_t seq, ncclResult_t result) {
    thread_words.inside = 0;
    if (result != ncclSuccess) [[unlikely]]
        return fail_plainly(seq, result);
    return plain_done(seq);
}

// The same as admit, for what is not in the first place of the table too, and for communicators with
// something to settle first. Null: the call passes.
__attribute__((noinline)) Communicator* admit_on_slow_path(ncclComm_t comm) {
    if (thread_words.inside != 0) return nullptr;
    Communicator* c = communicators.find(comm);
    if (c == nullptr) return nullptr;
    if (c->verdict->load(std::memory_order_relaxed) == std::uint32_t(Verdict::intra)) {
        count_passed();
        return nullptr;
    }
    settle_slow(*c);
    return c->sends != nullptr ? c : nullptr;  // without its size, its counters cannot be
}

}  // namespace

#define OPUS_HOOK(name, params, args)

// In steps, so that what passes costs no frame: the first looks; the next, with the same parameters, is
// jumped to and finds the communicator in the thread's words.
#define OPUS_STEPS(name, params, args)                               \
    ncclResult_t handlers::name params {                             \
        switch (admit<kind_of_##name>(comm)) {                       \
            case Admission::plain: return plain_##name args;         \
            case Admission::fast_path: return fast_path_##name args; \
            case Admission::grouped: return grouped_##name args;     \
            case Admission::slow_path: return held_##name args;      \
            case Admission::pass: break;                             \
        }                                                            \
        return real.name args;                                       \
    }

// What both kinds of calls do once they know their peer and their counter.
#define OPUS_FAST_PATH(name, args, kind, peer, elements, sequence)                                                       \
    std::uint64_t seq = 0;                                                                                               \
    if (!may_take_fast_path(c.fast_path, stream) || !record_on_fast_path(c, OpKind::kind, datatype, std::uint32_t(peer), \
                                                                         width(datatype) * (elements), sequence, seq))   \
        [[unlikely]]                                                                                                     \
        return held_##name args;                                                                                         \
    if constexpr (!goes_round(OpKind::kind)) c.apart = seq;                                                              \
    if (!pass_fast_path_gate<goes_round(OpKind::kind)>(c, seq)) [[unlikely]]                                             \
        return ncclResult_t(thread_words.refusal);                                                                       \
    comm = c.handle, stream = c.fast_path.stream; /* what they are; not kept meanwhile */                                \
    thread_words.inside = 1;                                                                                             \
    const ncclResult_t result = real.name args;                                                                          \
    return finish_fast_path(seq, result);

#define OPUS_COLL(name, params, args, kind, root, elements)                                                       \
    static constexpr OpKind kind_of_##name = OpKind::kind;                                                        \
    __attribute__((noinline)) static ncclResult_t held_##name params {                                            \
        Communicator* found = admit_on_slow_path(comm);                                                           \
        if (found == nullptr || count == 0) return real.name args;                                                \
        Communicator& c = *found;                                                                                 \
        [[maybe_unused]] const std::uint64_t ranks = c.size;                                                      \
        return run(c, OpKind::kind, datatype, std::uint32_t(root), width(datatype) * (elements), stream,          \
                   c.collectives, [&] { return real.name args; });                                                \
    }                                                                                                             \
    __attribute__((noinline)) static ncclResult_t plain_##name params {                                           \
        Communicator& c = *thread_words.admitted;                                                                 \
        [[maybe_unused]] const std::uint64_t ranks = c.size;                                                      \
        std::uint64_t seq = 0;                                                                                    \
        if (count == 0 || is_rooted_transfers(OpKind::kind) ||                                                    \
            !record_plainly(c, OpKind::kind, datatype, std::uint32_t(root), width(datatype) * (elements), stream, \
                            c.collectives, seq)) [[unlikely]]                                                     \
            return held_##name args;                                                                              \
        thread_words.inside = 1;                                                                                  \
        const ncclResult_t result = real.name args;                                                               \
        return finish_plainly(seq, result);                                                                       \
    }                                                                                                             \
    __attribute__((noinline)) static ncclResult_t grouped_##name params {                                         \
        Communicator& c = *thread_words.admitted;                                                                 \
        [[maybe_unused]] const std::uint64_t ranks = c.size;                                                      \
        if (count == 0 || is_rooted_transfers(OpKind::kind) ||                                                    \
            !collect_first({&c, stream, width(datatype) * (elements), std::uint32_t(root), OpKind::kind,          \
                            std::uint8_t(datatype)})) [[unlikely]]                                                \
            return held_##name args;                                                                              \
        thread_words.inside = 1;                                                                                  \
        return finish_grouped(real.name args);                                                                    \
    }                                                                                                             \
    __attribute__((noinline)) static ncclResult_t fast_path_##name params {                                       \
        Communicator& c = *thread_words.admitted;                                                                 \
        [[maybe_unused]] const std::uint64_t ranks = c.size;                                                      \
        if (count == 0 || is_rooted_transfers(OpKind::kind)) [[unlikely]]                                         \
            return held_##name args;                                                                              \
        OPUS_FAST_PATH(name, args, kind, root, elements, c.collectives)                                           \
    }                                                                                                             \
    OPUS_STEPS(name, params, args)

#define OPUS_P2P(name, params, args, kind)                                                                                  \
    static constexpr OpKind kind_of_##name = OpKind::kind;                                                                  \
    __attribute__((noinline)) static ncclResult_t held_##name params {                                                      \
        Communicator* found = admit_on_slow_path(comm);                                                                     \
        const auto other = std::uint32_t(peer);                                                                             \
        if (found == nullptr || is_forgotten(count) || other == found->rank || other >= found->size)                        \
            return real.name args;                                                                                          \
        Communicator& c = *found;                                                                                           \
        return run(c, OpKind::kind, datatype, other, width(datatype) * count, stream, c.kind##s[other].next,                \
                   [&] { return real.name args; });                                                                         \
    }                                                                                                                       \
    __attribute__((noinline)) static ncclResult_t plain_##name params {                                                     \
        Communicator& c = *thread_words.admitted;                                                                           \
        const auto other = std::uint32_t(peer);                                                                             \
        std::uint64_t seq = 0;                                                                                              \
        if (is_forgotten(count) || other == c.rank || other >= c.size ||                                                    \
            !record_plainly(c, OpKind::kind, datatype, other, width(datatype) * count, stream, c.kind##s[other].next, seq)) \
            return held_##name args;                                                                                        \
        thread_words.inside = 1;                                                                                            \
        const ncclResult_t result = real.name args;                                                                         \
        return finish_plainly(seq, result);                                                                                 \
    }                                                                                                                       \
    __attribute__((noinline)) static ncclResult_t grouped_##name params {                                                   \
        Communicator& c = *thread_words.admitted;                                                                           \
        const auto other = std::uint32_t(peer);                                                                             \
        if (is_forgotten(count) || other == c.rank || other >= c.size ||                                                    \
            !collect_first({&c, stream, width(datatype) * count, other, OpKind::kind, std::uint8_t(datatype)}))             \
            [[unlikely]]                                                                                                    \
            return held_##name args;                                                                                        \
        thread_words.inside = 1;                                                                                            \
        return finish_grouped(real.name args);                                                                              \
    }                                                                                                                       \
    __attribute__((noinline)) static ncclResult_t fast_path_##name params {                                                 \
        Communicator& c = *thread_words.admitted;                                                                           \
        const auto other = std::uint32_t(peer);                                                                             \
        if (is_forgotten(count) || other == c.rank || other >= c.size || !c.kind##s[other].connected) [[unlikely]]          \
            return held_##name args;                                                                                        \
        OPUS_FAST_PATH(name, args, kind, other, count, c.kind##s[other].next)                                               \
    }                                                                                                                       \
    OPUS_STEPS(name, params, args)

#define OPUS_PASS(name, params, args)                                                        \
    ncclResult_t handlers::name params {                                                     \
        if (thread_words.inside == 0 && communicators.find(comm) != nullptr) count_passed(); \
        return real.name args;                                                               \
    }

#include "shim/hook_table.h"

}  // namespace opus::shim
