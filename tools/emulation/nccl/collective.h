// Collectives and transfers under way, as data flow: a piece that arrives is reduced, stored, passed on,
// at once and in any order. No buffers but for pieces on their way. Transport thread only.
//
// Every collective is made of chunks that travel some hops round the ring from a starting position.
// AllReduce: n chunks, 2(n-1) hops: reduced on the way to the last, then copied. ReduceScatter: the first
// half; AllGather: the second. Broadcast, Reduce: one chunk. AlltoAll, Gather and Scatter are transfers
// between their ranks, as in NCCL.
//
// What arrives at position p for chunk c at hop h is fixed, and so is the order of additions: the numbers
// do not depend on time.
#pragma once

#include <vector>

#include "comm_core.h"
#include "number.h"

namespace opus::standin {

struct Launch;

enum class CollectiveKind : std::uint8_t {
    all_reduce,
    all_gather,
    reduce_scatter,
    reduce,
    broadcast,
    all_to_all,
    gather,
    scatter,
};

struct CollectiveCall {
    CollectiveKind kind{};
    std::uint64_t n = 0;  // number on its communicator
    const std::byte* send = nullptr;
    std::byte* receive = nullptr;
    std::size_t count = 0;  // elements, as the NCCL function counts
    Reduction reduction;
    std::uint32_t root = 0;
};

// A collective's transfers are numbered apart from the user's: this, and its number.
inline constexpr std::uint64_t kOfCollective = 1ull << 63;

struct TransferCall {
    bool sending = false;
    std::uint32_t peer = 0;
    std::uint64_t n = 0;
    std::byte* buffer = nullptr;
    std::size_t bytes = 0;
};

// AlltoAll, Gather, Scatter as what `rank` of `ranks` sends and receives.
bool is_transfers(CollectiveKind kind);
std::vector<TransferCall> transfers_of(const CollectiveCall& call, std::uint32_t rank, std::uint32_t ranks);

class Collective {
public:
    Collective(Launch& launch, CommCore& core, const CollectiveCall& call);
    void start();
    void clear_came();  // the next in the ring is in the same collective
    void piece_came(const Head& head, const std::byte* data);
    bool done() const { return arrived_ == expected_ && originated_; }
    void drop() { held_.clear(); }  // the launch ends: what waits here would keep it, and it keeps us
    std::uint64_t number() const { return call_.n; }
    Launch& launch() { return launch_; }

private:
    struct Path {
        std::uint32_t start = 0;  // position
        std::uint32_t hops = 0;
        std::size_t elements = 0;
        std::size_t mine_at = 0;  // element of this rank's send buffer that this chunk means, if any
        std::size_t out_at = 0;   // likewise of the receive buffer
    };
    std::uint32_t chunks() const;
    Path path(std::uint32_t chunk) const;
    void alone();
    void originate(std::uint32_t chunk, const Path& path);
    void pass_on(std::uint32_t chunk, std::uint32_t hop, std::size_t offset, std::size_t bytes, const std::byte* data,
                 std::unique_ptr<std::byte[]> owned);
    std::uint64_t pieces(const Path& path) const;

    Launch& launch_;
    CommCore& core_;
    CollectiveCall call_;
    std::size_t size_of_;
    std::uint32_t ranks_;
    std::uint64_t expected_ = 0, arrived_ = 0;
    bool originated_ = false;
    std::vector<std::pair<Way, FrameRef>> held_;  // came before the next in the ring was clear
};

class Transfer {
public:
    Transfer(Launch& launch, CommCore& core, const TransferCall& call);
    void start();
    void clear_came();
    void part_came(const Head& head, const std::byte* data);
    bool done() const { return met_ && done_bytes_ >= bytes_; }
    const TransferCall& call() const { return call_; }
    Launch& launch() { return launch_; }

private:
    Launch& launch_;
    CommCore& core_;
    TransferCall call_;
    bool met_ = false;  // it is clear to send, or a part has come
    std::size_t bytes_, done_bytes_ = 0;
};

}  // namespace opus::standin
