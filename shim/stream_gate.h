// The gate on the GPU's timeline: a kernel that stands before NCCL's own.
#pragma once

#include <cstdint>

#include "shim/communicator.h"

namespace opus::shim {

// Whether a launch on `stream` of a communicator with stream gates may be held by one: not, where the
// choice is ours, if all hardware queues of the device but one have a gated stream already.
bool stream_gate_serves(cudaStream_t stream);

// Loads the kernel into a context and runs it once, open, so that no launch pays for loading. Called
// when a communicator is made. Leaves context.gate null where that does not work.
void prepare_gate(DriverContext& context);

// Enqueues the gate of launch `seq`. In the communicator's context. `fused`: it holds others as well, and opens when any of
// them is ended. False: it could not be.
bool enqueue_gate(const Communicator& c, std::uint64_t seq, cudaStream_t stream, bool fused = false);

// The same of a ring::kLaunchCommGo.
bool enqueue_comm_gate(const Communicator& c, std::uint64_t seq, cudaStream_t stream);

// The same of a launch that is captured on that stream: its graph holds each replay at this gate. enqueue_replay_end says
// behind its kernel that the replay is done.
bool enqueue_replayed_gate(const Communicator& c, std::uint64_t seq, cudaStream_t stream, bool fused = false);
bool enqueue_replay_end(const DriverContext& context, std::uint64_t seq, cudaStream_t stream);

// The communicator of this entry is ended: opens the gates that hold it with others.
void open_fused_gates(std::uint32_t comm);

// What does not change from gate to gate of one communicator.
void fill_gate_arguments(GateArguments& a, const Communicator& c);

}  // namespace opus::shim
