// A launch while it is played.
#pragma once

#include <cstdint>
#include <vector>

#include "test/sim/scenario.h"

namespace opus::sim {

using LaunchIndex = std::uint32_t;
inline constexpr std::uint64_t kUnrecorded = ~0ull;

struct LaunchRun {
    std::uint32_t rank = 0;
    const std::vector<Part>* parts = nullptr;
    const LaunchPlan* plan = nullptr;  // null: connections
    std::uint64_t seq = kUnrecorded;
    std::uint32_t slots = 0;  // of the ring, from there on
    std::uint32_t go_comm = kNone;  // the entry whose go word its gate looks at
    enum class State : std::uint8_t { issued, reached, running, done } state{};
    bool named = false;           // by a grant that has come to its manager
    bool granted = false;         // by a controller
    bool demanded = false;        // a controller, the living one or one before it, has heard of it
    bool unheard = false;         // started under a run, and no controller knows yet
    bool given_up = false;        // with its node, by a controller: nobody had heard of it for the grace time
    bool opened = false;          // its gate has let it through
    bool go = false;              // its go word is stored
    bool abort = false;           // ... with the order to fail
    bool pass_sent = false;       // a controller has decided so
    bool told_pass = false;       // by a Pass that has come to its manager
    bool passed = false;          // its gate opened without a grant
    bool suspended = false;       // by a controller's decision
    bool told_suspended = false;  // as its manager has heard
    bool forgotten = false;       // by a shim that is wrong (Mutation): unrecorded, and needs light all the same
    bool connects = false;        // its call makes connections
    bool called = true;           // the real call has returned: its kernels stand in their streams
    bool free() const { return passed || (seq == kUnrecorded && !forgotten); }
    bool runs() const { return state == State::running; }
    std::uint64_t grant_life = 0;   // of the controller that granted it
    std::uint64_t listed_life = 0;  // ... that has heard since it was suspended that it is in flight
    TimeNs granted_ns = 0;
    std::uint64_t grant = 0;
    std::uint64_t heard = 0;  // when its demand came, among all demands
    std::uint32_t left = 0;   // kernels; of connections, parts
    std::uint64_t unheld = 0;  // parts, by bit, of communicators that were not held when it was recorded: by another network
    TimeNs reached_ns = 0, done_ns = 0;
    bool is_unheld(const Part& part) const {
        for (std::size_t i = 0; i < parts->size() && i < 64; ++i)
            if ((*parts)[i].flow == part.flow) return (unheld >> i & 1) != 0;
        return false;
    }
};

}  // namespace opus::sim
