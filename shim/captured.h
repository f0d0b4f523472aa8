// Launches that are captured into CUDA graphs. What NCCL's call captures runs at every replay of the graph, without a call
// of the host. So the gate and its end are captured with it, and count the replays in the slot of the one record that was
// made at the call (opus/launch_ring.h). The graph keeps that slot by a user object, as NCCL keeps its own resources.
//
// Where replays cannot be gated, what is captured is pinned: a launch with a key of its own (pinned_key) is held at the call,
// as behind a host gate, and lasts as long as the graph. Without user objects it lasts as long as its communicator.
//
// Connections are not captured: NCCL makes them at the call, and they are held like those of any call.
#pragma once

#include <nccl.h>

#include <cstdint>

#include "opus/launch_ring.h"
#include "shim/communicator.h"
#include "shim/launch.h"
#include "shim/process.h"

namespace opus::shim {

// What becomes of the replays of what `c` captures. Says once why they are not gated.
enum class Replays { gated, pinned, pass };
Replays hold_of_replays(Communicator& c);

// The operations of `captured`, which are numbered as captured ones, each with its pinned key.
template <class Add>
void pin_each(const ring::OpEntry& captured, Add add) {
    ring::OpEntry pinned = captured;
    pinned.count = 1;
    for (std::uint32_t i = 0; i < captured.count; ++i) {
        pinned.n = pinned_key(captured.n + i);
        add(pinned);
        pinned.bytes = 0;
    }
}

// Records the launch that keeps their circuits. kFull: it could not be.
std::uint64_t record_pin(const ring::OpEntry* ops, std::uint32_t count);
// It has its circuits: it keeps them as long as the graph that `at` captures. False: it does not, and is done.
bool keep_pin(Communicator& c, std::uint64_t seq, const LaunchStream& at);
// Those that last as long as their communicator.
void end_pins(Communicator& c);

// NCCL starts a communicator's kernels in the order of calls and graph launches, whatever streams they are on. A gate that was
// reached before its turn would have its circuits held by a kernel that waits for another's gate, which waits for them. So
// from a communicator's first capture on a gate waits for the end of the launch before it: `follow` stands before the gate,
// `precede` behind what its call has enqueued. `captured`: so does each launch of the graph. Of a launch of several communicators,
// or before what is not held, `precede` stands right behind the gate, and there is no `follow` (group.cpp, ends_as_one).
void follow(const Communicator& c, const LaunchStream& at, bool captured);
void precede(const Communicator& c, const LaunchStream& at, bool captured);

// `op` was numbered as a call's; from the last of its sequence to the first, its numbers are given back. Then, from the
// first on, it is numbered as a captured one. False: too many were.
void give_number_back(Communicator& c, const ring::OpEntry& op);
bool number_captured(Communicator& c, ring::OpEntry& op);

inline constexpr std::uint16_t kCapturedFlags =
    ring::kLaunchReplayed | ring::kLaunchFenced | ring::kLaunchSkips | ring::kLaunchKeepsCounts;

inline bool is_captured(std::uint64_t seq) { return (process.view.record(seq).flags & ring::kLaunchReplayed) != 0; }

// The graph that `stream` captures keeps the slot of `seq`, until it and its executables are gone. False: it does not,
// and the slot is free.
bool keep_with_graph(std::uint64_t seq, const LaunchStream& at);

// Behind what the real call has captured on `streams`.
void capture_end(std::uint64_t seq, const LaunchStream* streams, std::uint32_t count);

}  // namespace opus::shim
