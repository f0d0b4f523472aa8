// One rank process of this node: its communicators and its launches, in ring order.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "manager/core/core.h"
#include "manager/core/keys.h"
#include "opus/launch_ring.h"
#include "opus/wire.h"

namespace opus::manager {

// recorded ─gate reached, its families' turn─▶ waiting ─token─▶ started ◀──▶ suspended ─▶ done
//                                                 └──pass, no verdict to wait for──▶ passed ─▶ done
// In a run there is a shorter way (early_releases.cpp); a launch on it is recorded until its gate is known to be
// reached: recorded ─go stored early─▶ released ─gate reached─▶ started
//     ▲                          └──run revoked──▶ retracting ─gate reached all the same─▶ started
//     └──────────────────────────────────────────────────┘ not reached
// One that is recorded when the go word of its communicator is beyond it already is released from then on.
// What is captured into a graph stays captured until that is gone; its replays are launches beside it.
enum class Phase : std::uint8_t { recorded, waiting, started, suspended, passed, done, captured };

enum class EarlyRelease : std::uint8_t { no, released, retracting };

struct Launch {
    std::uint64_t seq = 0;
    std::uint32_t slots = 1;
    std::uint16_t flags = 0;
    ring::Gate gate{};
    std::uint64_t stream = 0;
    OpKind op = OpKind::none;  // of the first op, for people
    std::uint64_t bytes = 0;
    std::vector<LaunchKey> keys;
    std::vector<std::uint16_t> members;  // communicator entries it touches
    std::vector<std::uint32_t> families;

    Phase phase = Phase::recorded;
    EarlyRelease early = EarlyRelease::no;  // only in Phase::recorded
    bool reached = false;        // ready word seen
    bool firm = false;           // `grant` names it
    bool asked = false;          // in a Demand or Snapshot of this session
    bool known_running = false;  // a Returned or a snapshot said that it started under a run
    bool reported = false;       // the controller has ever heard of it: it must hear of its end
    bool unreported = false;     // done under a run, and the controller has not heard of it
    bool overtaken = false;      // the ring is retired beyond it; its slots are marked occupied
    std::uint64_t grant = 0;     // token it may start, or has started, under
    std::string misses;          // what the controller last said that it waits for
    TimeNs waiting_since = 0;
    std::int64_t ready_ns = 0, go_ns = 0, done_ns = 0;  // real time: what the controller learns from

