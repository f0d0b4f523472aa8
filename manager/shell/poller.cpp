#include "manager/shell/poller.h"

#include <fcntl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <stdexcept>

namespace opus::manager {

Descriptor open_doorbell(const std::string& path) {
    if (::mkfifo(path.c_str(), 0600) != 0 && errno != EEXIST)
        throw std::runtime_error("cannot make the doorbell " + path + ": " + std::strerror(errno));
    Descriptor fifo(::open(path.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
    if (!fifo) throw std::runtime_error("cannot open the doorbell " + path + ": " + std::strerror(errno));
    return fifo;
}

Descriptor catch_signals(std::initializer_list<int> numbers) {
    sigset_t set;
    sigemptyset(&set);
    for (const int number : numbers) sigaddset(&set, number);
    ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
    return Descriptor(::signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
}

void watch(int poller, int fd) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = fd;
    ::epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event);
}

int await(int poller, std::span<epoll_event> ready, TimeNs timeout_ns) {
    constexpr TimeNs kMs = 1'000'000, kSecond = 1'000'000'000;
    const timespec limit{timeout_ns / kSecond, timeout_ns % kSecond};
    const int room = static_cast<int>(ready.size());
    int count = ::epoll_pwait2(poller, ready.data(), room, &limit, nullptr);
    if (count < 0 && errno == ENOSYS)  // before Linux 5.11: whole milliseconds
        count = ::epoll_wait(poller, ready.data(), room, static_cast<int>((timeout_ns + kMs - 1) / kMs));
    return count;
}

void drain(int fd) {
    std::array<char, 512> bytes{};
    while (::read(fd, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size())) {}
}

}  // namespace opus::manager
