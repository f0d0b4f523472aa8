// Registered windows and device communicators. With a symmetric window NCCL may make AllGathers and ReduceScatters into
// meshes (sym_kernels.cc), and a device communicator's kernels move bytes whenever they like. For the first of either,
// NCCL connects each member with each, on the host (ncclGinConnectOnce, from ncclSymkInitOnce and ncclDevCommCreate).
// Both calls are collective: all members number these connections alike.
//
// The launch of a connection for a device communicator lasts: it is done, and its circuits are free to move, when the
// last device communicator is destroyed, or the communicator is.
#pragma once

#include "shim/communicator.h"
#include "shim/group.h"

namespace opus::shim {

constexpr bool may_spread(OpKind kind) { return kind == OpKind::all_gather || kind == OpKind::reduce_scatter; }

enum class MeshUse : std::uint32_t { window = 0, device = 1 };

// Notes one more use. True: it connects, by `op`.
bool note_mesh(Communicator& c, MeshUse use, ring::OpEntry& op);
// It failed, or has come to its end.
void forget_device_use(Communicator& c);

// The launch `seq` lasts as long as the device communicators of these. Under nobody's lock.
void begin_lasting(Communicator* const* comms, std::uint32_t count, std::uint64_t seq);
void end_lasting(Communicator& c);

}  // namespace opus::shim
