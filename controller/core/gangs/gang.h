// A gang: launches that must hold their circuits at the same time, waiting for them.
#pragma once

#include <cstdint>
#include <tuple>
#include <vector>

#include "controller/core/gangs/launch.h"

namespace opus::controller {

// A port that a waiting gang wants, and for which pair of GPUs. Reserved: later gangs may not take it.
struct WantedPort {
    PortId port = kNone;
    PairId pair = kNone;
};

struct Gang {
    enum class State : std::uint8_t { waiting, programming };
    // While it waits. For others: a node's session, members that are not known yet, its turn in a plan, a switch that is left alone.
    enum class Sleep : std::uint8_t { no, for_ports, for_others };

    std::uint64_t id = 0;
    std::uint64_t ticket = 0;  // of its oldest part
    bool in_call = false;  // a launch of it is; it goes before gangs without one, which may wait for the ports of its call
    State state = State::waiting;
    std::vector<Launch*> launches;

    // Its needs: circuits of all keys of its launches. `collected` launches have been looked at.
    std::uint64_t stamp = 0;
    std::size_t collected = 0;
    std::uint32_t key_count = 0;
    KeyState* first_key = nullptr;  // the only key when key_count is 1: its plan is cached with its communicator
    bool sorted = true;
    std::vector<PairId> pairs;
    std::uint64_t routable_fence = 0;  // fence_generation + 1 and number of pairs for which a way was found
    std::size_t routable_pairs = 0;

    // While it waits. Only `watch` wakes it (or any port, or a node): one obstacle at a time, so that a gang
    // of n is looked at n times, not n * n.
    Sleep sleep = Sleep::no;
    bool unjudged = false;  // a communicator of it has not all its members yet: its needs are not known
    bool lit = false;       // all circuits up, but reserved by an earlier gang
    bool force = false;     // look at it whole
    bool watch_all = false;
    GpuId watch = kNone;
    std::size_t scan = 0;           // wanted before this one were available
    std::uint64_t looked_step = 0;  // when it was last looked at whole
    std::vector<WantedPort> wanted;

    // While it is programmed.
    std::uint32_t attempt = 0;  // answers to an older attempt do not count
    std::uint32_t pending_ops = 0;
    std::uint32_t failures = 0;

    TimeNs complete_ns = 0;
    struct Since {
        std::uint64_t stamp = 0;
        std::size_t launches = 0;
        TimeNs last_ns = -1;
    };
    mutable Since since;        // Gangs::complete_since
    TimeNs wanted_dark_ns = 0;  // the longest dark time of the ports it wants
    TimeNs blocked_ns = -1;     // since when something held it up
    TimeNs placed_ns = 0;
    TimeNs dark_ns = 0;     // longest time a switch took for it
    TimeNs hold_at_ns = 0;  // 0: no launch of it is held
    TimeNs retry_at_ns = 0;
    bool break_armed = false;
    bool overtook = false;     // it has waited for its turn in a plan in vain
    bool revoked_for = false;  // a run gave way to it: its own has a quantum
    bool queued = false;

    using Order = std::tuple<bool, std::uint64_t, std::uint64_t>;
    Order order() const { return {!in_call, ticket, id}; }
};

}  // namespace opus::controller
