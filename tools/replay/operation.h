// One call of an operation: where its data lies, what it must hold before and after.
#pragma once

#include "tools/replay/communicators.h"
#include "tools/replay/pattern.h"
#include "tools/replay/workload.h"

namespace opus::replay {

struct Operation {
    const Step* step = nullptr;
    const std::string* comm_name = nullptr;
    ncclComm_t comm = nullptr;
    std::uint32_t rank = 0, size = 0;  // in the communicator
    std::uint32_t iteration = 0;
    std::uint64_t number = 0;  // of this collective, or of the transfer with this peer
    std::uint64_t seed = 0;
    std::size_t count = 0;  // elements, of a part where there are parts
    std::size_t send_bytes = 0, recv_bytes = 0;
    char *send_device = nullptr, *recv_device = nullptr;
    char *send_host = nullptr, *recv_host = nullptr;

    bool root() const { return rank == step->peer; }
};

// Sizes and identity of the next call of `step`; counts it in `comm`. Addresses are the caller's.
Operation next_operation(const Step& step, const std::string& comm_name, CommHandle& comm, std::uint32_t iteration,
                         double scale_bytes);
// Bytes that a call of `step` needs in both buffers together.
std::size_t buffer_bytes(const Step& step, const CommHandle& comm, double scale_bytes);

void call(const Operation& op, cudaStream_t stream);
// Host side, on the stream's own timeline.
void fill(const Operation& op);
// Empty, or the sentence that says what is wrong.
std::string verify(const Operation& op, std::uint32_t world_rank);

}  // namespace opus::replay
