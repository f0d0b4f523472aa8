#include "drivers/tcp_client.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace opus::drivers {

namespace {

// A switch that loses power says nothing: the kernel asks, so that an idle session costs us no wake-up.
void keep_alive(int fd) {
    const int on = 1, idle_s = 5, interval_s = 2, probes = 3, unacked_ms = 5000;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof interval_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unacked_ms, sizeof unacked_ms);
}

}  // namespace

std::string TcpClient::connect(const std::string& address) {
    close();
    address_ = address;
    const auto colon = address.rfind(':');
    if (colon == std::string::npos || colon == 0 || colon + 1 == address.size())
        return "address '" + address + "' is not HOST:PORT";
    std::string host = address.substr(0, colon);
    if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
    addrinfo hints{}, *found = nullptr;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_NUMERICSERV;
    if (const int e = getaddrinfo(host.c_str(), address.c_str() + colon + 1, &hints, &found))
        return "address '" + address + "': " + gai_strerror(e);
    fd_ = socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int result = -1;
    if (fd_ >= 0) {
        keep_alive(fd_);
        result = ::connect(fd_, found->ai_addr, found->ai_addrlen);
    }
    const int e = errno;
    freeaddrinfo(found);
    if (result == 0) connected_ = true;
    if (result < 0 && e != EINPROGRESS) {
        close();
        return "cannot connect to " + address + ": " + std::strerror(e);
    }
    return {};
}

void TcpClient::close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
    connected_ = false;
}

short TcpClient::events(bool something_to_send) const {
    if (!connected_) return POLLOUT;
    return static_cast<short>(POLLIN | (something_to_send ? POLLOUT : 0));
}

std::string TcpClient::finish_connect() {
    int e = 0;
    socklen_t length = sizeof e;
    getsockopt(fd_, SOL_SOCKET, SO_ERROR, &e, &length);
    if (e) return "cannot connect to " + address_ + ": " + std::strerror(e);
    connected_ = true;
    return {};
}

std::string TcpClient::send(std::string& bytes) {
    while (!bytes.empty()) {
        const ssize_t count = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0 && errno == EAGAIN) break;
        if (count < 0) return "the connection to " + address_ + " broke: " + std::strerror(errno);
        bytes.erase(0, static_cast<std::size_t>(count));
    }
    return {};
}

std::string TcpClient::receive(std::string& bytes) {
    bytes.resize(16384);
    const ssize_t count = recv(fd_, bytes.data(), bytes.size(), 0);
    const int e = errno;
    bytes.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
    if (count == 0) return "the switch at " + address_ + " closed the session";
    if (count < 0 && e != EAGAIN && e != EINTR) return "the connection to " + address_ + " broke: " + std::strerror(e);
    return {};
}

}  // namespace opus::drivers
