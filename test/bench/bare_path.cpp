#include "bare_path.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zmq.h>

#include <stdexcept>
#include <string>
#include <vector>

namespace opus::bench {

namespace {

constexpr std::uint32_t kSlots = 1024;

// Sends everything back as `reply_bytes` bytes. Writes its address to `tell` first.
[[noreturn]] void echo(int tell, std::size_t reply_bytes) {
    void* context = ::zmq_ctx_new();
    void* router = ::zmq_socket(context, ZMQ_ROUTER);
    if (::zmq_bind(router, "tcp://127.0.0.1:*") != 0) ::_exit(1);
    char address[64] = {};
    std::size_t length = sizeof(address);
    ::zmq_getsockopt(router, ZMQ_LAST_ENDPOINT, address, &length);
    if (::write(tell, address, sizeof(address)) != ssize_t(sizeof(address))) ::_exit(1);
    std::vector<char> reply(reply_bytes), request(1 << 16);
    char peer[256];
    for (;;) {
        const int peer_bytes = ::zmq_recv(router, peer, sizeof(peer), 0);
        if (peer_bytes < 0) ::_exit(0);
        ::zmq_recv(router, request.data(), request.size(), 0);
        ::zmq_send(router, peer, std::size_t(peer_bytes), ZMQ_SNDMORE);
        ::zmq_send(router, reply.data(), reply.size(), 0);
    }
}

[[noreturn]] void relay(const ring::View& v, int doorbell, const char* address, std::size_t request_bytes) {
    void* context = ::zmq_ctx_new();
    void* dealer = ::zmq_socket(context, ZMQ_DEALER);
    if (::zmq_connect(dealer, address) != 0) ::_exit(1);
    std::vector<char> request(request_bytes), reply(1 << 16);
    std::uint64_t asked = 0, answered = 0;
    v.header->asleep.store(1, std::memory_order_seq_cst);
    for (;;) {
        while (v.ready[asked & v.mask].value.load(std::memory_order_seq_cst) == asked + 1) {
            ::zmq_send(dealer, request.data(), request.size(), 0);
            ++asked;
        }
        zmq_pollitem_t items[2] = {{dealer, 0, ZMQ_POLLIN, 0}, {nullptr, doorbell, ZMQ_POLLIN, 0}};
        if (::zmq_poll(items, 2, -1) < 0) ::_exit(0);
        if (items[1].revents != 0) {
            char bytes[64];
            [[maybe_unused]] const ssize_t ignored = ::read(doorbell, bytes, sizeof(bytes));
        }
        if (items[0].revents != 0 && ::zmq_recv(dealer, reply.data(), reply.size(), ZMQ_DONTWAIT) >= 0) {
            ring::GateWord& go = v.go[answered & v.mask];
            go.value.store(answered + 1, std::memory_order_seq_cst);
            if (v.ready[answered & v.mask].waiter.load(std::memory_order_seq_cst) != 0)
                ::syscall(SYS_futex, &go.value, FUTEX_WAKE, 1, nullptr, nullptr, 0);
            ++answered;
            v.header->retired.store(answered, std::memory_order_release);
        }
    }
}

template <class Body>
pid_t child(int core, Body body) {
    const pid_t parent = ::getpid();
    const pid_t pid = ::fork();
    if (pid != 0) return pid;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);
    pin_to(core);
    body();
    ::_exit(1);
}

}  // namespace

BarePath::BarePath(int core, std::size_t demand_bytes, std::size_t grant_bytes) {
    auto segment = std::make_unique<Segment>();
    segment->bytes = ring::Layout{kSlots}.bytes();
    segment->base =
        ::mmap(nullptr, segment->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    int doorbell[2], told[2];
    if (segment->base == MAP_FAILED || ::pipe2(doorbell, O_NONBLOCK | O_CLOEXEC) != 0 || ::pipe2(told, O_CLOEXEC) != 0)
        throw std::runtime_error("bare path: no memory or descriptors");
    segment->view = ring::view_of(segment->base, kSlots);
    segment->doorbell = doorbell[1];
    echo_ = child(core, [&] { echo(told[1], grant_bytes); });
    char address[64];
    ::close(told[1]);
    if (::read(told[0], address, sizeof(address)) != ssize_t(sizeof(address)))
        throw std::runtime_error("bare path: the echo did not start");
    ::close(told[0]);
    relay_ = child(core, [&] { relay(segment->view, doorbell[0], address, demand_bytes); });
    ::close(doorbell[0]);
    rank_ = std::make_unique<RankPlayer>(std::move(segment));
}

BarePath::~BarePath() {
    for (const pid_t pid : {relay_, echo_}) {
        if (pid <= 0) continue;
        ::kill(pid, SIGKILL);
        ::waitpid(pid, nullptr, 0);
    }
}

}  // namespace opus::bench
