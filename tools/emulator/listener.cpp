#include "tools/emulator/listener.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace opus::emulator {

Listener::Listener(Loop& loop, const std::string& address, std::function<void(int)> accepted)
    : loop_(loop), spare_(open("/dev/null", O_RDONLY | O_CLOEXEC)), accepted_(std::move(accepted)) {
    const auto colon = address.rfind(':');
    if (colon == std::string::npos || colon == 0 || colon + 1 == address.size())
        throw std::runtime_error("address '" + address + "' is not HOST:PORT");
    const std::string host = address.substr(0, colon), port = address.substr(colon + 1);
    addrinfo hints{}, *found = nullptr;
    hints.ai_family = AF_INET;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
    if (const int e = getaddrinfo(host.c_str(), port.c_str(), &hints, &found))
        throw std::runtime_error("address '" + address + "': " + gai_strerror(e));
    sockaddr_in bound = *reinterpret_cast<sockaddr_in*>(found->ai_addr);
    freeaddrinfo(found);

    fd_ = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    const int on = 1;
    setsockopt(fd_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    socklen_t length = sizeof bound;
    if (bind(fd_, reinterpret_cast<sockaddr*>(&bound), length) || listen(fd_, 1024)) {
        const int e = errno;
        close(fd_);
        throw std::runtime_error("cannot listen on " + address + ": " + std::strerror(e));
    }
    getsockname(fd_, reinterpret_cast<sockaddr*>(&bound), &length);
    address_ = host + ':' + std::to_string(ntohs(bound.sin_port));
    loop_.add(fd_, EPOLLIN, this);
}

Listener::~Listener() {
    loop_.remove(fd_);
    close(fd_);
    if (spare_ >= 0) close(spare_);
}

void Listener::ready(std::uint32_t) {
    while (true) {
        const int fd = accept4(fd_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0 && (errno == EMFILE || errno == ENFILE) && spare_ >= 0) {
            // Out of descriptors: take the caller and turn it away, or it would wake us for ever.
            close(spare_);
            close(accept(fd_, nullptr, nullptr));
            spare_ = open("/dev/null", O_RDONLY | O_CLOEXEC);
            return;
        }
        if (fd < 0 && errno != EINTR && errno != ECONNABORTED) return;
        if (fd < 0) continue;
        const int on = 1;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        accepted_(fd);
    }
}

}  // namespace opus::emulator
