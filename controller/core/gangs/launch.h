// Launches and the keys they meet at. Plain records, which many rooms change; Launches makes and ends them.
#pragma once

#include <cstdint>
#include <vector>

#include "opus/types.h"
#include "opus/wire.h"

namespace opus::controller {

struct Comm;
struct Gang;
struct KeyState;

using PairId = std::uint32_t;  // a pair of GPUs that light may join (inventory.h)

// ready ──its gang takes its ports──▶ committed ──all switches confirmed──▶ in flight ──▶ done (erased)
//   │                                     ▲                                   │
//   └──pass──▶ suspended ─────────────────┘◀──────────suspend─────────────────┘
enum class Stage : std::uint8_t { ready, committed, in_flight, suspended };

// Passed: opened without circuits, by decision or by its manager.
enum class Gate : std::uint8_t { held, granted, passed };
// Of a launch that was adopted in flight. Kept: until they are known the lit ports of its nodes stay.
enum class Known : std::uint8_t { yes, no, no_and_kept };

struct KeyRef {
    KeyState* key = nullptr;
    std::uint32_t slot = 0;  // which member of the key
};

struct Launch {
    LaunchId id;
    std::vector<KeyRef> keys;
    OpKind op = OpKind::none;
    std::uint64_t bytes = 0;
    Stage stage = Stage::ready;
    Gate gate = Gate::held;
    bool alone = false;     // waits in a gang of its own: with others it would need more than ports can do
    bool no_light = false;  // no circuits are brought: aborted, or impossible
    bool mixed = false;     // part of it is of a communicator that is not held: whom it meets there is not seen
    bool behind = false;    // may wait for kernels that nobody here is told of, granted or not
    bool connects = false;  // first uses alone: over when their call returns, for which CUDA may wait for the whole device
    bool in_call = false;    // its gate is closed, and first uses of its rank hold their ports until their call returns
    bool given_up = false;   // with its node, before it was told of: its circuits may have been moved
    Known circuits_known = Known::yes;
    Gang* gang = nullptr;    // while it waits for circuits
    std::uint32_t gang_pos = 0;
    std::uint64_t grant = 0;     // with which it was given its circuits last
    std::uint64_t began = 0;     // and with which it was let go
    std::uint32_t circuits = 0;  // with which it was granted: of each of its gang's pairs, at least
    std::uint64_t suspended_step = 0;
    std::uint64_t awaited = 0;  // whom it waited for when it was suspended (Suspension::awaited_by)
    std::uint32_t in_vain = 0;  // times that it was, with nobody having come since the time before
    TimeNs since_ns = 0;        // when it was demanded
    TimeNs complete_ns = 0;     // when its gang became complete with it
    TimeNs start_ns = 0;        // when its circuits were last given to it
    std::uint64_t mark = 0;     // of the current walk (World::mark)
    std::uint32_t part = 0;     // of those that it is tied to by keys, in that walk

    bool open() const { return gate != Gate::held; }  // it runs, whatever its circuits
    bool passed() const { return gate == Gate::passed; }
    bool waits() const { return stage == Stage::ready || stage == Stage::suspended; }
};

enum class Presence : std::uint8_t { absent, present, done, dead };

struct KeyMember {
    Launch* launch = nullptr;  // while present
    Presence presence = Presence::absent;
};

inline bool is_collective(const Key& key) { return !is_directed(key.kind); }
// The rank in the communicator that has this place among the members of the key.
inline std::uint32_t slot_of(const Key& key, std::uint32_t place) {
    return is_collective(key) ? place : place == 0 ? key.src : key.dst;
}
// The other way: kNone if that rank is no member.
inline std::uint32_t place_of(const Key& key, std::uint32_t slot) {
    if (is_collective(key)) return slot;
    return slot == key.src ? 0 : slot == key.dst && key.kind != KeyKind::put ? 1 : kNone;
}

// By member of a sequence's keys: numbers below this are done.
using Finished = std::vector<std::uint64_t>;
inline constexpr std::uint64_t kAllFinished = ~std::uint64_t{0};

// What has been heard of a key. Erased when every member that lives has done it.
struct KeyState {
    Key key;
    Comm* comm = nullptr;
    Finished* finished = nullptr;  // of its sequence
    bool mesh = false;
    bool held = false;          // its circuits may not move: counted in GpuPair::holders
    bool cut = false;           // somebody started it under a run that was revoked
    bool dropped = false;       // done members alone no longer hold its circuits (suspension)
    std::uint32_t missing = 0;  // members absent or dead
    std::uint32_t left = 0;     // members that are neither done nor dead
    std::uint32_t done = 0;
    std::uint32_t in_flight = 0;     // members whose launch is in flight
    std::uint64_t seen_by = 0;       // Gang::stamp that counted its circuits last
    std::uint64_t mark = 0;          // of the current walk (World::mark)
    PairId pair = kNone;             // of a transfer, once known
    std::vector<KeyMember> members;  // collectives: by rank; transfers: sender, receiver; one-sided: sender

    bool full() const { return missing == 0 && left > 0; }
    // A transfer whose receiver is through with it. Its sender still runs, for something else that is seen.
    bool arrived() const {
        const Launch* sender = key.kind == KeyKind::p2p ? members[0].launch : nullptr;
        return members.back().presence == Presence::done && sender != nullptr && sender->open() && !sender->mixed;
    }
};

// Of a key that nobody need have named: as much as its circuits follow from.
inline KeyState stand_in(Comm& comm, const Key& key, bool mesh) {
    KeyState state;
    state.key = key;
    state.comm = &comm;
    state.mesh = mesh;
    return state;
}

}  // namespace opus::controller
