#include "pipe.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "transport.h"

namespace opus::standin {

void Frame::keep() {
    if (owned || head.bytes == 0) return;
    owned = std::make_unique<std::byte[]>(head.bytes);
    std::memcpy(owned.get(), data, head.bytes);
    data = owned.get();
}

std::string unix_name(std::uint64_t endpoint) {
    char text[40];
    std::snprintf(text, sizeof text, "opus-standin-%016llx", static_cast<unsigned long long>(endpoint));
    return std::string(1, '\0') + text;
}

// --- Inbound ---------------------------------------------------------------------------------------------

int Inbound::read_from(int fd) {
    if (begin_ > 0) {
        std::memmove(bytes_.data(), bytes_.data() + begin_, end_ - begin_);
        end_ -= begin_;
        begin_ = 0;
    }
    if (end_ == bytes_.size()) return 0;  // a frame larger than any that is sent
    const ssize_t got = ::read(fd, bytes_.data() + end_, bytes_.size() - end_);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return -1;
    if (got <= 0) return 0;
    end_ += static_cast<std::size_t>(got);
    return 1;
}

void Inbound::feed(const std::string& bytes) {
    std::memcpy(bytes_.data() + end_, bytes.data(), bytes.size());
    end_ += bytes.size();
}

const std::byte* Inbound::peek(std::size_t size) const {
    return end_ - begin_ < size ? nullptr : bytes_.data() + begin_;
}

const std::byte* Inbound::take(std::size_t size) {
    const std::byte* at = peek(size);
    if (at) begin_ += size;
    return at;
}

// --- Pipe ------------------------------------------------------------------------------------------------

Pipe::Pipe(Transport& transport, const Member& peer, std::uint64_t self)
    : transport_(transport), peer_(peer), self_(self) {}

Pipe::~Pipe() {
    if (fd_ >= 0) ::close(fd_);
}

void Pipe::connect(std::uint32_t my_node) {
    sockaddr_storage address{};
    socklen_t length = 0;
    int family = AF_INET;
    if (peer_.node == my_node) {
        family = AF_UNIX;
        auto& un = reinterpret_cast<sockaddr_un&>(address);
        const std::string name = unix_name(peer_.endpoint);
        un.sun_family = AF_UNIX;
        std::memcpy(un.sun_path, name.data(), name.size());
        length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
    } else {
        auto& in = reinterpret_cast<sockaddr_in&>(address);
        in.sin_family = AF_INET;
        in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        in.sin_port = htons(peer_.port);
        length = sizeof in;
    }
    // A blocking connect: the listener is another process's transport, already listening.
    fd_ = ::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd_ < 0 || ::connect(fd_, reinterpret_cast<sockaddr*>(&address), length) != 0) {
        close();
        return;
    }
    Head hello;
    hello.say = Say::hello_peer;
    hello.n = self_;
    if (::send(fd_, &hello, sizeof hello, MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof hello)) {
        close();
        return;
    }
    accepted(fd_, {});
}

void Pipe::accepted(int fd, const std::string& rest) {
    fd_ = fd;
    const int on = 1;
    ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    const int buffer = 1 << 20;
    ::setsockopt(fd_, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer);
    in_.feed(rest);
    transport_.watch(fd_, EPOLLIN, [this](std::uint32_t events) { on_events(events); });
    read();
    if (!closed_) write();
}

void Pipe::send(FrameRef frame) {
    if (closed_ || unheard_) return;  // its communicators have failed, or are about to, or it has left them
    out_.push_back(std::move(frame));
    if (fd_ >= 0 && !want_write_) write();
}

void Pipe::on_events(std::uint32_t events) {
    if (events & EPOLLOUT) write();
    if (closed_ || !(events & (EPOLLIN | EPOLLHUP | EPOLLERR))) return;
    const int got = in_.read_from(fd_);
    if (got == 0)
        close();
    else
        read();
}

void Pipe::read() {
    while (!closed_) {
        const std::byte* at = in_.peek(sizeof(Head));
        if (!at) return;
        Head head;
        std::memcpy(&head, at, sizeof head);
        if (head.bytes > kMaxSayBytes) return close();
        at = in_.take(sizeof head + head.bytes);
        if (!at) return;
        transport_.arrived(head, at + sizeof head);
    }
}

void Pipe::write() {
    while (!out_.empty()) {
        iovec parts[32];
        int count = 0;
        std::size_t skip = out_done_;
        for (auto it = out_.begin(); it != out_.end() && count + 2 <= 32; ++it) {
            const Frame& f = **it;
            const auto add = [&](const void* data, std::size_t size) {
                const std::size_t less = std::min(skip, size);
                skip -= less;
                if (size > less)
                    parts[count++] = {const_cast<std::byte*>(static_cast<const std::byte*>(data)) + less, size - less};
            };
            add(&f.head, sizeof f.head);
            if (f.head.bytes) add(f.data, f.head.bytes);
        }
        msghdr message{};
        message.msg_iov = parts;
        message.msg_iovlen = static_cast<std::size_t>(count);
        const ssize_t sent = ::sendmsg(fd_, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0 && (errno == EPIPE || errno == ECONNRESET)) return unheard();
        if (sent < 0 && errno != EAGAIN) return close();
        if (sent < 0) {
            if (!want_write_) transport_.rewatch(fd_, EPOLLIN | EPOLLOUT);
            want_write_ = true;
            return;
        }
        out_done_ += static_cast<std::size_t>(sent);
        while (!out_.empty() && out_done_ >= sizeof(Head) + out_.front()->head.bytes) {
            const FrameRef frame = out_.front();
            out_done_ -= sizeof(Head) + frame->head.bytes;
            out_.pop_front();
            transport_.delivered(frame);
            if (closed_) return;
        }
    }
    if (want_write_) transport_.rewatch(fd_, EPOLLIN);
    want_write_ = false;
}

// The peer reads no more. What it said before it went is still to be read, above all which communicators it has left in
// good order; its end comes behind that.
void Pipe::unheard() {
    unheard_ = true;
    out_.clear();
    out_done_ = 0;
    if (want_write_) transport_.rewatch(fd_, EPOLLIN);
    want_write_ = false;
}

void Pipe::purge(const Activity* owner) {
    if (!out_.empty() && out_done_ > 0 && out_.front()->owner.get() == owner) {
        // Partly on the wire: the rest must follow, from a copy.
        out_.front()->keep();
        out_.front()->owner = nullptr;
    }
    std::erase_if(out_, [&](const FrameRef& f) { return f->owner.get() == owner; });
}

void Pipe::close() {
    if (closed_) return;
    closed_ = true;
    out_.clear();
    if (fd_ >= 0) {
        transport_.unwatch(fd_);
        ::close(fd_);
    }
    fd_ = -1;
    transport_.pipe_closed(peer_.endpoint);
}

}  // namespace opus::standin