    // What comes after it in its stream is reached when it is done.
    bool in_stream_order() const {
        return gate == ring::Gate::stream && (flags & (ring::kLaunchConn | ring::kLaunchHostDone)) == 0;
    }
    // Its host has come to it, its streams may not have: what runs there before it, nobody here sees. Connections are
    // made by the host alone, and what lasts does so whatever runs.
    bool behind_streams() const {
        return gate == ring::Gate::host && (flags & (ring::kLaunchConn | ring::kLaunchLasts)) == 0;
    }
    // With the call itself, or before it.
    bool connects() const {
        return std::any_of(keys.begin(), keys.end(),
                           [](const LaunchKey& key) { return is_connection(key.range.first.kind); });
    }
    bool may_be_released_early() const {
        return phase == Phase::recorded && early == EarlyRelease::no && !firm && !ungated() &&
               (flags & ring::kLaunchFenced) != 0;
    }
    // Several communicators behind one stream gate, and it is open: what comes next on one of them need not wait for all.
    // Connections that are being made: their call returns when CUDA lets it, which may be after the gate of that very call.
    bool lets_pass() const {
        return running() && ((gate == ring::Gate::stream && stands_apart()) || (flags & ring::kLaunchConn) != 0);
    }
    // Its gate looks at the go word of its communicator.
    bool by_comm_go() const {
        const std::uint16_t with = ring::kLaunchCommGo | ring::kLaunchFenced;
        const std::uint16_t without = ring::kLaunchReplayed | ring::kLaunchUngated | ring::kLaunchMixed;
        return (flags & (with | without)) == with && in_stream_order() && members.size() == 1;
    }
    std::uint32_t go_comm() const { return by_comm_go() ? members.front() : kNone; }
    bool stands_apart() const { return families.size() > 1 || mixed(); }
    bool mixed() const { return (flags & ring::kLaunchMixed) != 0; }  // also of a communicator that is not held
    std::uint64_t end() const { return seq + slots; }  // in the ring
    bool ungated() const { return (flags & ring::kLaunchUngated) != 0; }
    // Recorded, and to come to its end without the host: not what is captured, nor a replay that may never come.
    bool is_under_way() const { return phase != Phase::done && phase != Phase::captured && !may_never_come(); }
    bool may_never_come() const { return is_replay(seq) && phase == Phase::recorded && !reached; }
    bool pending() const { return phase == Phase::recorded || phase == Phase::waiting; }
    bool running() const { return phase == Phase::started || phase == Phase::suspended || phase == Phase::passed; }
};

struct Member {
    wire::CommMember info;
    GpuIdentity gpu;
    std::uint32_t gpu_by_ordinal = kNone;  // local index, as good as that is
    std::uint32_t family = 0;
    Verdict verdict = Verdict::unknown;
    TimeNs since = 0;               // registered, or since NCCL's creation has returned
    bool renamed = false;           // it registered by another id than info.comm
    bool retired = false;           // destroyed by the application; freed when its launches are done
    bool lost = false;              // launches passed unrecorded: tell the controller until it degrades it
    std::uint32_t outstanding = 0;  // launches not done
    std::unordered_map<Key, std::uint64_t> finished;  // per sequence: keys below are done
    // Its go word, as far as that lies ahead of what is recorded, or lay when it was retracted, until that is answered.
    std::uint64_t ahead = 0, retracted_ahead = 0;
    std::optional<Key> next;  // of its collectives, behind the last, once launches have looked at that word

    // Its creator does; while NCCL's creation goes on there is nobody yet to wait.
    bool awaits_verdict() const { return verdict == Verdict::unknown && info.creation != CreationState::entered; }
};

// A communicator's entry that is to be free when the ring is retired so far, and no launch that was overtaken names it:
// until then its records do, and a manager that starts anew reads them.
struct Freeing {
    std::uint16_t index = 0;
    std::uint32_t generation = 0;
    std::uint64_t upto = 0;
};

class Rank {
public:
    // A hostile rank must not make us remember without end.
    static constexpr std::size_t kMaxSequences = 1u << 17;
    // Slots that are done are kept for a manager that starts anew, if they were not reported; not many more than so
    // many, nor than a quarter of the ring.
    static constexpr std::uint32_t kMaxKeptSlots = 128;

    wire::RankInfo info;
    Mode mode = Mode::enforce;
    std::array<std::unique_ptr<Member>, ring::kMaxComms> members;
    std::uint32_t used = 0;       // no member at or beyond this entry
    std::uint32_t placed_by = kNone;  // the entry from which info.gpu comes
    std::deque<Launch> launches;  // by seq: those overtaken, then those not retired
    std::map<std::uint64_t, Launch> replays;  // by seq (is_replay), not done
    std::uint32_t capacity = ring::kDefaultSlots;  // slots of the ring
    std::vector<Freeing> freeing;
    std::map<std::uint32_t, CommId> entering;  // by entry: inside NCCL's creation, without a place yet
    std::vector<std::uint64_t> waiting;  // launches in Phase::waiting
    std::size_t sequences = 0;           // entries of all `finished`
    bool early_release_due = false;      // there may be something to release early
    // Of replays: those recorded since, or all of them.
    std::vector<std::uint64_t> replays_due;
    bool all_replays_due = false;
    bool held_back = false;              // something is recorded that has not been let go
    std::uint64_t recorded_upto = 0;     // the launches read so far lie below
    bool recovered = false;   // an earlier manager served it
    std::uint32_t kept_most = kMaxKeptSlots;
    std::uint64_t unreported = 0;  // slots of launches that are `unreported`

