// NIC ports that send whatever they like, and hang up in the middle of it: the data plane of the emulator stands.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "tools/emulator/data_plane.h"

namespace {

using namespace opus;
using namespace opus::emulator;

constexpr std::uint32_t kPorts = 4;

// The input as a source of numbers and bytes.
class Source {
public:
    Source(const std::uint8_t* data, std::size_t size) : data_(data), left_(size) {}
    bool empty() const { return left_ == 0; }
    std::uint8_t byte() {
        if (left_ == 0) return 0;
        --left_;
        return *data_++;
    }
    std::string bytes(std::size_t count) {
        count = std::min(count, left_);
        std::string out(reinterpret_cast<const char*>(data_), count);
        data_ += count;
        left_ -= count;
        return out;
    }

private:
    const std::uint8_t* data_;
    std::size_t left_;
};

// One switch and up to four NIC ports, on one thread: the loop goes round when it is told to.
class Bench {
public:
    explicit Bench(const DataPlaneOptions& options)
        : optical_plane_({kPorts, 0, 0}), plane_(loop_, optical_plane_, counters_, options, "127.0.0.1:0") {
        loop_.each_round([this](TimeNs now) { return --rounds_ > 0 ? now : (loop_.stop(), now); });
    }
    ~Bench() {
        for (const int fd : nics_)
            if (fd >= 0) close(fd);
    }

    void go_round(int times) {
        rounds_ = times;
        loop_.run();
    }
    int& nic(std::size_t which) {
        int& fd = nics_[which % nics_.size()];
        if (fd >= 0) return fd;
        fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        sockaddr_in to{};
        to.sin_family = AF_INET;
        to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        to.sin_port = htons(std::uint16_t(std::stoul(plane_.address().substr(plane_.address().rfind(':') + 1))));
        const linger at_once{1, 0};  // or a campaign uses up the machine's ports
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
        if (connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to) != 0) return fd;  // what is said gets nowhere
        fcntl(fd, F_SETFL, O_NONBLOCK);
        return fd;
    }
    void say(std::size_t which, const std::string& bytes) {
        send(nic(which), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    }
    void hear(std::size_t which) {
        std::array<char, 65536> buffer{};
        while (recv(nic(which), buffer.data(), buffer.size(), 0) > 0) {}
    }
    void hang_up(std::size_t which) {
        int& fd = nics_[which % nics_.size()];
        if (fd >= 0) close(fd);
        fd = -1;
    }
    void turn(std::uint8_t how) {
        const CrossConnect pair{SwitchPort(1 + how % kPorts), SwitchPort(1 + how / kPorts % kPorts)};
        optical_plane_.connect({&pair, 1}, how >= 128, monotonic_ns());
    }

private:
    Loop loop_;
    OpticalPlane optical_plane_;
    Counters counters_;
    DataPlane plane_;
    std::array<int, 4> nics_{-1, -1, -1, -1};
    int rounds_ = 0;
};

template <typename T>
std::string raw(const T& value) {
    return {reinterpret_cast<const char*>(&value), sizeof value};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    Source source(data, size);
    DataPlaneOptions options;
    const std::uint8_t kind = source.byte();
    options.always_lit = (kind & 1) != 0;
    options.port_gbps = (kind & 2) != 0 ? 100 : 0;
    Bench bench(options);
    for (int steps = 0; steps < 200 && !source.empty(); ++steps) {
        const std::uint8_t what = source.byte(), who = source.byte();
        switch (what % 8) {
            case 0: bench.say(who, source.bytes(source.byte())); break;
            case 1:
            case 2:
                bench.say(who, raw(data_plane::Attach{data_plane::kMagic, data_plane::kVersion,
                                                      source.byte() % (kPorts + 2u), 0, source.byte() % 4u}));
                break;
            case 3:
            case 4: {
                const std::uint32_t bytes = source.byte() * (what >= 128 ? 4096u : 1u);
                bench.say(
                    who, raw(data_plane::FrameHeader{bytes, source.byte() % (kPorts + 2u), source.byte() % 4u, 0, what}) +
                             std::string(bytes, 'x'));
                break;
            }
            case 5: bench.turn(who); break;
            case 6: bench.hear(who); break;
            default: bench.hang_up(who);
        }
        if (what >= 64) bench.go_round(2);
    }
    bench.go_round(4);
    return 0;
}
