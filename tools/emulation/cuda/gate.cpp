#include "gate.h"

#include <atomic>
#include <cstddef>

#include "opus/launch_ring.h"

namespace opus::standin {

namespace {

constexpr std::uint64_t kGoAbort = 1ull << 63;
constexpr std::uint32_t kOpenAbort = 2;

template <typename T>
T load(T* word) {
    return std::atomic_ref<T>(*word).load(std::memory_order_acquire);
}

template <typename T>
T parameter(void** params, int index) {
    return *static_cast<T*>(params[index]);
}

struct Gate {
    GateParameters words;
    bool counts = false;  // each replay is one more than the last: `value` is what is found, and one
    bool announced = false;
    std::uint64_t beat = 0;
    std::int64_t beat_ns = 0;

    // As a host thread that sleeps on `go`: the manager wakes it. On a GPU nobody has to.
    std::atomic<std::uint32_t>& waiter() const {
        auto* word = reinterpret_cast<char*>(words.ready) - (counts ? offsetof(ring::GateWord, replays) : 0);
        return reinterpret_cast<ring::GateWord*>(word)->waiter;
    }

    int look(std::int64_t now) {
        const int result = look_at_words(now);
        if (result != kPending) waiter().store(0, std::memory_order_relaxed);
        return result;
    }

    int look_at_words(std::int64_t now) {
        if (!announced) {
            announced = true;
            waiter().store(1, std::memory_order_seq_cst);
            if (counts)
                words.value = std::atomic_ref(*words.ready).fetch_add(1, std::memory_order_seq_cst) + 1;
            else
                std::atomic_ref(*words.ready).store(words.value, std::memory_order_seq_cst);  // before go is looked at
            beat = load(words.heartbeat);
            beat_ns = now;
        }
        const std::uint64_t go = std::atomic_ref(*words.go).load(std::memory_order_seq_cst);
        const std::uint32_t open = load(words.open_segment);
        const bool gone = (go & ~kGoAbort) >= words.value;
        if ((gone && (go & kGoAbort) != 0) || open == kOpenAbort) return kLaunchFailure;
        if (gone || open != 0 || load(words.open_comm) != 0) return 0;
        std::uint64_t* const dead_beat = words.gave_up + 1;
        const std::uint64_t seen = load(words.heartbeat);
        if (seen != beat) {
            beat = seen;
            beat_ns = now;
        }
        if (seen != load(dead_beat) && now - beat_ns < static_cast<std::int64_t>(words.hold_ns)) return kPending;
        std::atomic_ref(*dead_beat).store(seen);
        std::atomic_ref(*words.gave_up).fetch_add(1);
        return 0;
    }
};

}  // namespace

const char* name_of(GateRole role) {
    switch (role) {
        case GateRole::gate: return "opus_gate";
        case GateRole::replayed: return "opus_gate_replayed";
        default: return "opus_replay_ended";
    }
}

namespace {

GateParameters gate_parameters(void** p) {
    return {parameter<std::uint64_t*>(p, 0), parameter<std::uint64_t*>(p, 1), parameter<std::uint64_t>(p, 2),
            parameter<std::uint64_t*>(p, 3), parameter<std::uint32_t*>(p, 4), parameter<std::uint32_t*>(p, 5),
            parameter<std::uint64_t>(p, 6),  parameter<std::uint64_t*>(p, 7)};
}

}  // namespace

OpRef launch_of_gates(Stream* stream, GateRole role, void** p) {
    auto op = std::make_shared<Op>();
    if (role == GateRole::ended) {
        op->instant = [ended = parameter<std::uint64_t*>(p, 0)] { std::atomic_ref(*ended).fetch_add(1); };
        return submit(stream, std::move(op));
    }
    const GateParameters parameters = gate_parameters(p);
    Gate gate{parameters, role == GateRole::replayed};
    op->poll_locked = [gate](Op&, std::int64_t now) mutable { return gate.look(now); };
    op->futex = reinterpret_cast<const std::atomic<std::uint32_t>*>(parameters.go);  // its low half
    return submit(stream, std::move(op));
}

}  // namespace opus::standin
