// One client of the data plane: its socket, what has been received and not handled, what waits to be
// sent. Knows nothing of light.
#pragma once

#include <deque>
#include <vector>

#include "tools/emulator/data_plane.h"

namespace opus::emulator {

class DataPlane::Connection : public Watcher {
public:
    static constexpr std::size_t kHighWater = 1u << 20;  // queued bytes from which senders wait
    static constexpr std::size_t kLowWater = 1u << 19;   // ... and go on
    static constexpr std::size_t kCopyBelow = 4096;      // smaller frames are copied: a few bytes must not hold a block

    Connection(DataPlane& plane, int fd) : plane_(plane), fd_(fd) {}
    ~Connection() override;

    void ready(std::uint32_t events) override;

    bool receive();  // false: the client is gone
    bool flush();    // false: the client is gone
    void queue(const BlockRef& block, const char* bytes, std::size_t count);
    void watch();  // tells the loop what this connection waits for

    std::size_t available() const { return end_ - begin_; }
    char* front() const { return block_->bytes() + begin_; }
    const BlockRef& block() const { return block_; }
    void consume(std::size_t count);
    void want_room(std::size_t bytes);  // that many bytes from front() must fit the block

    int fd() const { return fd_; }
    std::size_t queued_bytes() const { return queued_bytes_; }

    bool attached = false, ended = false;
    bool waits = false;  // its first frame cannot be handled yet; nothing is received meanwhile
    bool dirty = false;
    SwitchPort port = 0;
    std::uint64_t endpoint = 0;
    std::vector<Connection*> waiters;  // senders that wait for this queue
    Connection* waits_for = nullptr;
    TimeNs paced_until = 0;

private:
    struct Slice {
        BlockRef block;
        const char* bytes;
        std::size_t count;
    };

    DataPlane& plane_;
    int fd_;
    BlockRef block_;
    std::size_t begin_ = 0, end_ = 0;  // of block_: received, not handled
    std::size_t room_ = 0;             // least capacity of the next block
    std::deque<Slice> out_;
    BlockRef copies_;  // where small frames go
    std::size_t copies_end_ = 0;
    std::size_t queued_bytes_ = 0;
    bool blocked_ = false;       // the socket takes no more
    std::uint32_t watched_ = 1;  // as added: EPOLLIN
};

}  // namespace opus::emulator
