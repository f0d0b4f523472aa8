// An opus-ocs-emu of a test's own: started with ports of the kernel's choice, ended with the test.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "opus/data_plane.h"
#include "opus/fabric.h"

namespace opus::test {

// A connected TCP socket with deadlines: a call that takes longer than 20 s fails the test by exception.
class Socket {
public:
    explicit Socket(const std::string& address);
    explicit Socket(int fd) : fd_(fd) {}
    Socket(Socket&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
    Socket(const Socket&) = delete;
    ~Socket();
    void send(std::string_view bytes);
    std::string receive(std::size_t count);  // exactly
    std::string line();
    bool closed();  // reads until the other side has closed
    int fd() const { return fd_; }

private:
    int fd_;
};

class EmulatorProcess {
public:
    explicit EmulatorProcess(std::vector<std::string> flags, const std::string& scpi = "127.0.0.1:0");
    ~EmulatorProcess();

    const std::string& scpi() const { return scpi_; }
    const std::string& data() const { return data_; }
    pid_t pid() const { return pid_; }
    bool alive() const;
    int end(int signal);  // exit status; -signal if killed

    // Over a control session of its own.
    void tell(const std::string& line);  // and its errors, which fail the test
    std::string ask(const std::string& line);
    std::vector<std::uint64_t> counts();  // :emulator:count?

private:
    Socket& control();
    std::string scpi_, data_;
    pid_t pid_ = -1;
    std::vector<Socket> control_;  // none or one
};

struct Frame {
    data_plane::FrameHeader header{};
    std::string payload;
};

// A NIC port.
class NicPort {
public:
    NicPort(const EmulatorProcess& emulator, std::uint32_t port, std::uint64_t endpoint);
    data_plane::AttachStatus status() const { return status_; }
    void send(std::uint64_t dst, std::string_view payload, std::uint64_t tag = 0, std::uint32_t port = 0);
    Frame receive();
    Socket& socket() { return socket_; }

private:
    Socket socket_;
    data_plane::AttachStatus status_;
};

Switch switch_at(const std::string& address, std::uint32_t ingress, std::uint32_t egress, double dark_ms);

}  // namespace opus::test
