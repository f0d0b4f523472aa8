#include "shim/attach.h"

#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "opus/attach.h"
#include "opus/launch_ring.h"
#include "shim/job_name.h"

namespace opus::shim {

namespace {

using attach::AttachReply;
using attach::AttachRequest;
using attach::AttachStatus;

Attachment& because(Attachment& result, const char* format, ...) __attribute__((format(printf, 2, 3)));
Attachment& because(Attachment& result, const char* format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(result.why, sizeof result.why, format, args);
    va_end(args);
    return result;
}

AttachRequest request_of(const Settings& settings, Mode mode, Policy policy, const CommId& meeting) {
    AttachRequest request{};
    request.magic = attach::kMagic;
    request.major = attach::kVersionMajor;
    request.minor = attach::kVersionMinor;
    request.mode = std::uint32_t(mode);
    request.policy = std::uint32_t(policy);
    const char* hold = getenv("OPUS_HOLD_MS");
    request.hold_ms = hold != nullptr && hold[0] != '\0' ? std::uint32_t(settings.OPUS_HOLD_MS) : 0;
    request.slots = std::uint32_t(settings.OPUS_RING_SLOTS);
    job_name(settings, meeting, request.job, sizeof request.job);
    return request;
}

int connect_to(const char* path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (strlen(path) >= sizeof address.sun_path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    strcpy(address.sun_path, path);
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    // Bounds connect, send and receive alike: a manager that is stopped must not stop a program.
    const timeval limit{1, 0};
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) return fd;
    const int error = errno;
    close(fd);
    errno = error;
    return -1;
}

// Descriptors of the reply: segment, doorbell. Returns the bytes of the reply, or -1.
ssize_t receive(int fd, AttachReply& reply, int (&fds)[2]) {
    iovec data{&reply, sizeof reply};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof fds)];
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const ssize_t n = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
    if (n < 0) return n;
    for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
        const std::size_t got = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        memcpy(fds, CMSG_DATA(c), (got < 2 ? got : 2) * sizeof(int));
    }
    return n;
}

void* map(int segment, const AttachReply& reply, Attachment& result) {
    const bool power = reply.slots != 0 && (reply.slots & (reply.slots - 1)) == 0 && reply.slots <= ring::kMaxSlots;
    if (!power || ring::Layout{reply.slots}.bytes() != reply.bytes) {
        because(result, "the manager offers a segment of %u slots and %u bytes, which do not agree", reply.slots, reply.bytes);
        return nullptr;
    }
    void* base = mmap(nullptr, reply.bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, segment, 0);
    if (base == MAP_FAILED) {
        because(result, "the manager's segment cannot be mapped: %s", strerror(errno));
        return nullptr;
    }
    const auto* header = static_cast<const ring::SegmentHeader*>(base);
    const std::uint32_t version = header->version.load(std::memory_order_acquire);
    if (header->magic == ring::kMagic && version >> 16 == ring::kVersionMajor && header->slots == reply.slots)
        return base;
    because(result, "the manager's launch ring has version %u.%u, this shim speaks %u.%u", version >> 16,
            version & 0xffff, ring::kVersionMajor, ring::kVersionMinor);
    munmap(base, reply.bytes);
    return nullptr;
}

Attachment exchange(int fd, const AttachRequest& request) {
    Attachment result;
    AttachReply reply{};
    int fds[2] = {-1, -1};
    if (send(fd, &request, sizeof request, MSG_NOSIGNAL) != ssize_t(sizeof request)) {
        because(result, "the manager does not take our request: %s", strerror(errno));
    } else if (receive(fd, reply, fds) != ssize_t(sizeof reply) || reply.magic != attach::kMagic) {
        because(result, "the manager did not answer within a second");
    } else if (reply.status == AttachStatus::version || reply.major != attach::kVersionMajor) {
        because(result, "the manager speaks version %u.%u, this shim %u.%u", reply.major, reply.minor,
                attach::kVersionMajor, attach::kVersionMinor);
    } else if (reply.status != AttachStatus::ok || fds[0] < 0 || fds[1] < 0) {
        because(result, "the manager refuses this process%s",
                reply.status == AttachStatus::full ? ": it serves as many ranks as it may" : "");
    } else {
        result.base = map(fds[0], reply, result);
    }
    if (fds[0] >= 0) close(fds[0]);
    if (result.base == nullptr) {
        if (fds[1] >= 0) close(fds[1]);
        close(fd);
        return result;
    }
    result.slots = reply.slots;
    result.doorbell = fds[1];
    result.socket = fd;
    memcpy(static_cast<ring::SegmentHeader*>(result.base)->job, request.job, sizeof request.job);
    return result;
}

}  // namespace

bool socket_path(const Settings& settings, unsigned n, char* path, std::size_t size) {
    const char* user = getenv("XDG_RUNTIME_DIR");
    int length = -1;
    if (settings.OPUS_SOCKET[0] != '\0' || settings.OPUS_RUNTIME_DIR[0] != '\0') {
        if (n > 0) return false;
        length = settings.OPUS_SOCKET[0] != '\0' ? snprintf(path, size, "%s", settings.OPUS_SOCKET)
                                                 : snprintf(path, size, "%s/manager.sock", settings.OPUS_RUNTIME_DIR);
    } else if (n == 0 && user != nullptr && user[0] != '\0') {
        length = snprintf(path, size, "%s/opus/manager.sock", user);
    } else if (n == 0 || (n == 1 && user != nullptr && user[0] != '\0')) {
        length = snprintf(path, size, "/run/opus/manager.sock");
    }
    return length > 0 && std::size_t(length) < size;
}

Attachment meet_manager(const Settings& settings, Mode mode, Policy policy, const CommId& meeting) {
    const AttachRequest request = request_of(settings, mode, policy, meeting);
    Attachment result;
    because(result, "the manager's socket has no usable path");
    char path[512];
    for (unsigned n = 0; socket_path(settings, n, path, sizeof path); ++n) {
        const int fd = connect_to(path);
        if (fd >= 0) return exchange(fd, request);
        because(result, "no manager answers at %.100s: %s", path, strerror(errno));
    }
    return result;
}

}  // namespace opus::shim
