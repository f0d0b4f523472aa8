#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "engine/engine.h"
#include "rails.h"
#include "transport.h"

namespace opus::standin {

namespace {
constexpr std::int64_t kRetry_ns = 50'000'000;
}

RailPort::RailPort(Transport& transport, Rails& rails, const PortLine& line, std::uint64_t endpoint)
    : transport_(transport), rails_(rails), line_(line), endpoint_(endpoint) {}

void RailPort::attach() {
    if (state_ != State::down || now_ns() < retry_at_ns_) return;
    addrinfo hints{}, *found = nullptr;
    hints.ai_family = AF_INET;
    hints.ai_socktype = SOCK_STREAM;
    if (::getaddrinfo(line_.host.c_str(), std::to_string(line_.tcp_port).c_str(), &hints, &found) != 0) {
        down("cannot resolve " + line_.host);
        return;
    }
    fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    in_ = std::make_unique<Inbound>();
    out_.clear();
    out_done_ = 0;
    state_ = State::connecting;
    const int result = ::connect(fd_, found->ai_addr, found->ai_addrlen);
    ::freeaddrinfo(found);
    if (result != 0 && errno != EINPROGRESS) return down(std::strerror(errno));
    want_write_ = true;
    transport_.watch(fd_, EPOLLIN | EPOLLOUT, [this](std::uint32_t events) { on_events(events); });
}

void RailPort::want(bool writing) {
    if (writing == want_write_) return;
    want_write_ = writing;
    transport_.rewatch(fd_, writing ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

void RailPort::on_events(std::uint32_t events) {
    if (state_ == State::connecting) return greet();
    if (events & EPOLLOUT) write();
    if (state_ == State::down || !(events & (EPOLLIN | EPOLLHUP | EPOLLERR))) return;
    const int got = in_->read_from(fd_);
    if (got == 0)
        down("the emulator closed the connection");
    else
        read();
}

void RailPort::greet() {
    int error = 0;
    socklen_t length = sizeof error;
    ::getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &length);
    if (error != 0) return down(std::strerror(error));
    const int on = 1, buffer = 1 << 20;
    ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    ::setsockopt(fd_, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer);
    data_plane::Attach ask{data_plane::kMagic, data_plane::kVersion, line_.switch_port, 0, endpoint_};
    if (::send(fd_, &ask, sizeof ask, MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof ask))
        return down("no greeting sent");
    state_ = State::greeting;
    want(false);
}

void RailPort::read() {
    if (state_ == State::greeting) {
        const std::byte* at = in_->take(sizeof(data_plane::Attached));
        if (!at) return;
        data_plane::Attached answer;
        std::memcpy(&answer, at, sizeof answer);
        if (answer.magic != data_plane::kMagic || answer.status != data_plane::AttachStatus::ok)
            return down("the emulator refused, status " + std::to_string(static_cast<unsigned>(answer.status)));
        state_ = State::attached;
        problem_.clear();
    }
    while (state_ == State::attached) {
        const std::byte* at = in_->peek(sizeof(data_plane::FrameHeader));
        if (!at) return;
        data_plane::FrameHeader header;
        std::memcpy(&header, at, sizeof header);
        if (header.payload_bytes > data_plane::kMaxPayload || header.payload_bytes < sizeof(Head))
            return down("a frame that is none of ours");
        at = in_->take(sizeof header + header.payload_bytes);
        if (!at) return;
        Head head;
        std::memcpy(&head, at + sizeof header, sizeof head);
        if (head.bytes != header.payload_bytes - sizeof head) return down("a frame that is none of ours");
        rails_.frame_came(*this, header.src, head, at + sizeof header + sizeof head);
    }
}

void RailPort::send(std::uint64_t to, FrameRef frame) {
    data_plane::FrameHeader header{};
    header.payload_bytes = static_cast<std::uint32_t>(sizeof(Head)) + frame->head.bytes;
    header.dst = to;
    header.src = endpoint_;
    header.tag = frame->head.seq | (frame->sent_before ? data_plane::kRepetition : 0);
    out_.push_back({header, std::move(frame)});
    if (!want_write_) write();
}

void RailPort::write() {
    while (!out_.empty()) {
        iovec parts[24];
        int count = 0;
        std::size_t skip = out_done_;
        for (auto it = out_.begin(); it != out_.end() && count + 3 <= 24; ++it) {
            const auto add = [&](const void* data, std::size_t size) {
                const std::size_t less = std::min(skip, size);
                skip -= less;
                if (size > less)
                    parts[count++] = {const_cast<std::byte*>(static_cast<const std::byte*>(data)) + less, size - less};
            };
            add(&it->header, sizeof it->header);
            add(&it->frame->head, sizeof it->frame->head);
            if (it->frame->head.bytes) add(it->frame->data, it->frame->head.bytes);
        }
        msghdr message{};
        message.msg_iov = parts;
        message.msg_iovlen = static_cast<std::size_t>(count);
        const ssize_t sent = ::sendmsg(fd_, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0 && errno != EAGAIN) return down(std::strerror(errno));
        if (sent < 0) return want(true);
        out_done_ += static_cast<std::size_t>(sent);
        while (!out_.empty()) {
            const std::size_t whole = sizeof(data_plane::FrameHeader) + out_.front().header.payload_bytes;
            if (out_done_ < whole) break;
            Frame& frame = *out_.front().frame;
            frame.on_port = false;
            frame.sent_before = true;
            frame.sent_ns = now_ns();
            out_done_ -= whole;
            out_.pop_front();
        }
    }
    want(false);
}

void RailPort::purge(const Activity* owner) {
    if (!out_.empty() && out_done_ > 0 && out_.front().frame->owner.get() == owner) {
        out_.front().frame->keep();
        out_.front().frame->owner = nullptr;
    }
    std::erase_if(out_, [&](const Out& o) { return o.frame->owner && o.frame->owner.get() == owner; });
}

void RailPort::down(const std::string& why) {
    problem_ = why;
    retry_at_ns_ = now_ns() + kRetry_ns;
    state_ = State::down;
    if (fd_ >= 0) {
        transport_.unwatch(fd_);
        ::close(fd_);
    }
    fd_ = -1;
    want_write_ = false;
    for (const Out& o : out_) o.frame->on_port = false;  // due again at once
    out_.clear();
    out_done_ = 0;
}

}  // namespace opus::standin
