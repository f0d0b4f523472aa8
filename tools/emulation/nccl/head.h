// What the processes of a communicator say to each other: one header and its payload, over a pipe (a
// stream socket between two processes) or as the payload of a data-plane frame.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace opus::standin {

enum class Say : std::uint8_t {
    piece = 1,           // of a collective: n, chunk, hop, offset
    transfer = 2,        // part of a send: n, offset, total
    clear = 3,           // clear to send, collective n
    clear_transfer = 4,  // clear to send, transfer n
    connect = 5,         // first use, from the sending end; n: 0 collective, 1 transfer
    connected = 6,       // its answer
    ack = 7,             // rail frame `seq` has arrived
    // Out of band, over pipes only.
    hello_root = 16,  // to the process of the unique id; payload: Member
    table = 17,       // its answer: all members
    hello_peer = 18,  // n: endpoint of the caller
    mail = 19,        // n: tag
    gone = 20,        // rank src has left the communicator; n: 1 if by abort
};

// The NICs that a hop uses, by the local indices of their GPUs: where it leaves, and where it arrives.
struct Way {
    std::uint8_t from = 0, to = 0;
    auto operator<=>(const Way&) const = default;
    Way back() const { return {to, from}; }
};
inline constexpr Way kNvlink{0xff, 0xff};  // no NIC

struct Head {
    Say say{};
    Way way;
    std::uint8_t reserved = 0;
    std::uint32_t bytes = 0;  // of the payload
    std::uint64_t comm = 0;
    std::uint32_t src = 0;  // ranks in the communicator: this hop's ends
    std::uint32_t dst = 0;
    std::uint64_t n = 0;       // number of the collective, or of the transfer src -> dst
    std::uint64_t offset = 0;  // bytes into the chunk or the transfer
    std::uint64_t total = 0;   // bytes of the transfer
    std::uint32_t chunk = 0;
    std::uint32_t hop = 0;
    std::uint64_t seq = 0;  // rail frames: number on their link, from 1
};
static_assert(sizeof(Head) == 64);

inline constexpr std::uint32_t kPieceBytes = 128 * 1024;
inline constexpr std::uint32_t kMaxSayBytes = 1u << 20;

// Where a rank of a communicator is.
struct Member {
    std::uint64_t endpoint = 0;  // of its process; unique in the fabric
    std::uint32_t node = 0;      // fabric node index
    std::uint32_t gpu = 0;       // local index on the node
    std::uint32_t device = 0;    // CUDA ordinal in its process
    std::uint16_t port = 0;      // TCP, loopback
    std::uint8_t own_nic = 0;    // 1: what it sends leaves by its own GPU's NIC, whatever the receiver's is
    std::uint8_t domain = 0;     // NVLink domain, from 1; 0: NVLink ends at the host
};
static_assert(sizeof(Member) == 24);

struct Frame;
using FrameRef = std::shared_ptr<Frame>;

// What frames are sent for: a launch, the making of connections. Lives on the transport thread.
struct Activity {
    std::uint64_t undelivered = 0;
    virtual ~Activity() = default;
    virtual void check() = 0;           // something arrived or was delivered: finished?
    virtual void fail(int result) = 0;  // ncclResult_t
};
using ActivityRef = std::shared_ptr<Activity>;

struct Frame {
    Head head;
    const std::byte* data = nullptr;
    std::unique_ptr<std::byte[]> owned;  // data, where it is not the user's
    ActivityRef owner;                   // null: nobody waits for it
    // Rail frames only.
    std::int64_t sent_ns = 0;  // 0: not out of the socket yet
    bool on_port = false;      // in a port's queue
    bool sent_before = false;
    bool arrived = false;  // its receiver has left in good order: it needs no answer

    // The user's memory is going away: keep a copy.
    void keep();
};

}  // namespace opus::standin
