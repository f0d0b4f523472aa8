#include "rank_player.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <stdexcept>

#include "opus/attach.h"

namespace opus::bench {

namespace {

constexpr std::uint64_t kHalf = 0xffff'ffffull;

void futex_wait(const void* word, std::uint32_t expected, TimeNs timeout_ns) {
    timespec limit{timeout_ns / 1'000'000'000, timeout_ns % 1'000'000'000};
    ::syscall(SYS_futex, word, FUTEX_WAIT, expected, &limit, nullptr, 0);
}

[[noreturn]] void fail(const std::string& what) { throw std::runtime_error(what + ": " + std::strerror(errno)); }

int connect_to(const std::string& path) {
    const int fd = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof(address.sun_path)) throw std::runtime_error(path + ": too long for a socket's name");
    std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
    if (fd < 0 || ::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) fail(path);
    return fd;
}

// The reply and the two descriptors that travel with it: segment, doorbell.
attach::AttachReply receive_reply(int socket, int (&fds)[2]) {
    attach::AttachReply reply{};
    iovec part{&reply, sizeof(reply)};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(fds))];
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    if (::recvmsg(socket, &message, MSG_CMSG_CLOEXEC) != ssize_t(sizeof(reply))) fail("reply of the manager");
    const cmsghdr* rights = CMSG_FIRSTHDR(&message);
    if (reply.status != attach::AttachStatus::ok || rights == nullptr || rights->cmsg_len != CMSG_LEN(sizeof(fds)))
        throw std::runtime_error("the manager refused: status " + std::to_string(unsigned(reply.status)));
    std::memcpy(fds, CMSG_DATA(rights), sizeof(fds));
    return reply;
}

}  // namespace

TimeNs now_ns() {
    timespec t{};
    ::clock_gettime(CLOCK_MONOTONIC, &t);
    return TimeNs(t.tv_sec) * 1'000'000'000 + t.tv_nsec;
}

void sleep_ns(TimeNs duration) {
    timespec t{duration / 1'000'000'000, duration % 1'000'000'000};
    ::nanosleep(&t, nullptr);
}

void pin_to(int core) {
    if (core < 0) return;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    if (::sched_setaffinity(0, sizeof(set), &set) != 0) fail("sched_setaffinity");
}

Segment::~Segment() {
    if (base != nullptr) ::munmap(base, bytes);
    if (doorbell >= 0) ::close(doorbell);
    if (socket >= 0) ::close(socket);
}

RankPlayer RankPlayer::attach(const std::string& socket_path, std::uint32_t gpu, const std::string& job) {
    auto segment = std::make_unique<Segment>();
    segment->socket = connect_to(socket_path);
    attach::AttachRequest request{};
    request.magic = attach::kMagic;
    request.major = attach::kVersionMajor;
    request.minor = attach::kVersionMinor;
    request.mode = std::uint32_t(Mode::enforce);
    request.policy = std::uint32_t(Policy::proceed);
    request.hold_ms = 30'000;
    std::strncpy(request.job, job.c_str(), sizeof(request.job) - 1);
    if (::send(segment->socket, &request, sizeof(request), 0) != ssize_t(sizeof(request))) fail(socket_path);
    int fds[2];
    const attach::AttachReply reply = receive_reply(segment->socket, fds);
    segment->doorbell = fds[1];
    segment->bytes = reply.bytes;
    void* base = ::mmap(nullptr, reply.bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fds[0], 0);
    ::close(fds[0]);
    if (base == MAP_FAILED) fail("segment");
    segment->base = base;
    segment->view = ring::view_of(base, reply.slots);
    segment->view.header->gpu = gpu;
    return RankPlayer(std::move(segment));
}

std::uint32_t RankPlayer::register_comm(const CommId& id, std::uint32_t rank, std::uint32_t size) {
    const std::uint32_t index = comms_++;
    ring::CommEntry& entry = segment_->view.comms[index];
    entry.id = id;
    entry.parent = {};
    entry.rank = rank;
    entry.size = size;
    entry.device = segment_->view.header->gpu;
    entry.family = index;
    entry.generation = 1;
    entry.mode = std::uint32_t(Mode::enforce);
    entry.state.store(std::uint32_t(ring::CommState::registered), std::memory_order_seq_cst);
    segment_->view.header->comm_changes.fetch_add(1, std::memory_order_seq_cst);
    ring();
    return index;
}

