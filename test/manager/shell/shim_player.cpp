#include "test/manager/shell/shim_player.h"

#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <utility>

namespace opus::manager::test {
namespace {

using Clock = std::chrono::steady_clock;

template <class Word>
bool sleep_until(Word& word, auto reached, int timeout_ms) {
    const auto end = Clock::now() + std::chrono::milliseconds(timeout_ms);
    for (;;) {
        const auto value = word.load(std::memory_order_seq_cst);
        if (reached(value)) return true;
        if (Clock::now() >= end) return false;
        const timespec slice{0, 200'000'000};
        ::syscall(SYS_futex, &word, FUTEX_WAIT, static_cast<std::uint32_t>(value), &slice, nullptr, 0);
    }
}

}  // namespace

ShimPlayer::ShimPlayer(ShimPlayer&& other) noexcept
    : socket_(std::exchange(other.socket_, -1)),
      doorbell_(std::exchange(other.doorbell_, -1)),
      base_(std::exchange(other.base_, nullptr)),
      reply_(other.reply_),
      view_(other.view_) {}

ShimPlayer::~ShimPlayer() {
    if (base_ != nullptr) ::munmap(base_, reply_.bytes);
    if (socket_ >= 0) ::close(socket_);
    if (doorbell_ >= 0) ::close(doorbell_);
}

bool ShimPlayer::attach(const std::string& runtime_directory, const std::string& job, std::uint32_t hold_ms) {
    attach::AttachRequest request{};
    request.magic = attach::kMagic;
    request.major = attach::kVersionMajor;
    request.minor = attach::kVersionMinor;
    request.mode = static_cast<std::uint32_t>(Mode::enforce);
    request.policy = static_cast<std::uint32_t>(Policy::proceed);
    request.hold_ms = hold_ms;
    std::strncpy(request.job, job.c_str(), sizeof request.job - 1);
    return attach(runtime_directory, request, sizeof request);
}

bool ShimPlayer::attach(const std::string& runtime_directory, const attach::AttachRequest& request, std::size_t bytes) {
    socket_ = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    const timeval patience{10, 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, (runtime_directory + "/manager.sock").c_str(), sizeof address.sun_path - 1);
    if (::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) return false;
    if (::send(socket_, &request, bytes, MSG_NOSIGNAL) != static_cast<ssize_t>(bytes)) return false;

    iovec part{&reply_, sizeof reply_};
    alignas(cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    if (::recvmsg(socket_, &message, MSG_CMSG_CLOEXEC) != static_cast<ssize_t>(sizeof reply_)) {
        reply_.status = attach::AttachStatus::refused;
        return false;
    }
    const cmsghdr* header = CMSG_FIRSTHDR(&message);
    if (reply_.status != attach::AttachStatus::ok || header == nullptr) return false;
    int descriptors[2];
    std::memcpy(descriptors, CMSG_DATA(header), sizeof descriptors);
    base_ = ::mmap(nullptr, reply_.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptors[0], 0);
    ::close(descriptors[0]);
    doorbell_ = descriptors[1];
    if (base_ == MAP_FAILED) {
        base_ = nullptr;
        return false;
    }
    view_ = ring::view_of(base_, reply_.slots);
    return true;
}

void ShimPlayer::doorbell() {
    if (view_.header->asleep.load(std::memory_order_seq_cst) == 0) return;
    const char byte = 1;
    [[maybe_unused]] const ssize_t ignored = ::write(doorbell_, &byte, 1);
}

void ShimPlayer::register_comm(std::uint32_t index, CommId id, std::uint32_t rank, std::uint32_t size) {
    ring::CommEntry& entry = view_.comms[index];
    entry.id = id;
    entry.rank = rank;
    entry.size = size;
    entry.device = 0;
    entry.family = index + 1;
    entry.mode = static_cast<std::uint32_t>(Mode::enforce);
    ++entry.generation;
    entry.state.store(static_cast<std::uint32_t>(ring::CommState::registered), std::memory_order_seq_cst);
    view_.header->comm_changes.fetch_add(1);
    doorbell();
}

void ShimPlayer::retire_comm(std::uint32_t index) {
    view_.comms[index].state.store(static_cast<std::uint32_t>(ring::CommState::retired), std::memory_order_seq_cst);
    view_.header->comm_changes.fetch_add(1);
    doorbell();
}

std::uint64_t ShimPlayer::record(const std::vector<ring::OpEntry>& ops, ring::Gate gate, std::uint16_t flags) {
    const auto count = static_cast<std::uint32_t>(ops.size());
    const std::uint64_t seq = view_.header->head.fetch_add(ring::slots_for(count));
    for (std::uint32_t i = 1; i < count; ++i) view_.extension(seq + 1 + (i - 1) / 2).op[(i - 1) % 2] = ops[i];
    ring::LaunchRecord& record = view_.record(seq);
    record.gate = static_cast<std::uint16_t>(gate);
    record.op_count = static_cast<std::uint16_t>(count);
    record.flags = flags;
    record.stream = 0x1000;
    record.op = ops[0];
    record.commit.store(ring::kCommitTag | (seq + 1), std::memory_order_seq_cst);
    doorbell();
    return seq;
}

void ShimPlayer::ready(std::uint64_t seq, bool ring_bell) {
    view_.ready[seq & view_.mask].value.store(seq + 1, std::memory_order_seq_cst);
    if (ring_bell) doorbell();
}

void ShimPlayer::done(std::uint64_t seq, bool ring_bell) {
    view_.done[seq & view_.mask].value.store(seq + 1, std::memory_order_seq_cst);
    if (ring_bell) doorbell();
}

std::uint64_t ShimPlayer::go(std::uint64_t seq) const { return view_.go[seq & view_.mask].value.load(); }

bool ShimPlayer::wait_go(std::uint64_t seq, int timeout_ms) {
    auto& waiter = view_.ready[seq & view_.mask].waiter;
    waiter.store(1, std::memory_order_seq_cst);
    const bool went = sleep_until(
        view_.go[seq & view_.mask].value, [seq](std::uint64_t v) { return (v & ~ring::kGoAbort) >= seq + 1; }, timeout_ms);
    waiter.store(0);
    return went;
}

bool ShimPlayer::wait_verdict(std::uint32_t index, Verdict verdict, int timeout_ms) {
    return sleep_until(
        view_.comms[index].verdict, [verdict](std::uint32_t v) { return v == static_cast<std::uint32_t>(verdict); },
        timeout_ms);
}

}  // namespace opus::manager::test
