// How the members of a new communicator find each other: through the process that made the unique id.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "pipe.h"
#include "transport.h"

namespace opus::standin {

namespace {

// A connection that has not said yet what it is.
struct Greeting {
    Inbound in{8192};
};

bool write_all(int fd, const void* data, std::size_t size) {
    const auto* at = static_cast<const char*>(data);
    while (size > 0) {
        const ssize_t sent = ::send(fd, at, size, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent <= 0) return false;
        at += sent;
        size -= static_cast<std::size_t>(sent);
    }
    return true;
}

bool read_all(int fd, void* data, std::size_t size) {
    auto* at = static_cast<char*>(data);
    while (size > 0) {
        const ssize_t got = ::recv(fd, at, size, 0);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        at += got;
        size -= static_cast<std::size_t>(got);
    }
    return true;
}

}  // namespace

void Transport::listen() {
    sockaddr_in in{};
    in.sin_family = AF_INET;
    in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int tcp = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ::bind(tcp, reinterpret_cast<sockaddr*>(&in), sizeof in);
    ::listen(tcp, 4096);
    socklen_t length = sizeof in;
    ::getsockname(tcp, reinterpret_cast<sockaddr*>(&in), &length);
    port_ = ntohs(in.sin_port);
    watch(tcp, EPOLLIN, [this, tcp](std::uint32_t) { accept(tcp); });

    sockaddr_un un{};
    un.sun_family = AF_UNIX;
    const std::string name = unix_name(endpoint_);
    std::memcpy(un.sun_path, name.data(), name.size());
    const int local = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ::bind(local, reinterpret_cast<sockaddr*>(&un), static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size()));
    ::listen(local, 4096);
    watch(local, EPOLLIN, [this, local](std::uint32_t) { accept(local); });
}

void Transport::accept(int listener) {
    const int fd = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) return;
    auto greeting = std::make_shared<Greeting>();
    watch(fd, EPOLLIN, [this, fd, greeting](std::uint32_t) {
        const int got = greeting->in.read_from(fd);
        const std::byte* at = greeting->in.peek(sizeof(Head));
        if (got == 0 && !at) {
            unwatch(fd);
            ::close(fd);
            return;
        }
        if (!at) return;
        Head head;
        std::memcpy(&head, at, sizeof head);
        if (head.say == Say::hello_peer) {
            greeting->in.take(sizeof head);
            std::string rest;
            for (const std::byte* b; (b = greeting->in.take(1));) rest.push_back(static_cast<char>(*b));
            unwatch(fd);
            said_hello(fd, head.n, std::move(rest));
        } else if (head.say == Say::hello_root && head.bytes == sizeof(Member)) {
            at = greeting->in.take(sizeof head + sizeof(Member));
            if (!at) return;
            Member member;
            std::memcpy(&member, at + sizeof head, sizeof member);
            unwatch(fd);
            asked_for_table(fd, head, member);
        } else {
            unwatch(fd);
            ::close(fd);
        }
    });
}

void Transport::said_hello(int fd, std::uint64_t endpoint, std::string rest) {
    auto& pipe = pipes_[endpoint];
    if (!pipe) {
        Member peer;
        peer.endpoint = endpoint;
        pipe = std::make_unique<Pipe>(*this, peer, endpoint_);
    }
    pipe->accepted(fd, rest);
}

void Transport::asked_for_table(int fd, const Head& head, const Member& member) {
    Meeting& meeting = meetings_[head.comm];
    if (meeting.members.empty()) {
        meeting.members.resize(head.n);
        meeting.sockets.assign(head.n, -1);
    }
    if (head.src >= meeting.members.size() || head.n != meeting.members.size() || meeting.sockets[head.src] >= 0) {
        ::close(fd);
        return;
    }
    meeting.members[head.src] = member;
    meeting.sockets[head.src] = fd;
    if (++meeting.here < meeting.members.size()) return;
    Head table;
    table.say = Say::table;
    table.bytes = static_cast<std::uint32_t>(meeting.members.size() * sizeof(Member));
    for (const int to : meeting.sockets) {
        (void)(write_all(to, &table, sizeof table) && write_all(to, meeting.members.data(), table.bytes));
        ::close(to);
    }
    meetings_.erase(head.comm);
}

std::vector<Member> Transport::meet(std::uint16_t root_port, std::uint64_t id, std::uint32_t size, std::uint32_t rank,
                                    const Member& self) {
    sockaddr_in in{};
    in.sin_family = AF_INET;
    in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    in.sin_port = htons(root_port);
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    std::vector<Member> members;
    if (fd >= 0 && ::connect(fd, reinterpret_cast<sockaddr*>(&in), sizeof in) == 0) {
        Head hello;
        hello.say = Say::hello_root;
        hello.comm = id;
        hello.src = rank;
        hello.n = size;
        hello.bytes = sizeof(Member);
        Head table;
        if (write_all(fd, &hello, sizeof hello) && write_all(fd, &self, sizeof self) &&
            read_all(fd, &table, sizeof table) && table.say == Say::table && table.bytes == size * sizeof(Member)) {
            members.resize(size);
            if (!read_all(fd, members.data(), table.bytes)) members.clear();
        }
    }
    if (fd >= 0) ::close(fd);
    return members;
}

}  // namespace opus::standin
