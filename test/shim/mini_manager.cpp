#include "test/shim/mini_manager.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>
#include <cstring>
#include <stdexcept>

namespace opus::test {

namespace {
void wake(void* word) { syscall(SYS_futex, word, FUTEX_WAKE, 1 << 30, nullptr, nullptr, 0); }
}  // namespace

MiniManager::MiniManager(Behaviour given) : behaviour(given) {
    char name[] = "/tmp/opus-shim-test-XXXXXX";
    if (mkdtemp(name) == nullptr) throw std::runtime_error("mkdtemp");
    directory_ = name;
    socket_path_ = directory_ + "/manager.sock";
    listener_ = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    strcpy(address.sun_path, socket_path_.c_str());
    if (bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 || listen(listener_, 64) != 0)
        throw std::runtime_error("bind");
    thread_ = std::thread([this] { serve(); });
}

MiniManager::~MiniManager() {
    stop_ = true;
    thread_.join();
    close(listener_);
    for (const int fd : open_) close(fd);
    for (RankSeen& r : ranks_) {
        close(r.doorbell);
        munmap(r.view.header, r.view.header->bytes);
    }
    unlink(socket_path_.c_str());
    unlink((directory_ + "/doorbell").c_str());
    rmdir(directory_.c_str());
}

void MiniManager::serve() {
    while (!stop_) {
        pollfd p{listener_, POLLIN, 0};
        poll(&p, 1, 0);
        if ((p.revents & POLLIN) != 0 && behaviour.answer) accept_one();
        look();
        usleep(200);
    }
}

void MiniManager::accept_one() {
    const int fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    RankSeen seen;
    if (recv(fd, &seen.request, sizeof seen.request, 0) != ssize_t(sizeof seen.request))
        throw std::runtime_error("recv");
    const std::uint32_t bytes = std::uint32_t(ring::Layout{behaviour.slots}.bytes());
    const int segment = memfd_create("opus-test", MFD_CLOEXEC);
    if (ftruncate(segment, bytes) != 0) throw std::runtime_error("ftruncate");
    void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, segment, 0);
    seen.view = ring::view_of(base, behaviour.slots);
    ring::SegmentHeader& h = *seen.view.header;
    h.magic = ring::kMagic;
    h.bytes = bytes;
    h.slots = behaviour.slots;
    h.gpu = kNone;
    h.heartbeat = 1;
    h.asleep = behaviour.asleep ? 1 : 0;
    if (behaviour.open_gates)
        for (std::uint32_t i = 0; i < behaviour.slots; ++i) seen.view.go[i].value = std::uint64_t{1} << 62;
    h.version = ring::kVersionMajor << 16 | behaviour.minor;
    const std::string fifo = directory_ + "/doorbell";
    unlink(fifo.c_str());
    if (mkfifo(fifo.c_str(), 0600) != 0) throw std::runtime_error("mkfifo");
    seen.doorbell = open(fifo.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
    attach::AttachReply reply{
        attach::kMagic, attach::kVersionMajor,       attach::kVersionMinor, attach::AttachStatus::ok, behaviour.slots,
        bytes,          std::uint32_t(ranks_.size())};
    iovec data{&reply, sizeof reply};
    alignas(cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(2 * sizeof(int));
    const int fds[2] = {segment, seen.doorbell};
    memcpy(CMSG_DATA(c), fds, sizeof fds);
    {
        const std::lock_guard guard(mutex_);
        ranks_.push_back(seen);
        open_.push_back(fd);
    }
    sendmsg(fd, &message, MSG_NOSIGNAL);
    close(segment);
}

void MiniManager::look() {
    const std::lock_guard guard(mutex_);
    for (RankSeen& r : ranks_) look_at(r);
}

void MiniManager::look_at(RankSeen& rank) {
    const ring::View& v = rank.view;
    if (behaviour.beat) v.header->heartbeat.fetch_add(1);
    for (std::uint32_t i = 0; i < ring::kMaxComms; ++i) {
        ring::CommEntry& e = v.comms[i];
        const auto state = static_cast<ring::CommState>(e.state.load());
        if (state == ring::CommState::registered && e.verdict == 0 && behaviour.verdict != Verdict::unknown) {
            rank.registered.push_back(e.id);
            e.reason = std::uint32_t(behaviour.reason);
            e.reason_rank = behaviour.reason_rank;
            e.known_as = behaviour.known_as;
            e.verdict = std::uint32_t(i == behaviour.passing || i >= behaviour.passing_from ? behaviour.passing_verdict
                                                                                            : behaviour.verdict);
            wake(&e.verdict);
        }
        if (state == ring::CommState::entering && (rank.entering.empty() || rank.entering.back() != e.id))
            rank.entering.push_back(e.id);
        if (state == ring::CommState::retired && e.freed != e.generation) {
            e.verdict = 0;
            e.freed = e.generation;
        }
    }
    for (;;) {
        const ring::LaunchRecord& record = v.record(rank.tail);
        if (record.commit.load(std::memory_order_acquire) != (ring::kCommitTag | (rank.tail + 1))) break;
        Captured c{rank.tail, ring::Gate(record.gate), record.flags, record.stream, {record.op}};
        for (std::uint32_t i = 1; i < record.op_count; ++i)
            c.ops.push_back(v.extension(rank.tail + 1 + (i - 1) / 2).op[(i - 1) % 2]);
        rank.tail += ring::slots_for(record.op_count);
        rank.launches.push_back(c);
    }
    for (const Captured& c : rank.launches) {
        if (c.seq < rank.retired) continue;
        const std::uint64_t slot = c.seq & v.mask;
        if (v.ready[slot].value == c.seq + 1 && holds(c)) {
            held_ = true;
            continue;
        }
        if (behaviour.go && v.ready[slot].value == c.seq + 1 && (v.go[slot].value & ~ring::kGoAbort) < c.seq + 1) {
            if (behaviour.go_delay_us > 0) usleep(useconds_t(behaviour.go_delay_us));
            v.go[slot].value = (c.seq + 1) | (behaviour.abort ? ring::kGoAbort : 0);
            wake(&v.go[slot].value);
        }
    }
    if (!behaviour.retire) return;
    for (const Captured& c : rank.launches) {
        if (c.seq < rank.retired) continue;
        if (v.done[c.seq & v.mask].value != c.seq + 1) break;
        rank.retired = c.seq + ring::slots_for(std::uint32_t(c.ops.size()));
        v.header->retired = rank.retired;
    }
}

void MiniManager::let_go() {
    const std::lock_guard guard(mutex_);
    behaviour.go = true;
    behaviour.held_comm = kNone;
}

bool MiniManager::holds(const Captured& launch) const {
    for (const ring::OpEntry& op : launch.ops)
        if (op.comm == behaviour.held_comm && op.n == behaviour.held_n) return true;
    return false;
}

void MiniManager::await_held() {
    for (int tries = 0; tries < 60'000 && !held_; ++tries) usleep(1000);
    if (!held_) throw std::runtime_error("nothing waits that is held");
}

void MiniManager::await_launch() {
    for (int tries = 0; tries < 60'000; ++tries, usleep(1000)) {
        const std::lock_guard guard(mutex_);
        if (!ranks_.empty() && !ranks_.front().launches.empty()) return;
    }
    throw std::runtime_error("no launch came");
}

void MiniManager::await_entering() {
    for (int tries = 0; tries < 60'000; ++tries, usleep(1000)) {
        const std::lock_guard guard(mutex_);
        if (!ranks_.empty() && !ranks_.front().entering.empty()) return;
    }
    throw std::runtime_error("nobody entered a creation");
}

bool MiniManager::await_retired(std::uint64_t upto) {
    for (int tries = 0; tries < 60'000; ++tries, usleep(1000)) {
        const std::lock_guard guard(mutex_);
        if (!ranks_.empty() && ranks_.front().retired >= upto) return true;
    }
    return false;
}

RankSeen& MiniManager::rank(std::size_t n) {
    look();
    const std::lock_guard guard(mutex_);
    auto at = ranks_.begin();
    if (n >= ranks_.size()) throw std::runtime_error("no such rank attached");
    std::advance(at, long(n));
    return *at;
}

std::size_t MiniManager::ranks() {
    const std::lock_guard guard(mutex_);
    return ranks_.size();
}

}  // namespace opus::test