    template <class F>
    void each(F visit) {
        for (Launch& launch : launches) visit(launch);
        for (auto& [seq, launch] : replays) visit(launch);
    }
    template <class F>
    void each(F visit) const {
        for (const Launch& launch : launches) visit(launch);
        for (const auto& [seq, launch] : replays) visit(launch);
    }
    Launch* find(std::uint64_t seq);
    const Launch* find(std::uint64_t seq) const;
    // Takes a launch at the end of the ring order, or a replay. False: out of order, not taken.
    bool append(Launch launch);
    // Every earlier launch of its families is done, or lets others pass; behind a host gate: has been let go. Of
    // several families behind one stream gate one is enough: which of their kernels NCCL starts first it tells nobody,
    // and the first waits for its own communicator's alone. What is not held is one of them, and may always be the first.
    // Where in that order a replay was launched nobody here sees: it comes when its gate does.
    bool has_turn(const Launch& launch) const;
    // Behind a stream gate, and an earlier launch of its families is not done: it may have to wait for that, go or not. Gates of
    // replays are reached in the order of their communicator, but for those of several: what is before these nobody here sees. Nor
    // where in the order a replay of another communicator stands that shares its resources, whether it has come or not.
    bool is_behind_own(const Launch& launch) const;
    static constexpr std::uint64_t kNoLaunch = ~std::uint64_t{0};
    std::uint64_t next_of(std::uint32_t family, std::uint64_t seq) const;  // that is not done
    // A communicator that shares its resources is not held: what runs there before it, nobody here sees.
    bool shares_unheld(const Launch& launch) const;
    // A call that was recorded before it still makes its connections. It may be its own: then its kernel comes after.
    bool is_connecting_before(const Launch& launch) const;
    void leave(const Launch& launch);  // it ended
    void stop_waiting(const Launch& launch);
    void replay_has_come() { replays_ = true; }
    void set_all_due() { early_release_due = all_replays_due = true; }
    void set_done(Launch& launch);
    void set_unreported(Launch& launch);
    void note_finished(const Launch& launch);
    // An earlier manager saw the launches through that come before the first of its sequence found in the ring.
    void imply_finished(const Launch& first);
    // The replay that was to come next, if its gate was not reached.
    void forget_replays(const Launch& captured);
    // It saw so many replays of a captured launch through.
    void imply_replayed(const Launch& captured, std::uint64_t replays);
    // Forgets what is done, in ring order; where it is short, what is done or was skipped behind others too, which are overtaken.
    // `keep`: not those that are unreported, nor in ring order those behind them. What the ring is to be told; upto 0: no further.
    Retired retire(bool keep);
    bool is_short() const;  // few slots or entries are left, or what is free lies between launches that were passed over
    bool is_crowded() const;                    // that, and some could be freed but for what is unreported
    bool is_named(const Freeing& entry) const;  // by a record that is not retired, or overtaken
    std::uint64_t kept_slots() const;  // done, and not retired
    // Nothing is unreported any more, or nothing more is known of it.
    void forget_unreported();
    // Behind the last slot that names this communicator entry and is not retired; 0: none.
    std::uint64_t last_use(std::uint16_t index) const;
    MemberLookup lookup() const;
    std::string check() const;

private:
    static constexpr std::size_t kMostIdleFamilies = 256;

    bool is_next_of(std::uint32_t family, const Launch& launch) const;
    bool all_let_go(const std::deque<std::uint64_t>& order, std::uint64_t upto) const;
    void overtake(bool keep, Retired& r);
    bool has_few_left() const;
    std::uint64_t used_slots() const;
    std::uint64_t skipped_slots() const;
    std::uint64_t least_freed() const;

    bool skips_ = false;          // its shim knows occupied slots
    bool replays_ = false;        // a replay has come
    std::vector<std::uint64_t> replays_done_;  // not forgotten yet
    std::size_t overtaken_ = 0;   // so many launches, the first ones
    std::uint64_t occupied_ = 0;  // their slots
    std::uint64_t slots_ = 0;     // of all launches
    std::uint64_t over_ = 0;      // slots of launches that are done, and not forgotten
    // Launches not done, in ring order. A family that is idle keeps its place: it comes again.
    std::unordered_map<std::uint32_t, std::deque<std::uint64_t>> families_;
};

}  // namespace opus::manager
