#include "shim/process.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cstdio>
#include <ctime>

#include "shim/attach.h"
#include "shim/hooks.h"
#include "shim/message.h"
#include "shim/nccl_settings.h"
#include "shim/road_notes.h"

namespace opus::shim {

constinit Process process;

void Process::read_settings() {
    settings.read();
    mode = settings.mode();
    policy = settings.policy();
    gate = settings.gate();
    require = settings.require();
    hold_ns = settings.OPUS_HOLD_MS * 1'000'000;
}

bool Process::watch_fork() { return pthread_atfork(nullptr, nullptr, &Process::in_child) == 0; }

// The parent's segment is not the child's, nor is its place at the manager: the socket's end tells the
// manager of a death, so no child may keep it open.
void Process::in_child() {
    if (!process.attached.load(std::memory_order_relaxed)) {
        process.attach_lock_.reset();
        return;
    }
    process.socket.close_if_ours();
    process.doorbell.close_if_ours();
    process.retreat();
}

bool Process::attach(const CommId& meeting) {
    if (attached.load(std::memory_order_acquire)) return true;
    const LockGuard guard(attach_lock_);
    if (attach_tried_) return attached.load(std::memory_order_relaxed);
    attach_tried_ = true;
    const Attachment met = meet_manager(settings, mode, policy, meeting);
    note_road("state\t%s\t%s", met.base == nullptr ? "inert" : mode == Mode::enforce ? "enforce" : "observe", met.why);
    if (met.base == nullptr) {
        if (require != Require::nothing)
            say(Level::error, "%s; %s (start opus-manager, or set OPUS_SOCKET)", met.why,
                require == Require::enforcement ? "OPUS_REQUIRE=enforce: it makes no communicator"
                                                : "this process runs without Opus");
        if (require != Require::enforcement) retreat();  // else the hooks refuse
        return false;
    }
    unfit = mode == Mode::enforce && !nccl_settings_fit();
    lone_flags = std::uint16_t(ring::kLaunchSkips | ring::kLaunchHostDone | (mode == Mode::observe ? ring::kLaunchUngated : 0));
    view.lie_on(ring::view_of(met.base, met.slots));
    socket.take(met.socket);
    doorbell.take(met.doorbell);
    attached.store(true, std::memory_order_release);
    return true;
}

void Process::retreat() {
    attached.store(false, std::memory_order_relaxed);
    point_slots_at_real();
}

opus_state_t Process::state() const {
    if (attached.load(std::memory_order_acquire))
        return mode == Mode::enforce ? OPUS_STATE_ENFORCE : OPUS_STATE_OBSERVE;
    return mode == Mode::off ? OPUS_STATE_OFF : OPUS_STATE_INERT;
}

namespace {

// By its number: fstat is newer than the oldest glibc that we run on.
bool inode_of(int fd, std::uint64_t& device, std::uint64_t& inode) {
    struct stat at {};
    if (fd < 0 || syscall(SYS_fstat, fd, &at) != 0) return false;
    device = at.st_dev;
    inode = at.st_ino;
    return true;
}

}  // namespace

void OwnDescriptor::take(int fd) {
    fd_.store(inode_of(fd, device_, inode_) ? fd : -1, std::memory_order_relaxed);
}

bool OwnDescriptor::is_same(int fd) const {
    std::uint64_t device = 0, inode = 0;
    return inode_of(fd, device, inode) && device == device_ && inode == inode_;
}

bool OwnDescriptor::is_ours() const { return is_same(fd()); }

void OwnDescriptor::close_if_ours() {
    if (is_ours()) close(fd());
}

void Doorbell::take(int fd) {
    OwnDescriptor::take(fd);
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t n = readlink(link, path_, sizeof path_ - 1);
    path_[n > 0 && n < ssize_t(sizeof path_) ? n : 0] = '\0';
}

// For reading too, as the manager opened it: writing never meets a FIFO without a reader, and so no signal.
void Doorbell::reopen() {
    const int fd = path_[0] != '\0' ? open(path_, O_RDWR | O_NONBLOCK | O_CLOEXEC) : -1;
    if (fd >= 0 && is_same(fd)) return fd_.store(fd, std::memory_order_relaxed);
    if (fd >= 0) close(fd);
    fd_.store(-1, std::memory_order_relaxed);
    say_once(Level::warn, "the program closed the descriptor that wakes opus-manager, and %s cannot be opened again: "
             "launches may be noticed late", path_[0] != '\0' ? path_ : "its FIFO");
}

void Doorbell::ring() {
    if (fd() < 0) return;
    if (!is_ours()) reopen();
    const char byte = 1;
    const ssize_t ignored = write(fd(), &byte, 1);
    (void)ignored;
}

void ring_doorbell_now() { process.doorbell.ring(); }

std::uint64_t monotonic_ns() {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return std::uint64_t(now.tv_sec) * 1'000'000'000 + std::uint64_t(now.tv_nsec);
}

}  // namespace opus::shim