Verdict RankPlayer::wait_verdict(std::uint32_t index, TimeNs timeout_ns) {
    const std::atomic<std::uint32_t>& word = segment_->view.comms[index].verdict;
    for (const TimeNs limit = now_ns() + timeout_ns; now_ns() < limit;) {
        const std::uint32_t verdict = word.load(std::memory_order_acquire);
        if (verdict != std::uint32_t(Verdict::unknown)) return Verdict(verdict);
        futex_wait(&word, verdict, 100'000'000);
    }
    return Verdict::unknown;
}

ring::OpEntry operation(OpKind kind, std::uint32_t comm_index, std::uint64_t n, std::uint32_t peer) {
    constexpr std::uint8_t kFloat = 7;
    const std::uint32_t flags = n == 0 ? ring::kOpFirstUse : 0;
    return {std::uint8_t(kind), kFloat, std::uint16_t(comm_index), peer, n, 1, flags, 1 << 20};
}

std::uint64_t RankPlayer::record(const std::vector<ring::OpEntry>& ops, ring::Gate gate) {
    ring::View& v = segment_->view;
    const auto count = std::uint32_t(ops.size());
    const std::uint64_t seq = v.header->head.fetch_add(ring::slots_for(count), std::memory_order_relaxed);
    for (std::uint32_t i = 1; i < count; ++i) v.extension(seq + 1 + (i - 1) / 2).op[(i - 1) % 2] = ops[i];
    ring::LaunchRecord& slot = v.record(seq);
    slot.ticks = 0;
    slot.gate = std::uint16_t(gate);
    slot.op_count = std::uint16_t(count);
    slot.flags = 0;
    slot.reserved = 0;
    slot.stream = 1;
    slot.op = ops[0];
    slot.commit.store(ring::kCommitTag | (seq + 1), std::memory_order_release);
    return seq;
}

void RankPlayer::store_ready(std::uint64_t seq) {
    const ring::View& v = segment_->view;
    v.ready[seq & v.mask].waiter.store(1, std::memory_order_relaxed);
    v.ready[seq & v.mask].value.store(seq + 1, std::memory_order_seq_cst);
}

void RankPlayer::ring() {
    if (segment_->view.header->asleep.load(std::memory_order_seq_cst) == 0) return;
    const char one = 1;
    [[maybe_unused]] const ssize_t ignored = ::write(segment_->doorbell, &one, 1);
}

void RankPlayer::ready(std::uint64_t seq) {
    store_ready(seq);
    ring();
}

bool RankPlayer::wait_go(std::uint64_t seq, TimeNs timeout_ns) {
    const ring::View& v = segment_->view;
    const std::atomic<std::uint64_t>& word = v.go[seq & v.mask].value;
    for (TimeNs limit = 0;;) {
        const std::uint64_t go = word.load(std::memory_order_acquire);
        if ((go & ~ring::kGoAbort) >= seq + 1) return (go & ring::kGoAbort) == 0;
        const TimeNs now = now_ns();
        if (limit == 0) limit = now + timeout_ns;
        if (now >= limit) return false;
        futex_wait(&word, std::uint32_t(go & kHalf), limit - now);
    }
}

TimeNs RankPlayer::ready_unrung(std::uint64_t seq, TimeNs timeout_ns) {
    const ring::View& v = segment_->view;
    const TimeNs start = now_ns();
    v.ready[seq & v.mask].value.store(seq + 1, std::memory_order_seq_cst);
    while ((v.go[seq & v.mask].value.load(std::memory_order_acquire) & ~ring::kGoAbort) < seq + 1)
        if (now_ns() - start > timeout_ns) return -1;
    return now_ns() - start;
}

void RankPlayer::done_unrung(std::uint64_t seq) {
    const ring::View& v = segment_->view;
    v.done[seq & v.mask].value.store(seq + 1, std::memory_order_seq_cst);
}

void RankPlayer::done(std::uint64_t seq) {
    const ring::View& v = segment_->view;
    v.done[seq & v.mask].value.store(seq + 1, std::memory_order_seq_cst);
    ring();
}

bool RankPlayer::wait_retired(std::uint64_t seq, TimeNs timeout_ns) {
    const TimeNs limit = now_ns() + timeout_ns;
    while (segment_->view.header->retired.load(std::memory_order_acquire) <= seq) {
        if (now_ns() > limit) return false;
        sleep_ns(50'000);
    }
    return true;
}

}  // namespace opus::bench
