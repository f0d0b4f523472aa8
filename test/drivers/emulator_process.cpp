#include "test/drivers/emulator_process.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <stdexcept>

namespace opus::test {

namespace {

constexpr int kPatienceMs = 20'000;

void wait_for(int fd, short events, const char* what) {
    pollfd p{fd, events, 0};
    if (poll(&p, 1, kPatienceMs) <= 0) throw std::runtime_error(std::string("waited in vain: ") + what);
}

}  // namespace

Socket::Socket(const std::string& address) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    const auto colon = address.rfind(':');
    inet_pton(AF_INET, address.substr(0, colon).c_str(), &to.sin_addr);
    to.sin_port = htons(static_cast<std::uint16_t>(std::stoi(address.substr(colon + 1))));
    if (connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof to))
        throw std::runtime_error("connect " + address + ": " + std::strerror(errno));
    const int on = 1;
    setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

Socket::~Socket() {
    if (fd_ >= 0) close(fd_);
}

void Socket::send(std::string_view bytes) {
    while (!bytes.empty()) {
        wait_for(fd_, POLLOUT, "to send");
        const ssize_t count = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (count < 0) throw std::runtime_error(std::string("send: ") + std::strerror(errno));
        bytes.remove_prefix(static_cast<std::size_t>(count));
    }
}

std::string Socket::receive(std::size_t count) {
    std::string bytes(count, '\0');
    for (std::size_t got = 0; got < count;) {
        wait_for(fd_, POLLIN, "to receive");
        const ssize_t n = recv(fd_, bytes.data() + got, count - got, 0);
        if (n <= 0) throw std::runtime_error("receive: the other side is gone");
        got += static_cast<std::size_t>(n);
    }
    return bytes;
}

std::string Socket::line() {
    std::string line;
    while (true) {
        const char c = receive(1)[0];
        if (c == '\n') return line;
        if (c != '\r') line += c;
    }
}

bool Socket::closed() {
    char bytes[4096];
    while (true) {
        wait_for(fd_, POLLIN, "for the other side to close");
        if (recv(fd_, bytes, sizeof bytes, 0) <= 0) return true;
    }
}

EmulatorProcess::EmulatorProcess(std::vector<std::string> flags, const std::string& scpi) {
    const char* program = std::getenv("OPUS_OCS_EMU");
    if (!program) throw std::runtime_error("OPUS_OCS_EMU is not set: run by meson test");
    flags.insert(flags.begin(), program);
    flags.insert(flags.end(), {"--scpi", scpi, "--data", "127.0.0.1:0"});
    std::vector<char*> arguments;
    for (auto& flag : flags) arguments.push_back(flag.data());
    arguments.push_back(nullptr);

    int out[2];
    if (pipe2(out, O_CLOEXEC)) throw std::runtime_error("pipe");
    const pid_t parent = getpid();
    pid_ = fork();
    if (pid_ == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);  // a test that crashes leaves nothing behind
        dup2(out[1], 1);
        if (getppid() == parent) execv(program, arguments.data());
        _exit(127);
    }
    close(out[1]);
    if (pid_ < 0) throw std::runtime_error(std::string("fork: ") + std::strerror(errno));
    std::string line;
    for (char c = 0; c != '\n'; line += c) {
        pollfd p{out[0], POLLIN, 0};
        if (poll(&p, 1, kPatienceMs) <= 0 || read(out[0], &c, 1) != 1)
            throw std::runtime_error("the emulator did not come up");
    }
    close(out[0]);
    const auto at = line.find("scpi="), data = line.find(" data=");
    if (at == std::string::npos || data == std::string::npos) throw std::runtime_error("not a ready line: " + line);
    scpi_ = line.substr(at + 5, data - at - 5);
    data_ = line.substr(data + 6, line.size() - data - 7);
}

EmulatorProcess::~EmulatorProcess() {
    if (pid_ > 0) end(SIGKILL);
}

bool EmulatorProcess::alive() const { return pid_ > 0 && kill(pid_, 0) == 0; }

int EmulatorProcess::end(int signal) {
    control_.clear();
    kill(pid_, signal);
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

Socket& EmulatorProcess::control() {
    if (control_.empty()) control_.emplace_back(scpi_);
    return control_.front();
}

void EmulatorProcess::tell(const std::string& line) {
    if (const auto error = ask(line + ";:system:error?"); !error.starts_with("0"))
        throw std::runtime_error(line + ": " + error);
}

std::string EmulatorProcess::ask(const std::string& line) {
    control().send(line + "\n");
    return control().line();
}

std::vector<std::uint64_t> EmulatorProcess::counts() {
    std::vector<std::uint64_t> out;
    std::stringstream reply(ask(":emulator:count?"));
    for (std::string number; std::getline(reply, number, ',');) out.push_back(std::stoull(number));
    if (out.size() != 7) throw std::runtime_error("not seven counts: " + reply.str());
    return out;
}

NicPort::NicPort(const EmulatorProcess& emulator, std::uint32_t port, std::uint64_t endpoint)
    : socket_(emulator.data()) {
    const data_plane::Attach attach{data_plane::kMagic, data_plane::kVersion, port, 0, endpoint};
    socket_.send({reinterpret_cast<const char*>(&attach), sizeof attach});
    data_plane::Attached attached;
    std::memcpy(&attached, socket_.receive(sizeof attached).data(), sizeof attached);
    status_ = attached.status;
}

void NicPort::send(std::uint64_t dst, std::string_view payload, std::uint64_t tag, std::uint32_t port) {
    const data_plane::FrameHeader header{static_cast<std::uint32_t>(payload.size()), port, dst, 0, tag};
    socket_.send({reinterpret_cast<const char*>(&header), sizeof header});
    socket_.send(payload);
}

Frame NicPort::receive() {
    Frame frame;
    std::memcpy(&frame.header, socket_.receive(sizeof frame.header).data(), sizeof frame.header);
    frame.payload = socket_.receive(frame.header.payload_bytes);
    return frame;
}

Switch switch_at(const std::string& address, std::uint32_t ingress, std::uint32_t egress, double dark_ms) {
    Switch s;
    s.name = "ocs-r0";
    s.driver = "polatis-scpi";
    s.address = address;
    s.ingress = ingress;
    s.egress = egress;
    s.sidedness = egress ? Sidedness::two_sided : Sidedness::any_to_any;
    s.technology = "piezo";
    s.dark_ns = static_cast<TimeNs>(dark_ms * 1e6);
    return s;
}

}  // namespace opus::test
