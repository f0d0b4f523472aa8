#include "tools/emulator/data_connection.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace opus::emulator {

static_assert(EPOLLIN == 1);

DataPlane::Connection::~Connection() { close(fd_); }

void DataPlane::Connection::ready(std::uint32_t events) {
    if (ended) return;
    bool alive = !(events & (EPOLLERR | EPOLLHUP));
    if (alive && (events & EPOLLOUT)) alive = flush();
    if (alive && (events & EPOLLIN) && !waits) {
        alive = receive();
        if (alive) plane_.take_frames(*this);
    }
    if (!alive) plane_.end(*this);
    plane_.settle();
}

bool DataPlane::Connection::receive() {
    if (!block_ || end_ == block_->capacity || begin_ + room_ > block_->capacity) {
        BlockRef next = plane_.pool_.take(std::max(room_, available() + 1));
        if (available()) std::memcpy(next->bytes(), front(), available());
        end_ = available();
        begin_ = 0;
        block_ = std::move(next);
    }
    const ssize_t count = recv(fd_, block_->bytes() + end_, block_->capacity - end_, 0);
    if (count == 0) return false;
    if (count < 0) return errno == EAGAIN || errno == EINTR;
    end_ += static_cast<std::size_t>(count);
    return true;
}

void DataPlane::Connection::consume(std::size_t count) {
    begin_ += count;
    room_ = 0;
    if (begin_ < end_) return;
    // Nothing left: an idle connection holds no block; a block that nobody else holds starts over.
    begin_ = end_ = 0;
    block_ = {};
}

void DataPlane::Connection::want_room(std::size_t bytes) { room_ = bytes; }

void DataPlane::Connection::queue(const BlockRef& block, const char* bytes, std::size_t count) {
    queued_bytes_ += count;
    BlockRef source = block;
    if (count < kCopyBelow) {
        if (!copies_ || copies_end_ + count > copies_->capacity) {
            copies_ = plane_.pool_.take();
            copies_end_ = 0;
        }
        char* copy = copies_->bytes() + copies_end_;
        std::memcpy(copy, bytes, count);
        copies_end_ += count;
        bytes = copy;
        source = copies_;
    }
    if (!out_.empty() && out_.back().block == source && out_.back().bytes + out_.back().count == bytes)
        out_.back().count += count;
    else
        out_.push_back({std::move(source), bytes, count});
}

bool DataPlane::Connection::flush() {
    blocked_ = false;
    while (!out_.empty() && !blocked_) {
        iovec pieces[32];
        std::size_t count = 0;
        for (auto it = out_.begin(); it != out_.end() && count < 32; ++it)
            pieces[count++] = {const_cast<char*>(it->bytes), it->count};
        msghdr message{};
        message.msg_iov = pieces;
        message.msg_iovlen = count;
        const ssize_t sent = sendmsg(fd_, &message, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0 && errno != EAGAIN) return false;
        std::size_t left = sent < 0 ? 0 : static_cast<std::size_t>(sent);
        if (sent < 0) blocked_ = true;
        queued_bytes_ -= left;
        while (left) {
            Slice& slice = out_.front();
            const std::size_t part = std::min(left, slice.count);
            slice.bytes += part;
            slice.count -= part;
            left -= part;
            if (slice.count == 0) out_.pop_front();
        }
    }
    if (out_.empty()) copies_ = {};
    if (queued_bytes_ <= kLowWater && !waiters.empty()) plane_.resume_waiters(*this);
    watch();
    return true;
}

void DataPlane::Connection::watch() {
    const std::uint32_t wanted = (waits ? 0u : std::uint32_t(EPOLLIN)) | (blocked_ ? std::uint32_t(EPOLLOUT) : 0u);
    if (wanted == watched_ || ended) return;
    plane_.loop_.change(fd_, wanted, this);
    watched_ = wanted;
}

}  // namespace opus::emulator
