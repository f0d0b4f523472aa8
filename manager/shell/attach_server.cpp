#include "manager/shell/attach_server.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "manager/shell/poller.h"
#include "manager/shell/printable.h"

namespace opus::manager {
namespace {

constexpr std::size_t kMaxStrangers = 256;

}  // namespace

AttachServer::AttachServer(const std::string& path, int poller, Sink sink)
    : path_(path), poller_(poller), sink_(std::move(sink)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof address.sun_path)
        throw std::runtime_error(path + " is too long for a Unix socket (" + std::to_string(sizeof address.sun_path - 1) +
                                 " bytes at most); choose a shorter --runtime-dir");
    std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
    ::unlink(path.c_str());
    listener_ = Descriptor(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!listener_ || ::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
        ::listen(listener_.get(), 128) != 0)
        throw std::runtime_error("cannot listen at " + path + ": " + std::strerror(errno));
    watch(listener_.get());
}

void AttachServer::watch(int fd) { opus::manager::watch(poller_, fd); }

bool AttachServer::handle(int fd) {
    if (fd == listener_.get()) {
        accept_all();
        return true;
    }
    if (!connections_.contains(fd)) return false;
    serve(fd);
    return true;
}

void AttachServer::forget(RankId rank) {
    std::erase_if(connections_, [rank](const auto& entry) { return entry.second.rank == rank; });
}

void AttachServer::accept_all() {
    for (;;) {
        Descriptor socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (!socket) return;
        if (strangers_ >= kMaxStrangers || !peer_of(socket.get())) continue;
        const int fd = socket.get();
        watch(fd);
        connections_[fd].socket = std::move(socket);
        ++strangers_;
    }
}

std::optional<pid_t> AttachServer::peer_of(int fd) {
    ucred peer{};
    socklen_t size = sizeof peer;
    if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return {};
    if (peer.uid != ::geteuid() && peer.uid != 0) {
        sink_.complain("refused a process of uid " + std::to_string(peer.uid) + ": this manager serves uid " +
                       std::to_string(::geteuid()));
        return {};
    }
    if (peer.pid <= 0) {
        sink_.complain("refused a process that cannot be seen from here: it runs outside this PID namespace");
        return {};
    }
    return peer.pid;
}

void AttachServer::serve(int fd) {
    Connection& connection = connections_.at(fd);
    attach::AttachRequest request{};
    const ssize_t bytes = ::recv(fd, &request, sizeof request, 0);
    if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (connection.rank != kNone) {
        if (bytes > 0) return;  // it has nothing to say any more
        const RankId rank = connection.rank;
        connections_.erase(fd);
        sink_.hung_up(rank);
        return;
    }
    --strangers_;
    Accepted accepted;
    attach::AttachStatus status = attach::AttachStatus::refused;
    const bool asked =
        bytes >= static_cast<ssize_t>(offsetof(attach::AttachRequest, mode)) && request.magic == attach::kMagic;
    if (asked && request.major != attach::kVersionMajor) {
        status = attach::AttachStatus::version;
        sink_.complain("refused a shim of protocol " + std::to_string(request.major) + ": this manager speaks " +
                       std::to_string(attach::kVersionMajor));
    } else if (asked && bytes == sizeof request && request.mode <= static_cast<std::uint32_t>(Mode::enforce) &&
               request.policy <= static_cast<std::uint32_t>(Policy::abort)) {
        const std::string job = printable(request.job, sizeof request.job - 1);
        std::memset(request.job, 0, sizeof request.job);
        std::memcpy(request.job, job.data(), job.size());
        if (const auto pid = peer_of(fd)) status = sink_.attach(*pid, request, accepted);
    }
    // The rank exists from here on; if it cannot be told, its watch will see it end.
    const bool told = bytes > 0 && answer(fd, status, accepted);
    if (status == attach::AttachStatus::ok && told) {
        connections_.at(fd).rank = accepted.rank;
        return;
    }
    connections_.erase(fd);
    if (status == attach::AttachStatus::ok) sink_.hung_up(accepted.rank);
}

bool AttachServer::answer(int fd, attach::AttachStatus status, const Accepted& accepted) {
    attach::AttachReply reply{attach::kMagic, attach::kVersionMajor, attach::kVersionMinor, status,
                              accepted.slots, accepted.bytes,        accepted.rank};
    iovec part{&reply, sizeof reply};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    alignas(cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))] = {};
    if (status == attach::AttachStatus::ok) {
        message.msg_control = control;
        message.msg_controllen = sizeof control;
        cmsghdr* header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(2 * sizeof(int));
        const int descriptors[2] = {accepted.segment.get(), accepted.doorbell.get()};
        std::memcpy(CMSG_DATA(header), descriptors, sizeof descriptors);
    }
    return ::sendmsg(fd, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof reply);
}

}  // namespace opus::manager
