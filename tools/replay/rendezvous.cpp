#include "tools/replay/rendezvous.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>
#include <thread>

#include "tools/replay/player.h"

namespace opus::replay {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kPoll = std::chrono::milliseconds(3);
constexpr std::uint32_t kMaxValue = 1u << 16;

std::string flat(std::string key) {
    for (char& c : key)
        if (!std::isalnum(static_cast<unsigned char>(c)) && c != '.' && c != '-') c = '_';
    return key;
}

class FileRendezvous final : public Rendezvous {
public:
    explicit FileRendezvous(std::string folder) : folder_(std::move(folder)) {
        std::error_code error;
        std::filesystem::create_directories(folder_, error);
        if (error) throw PlayError(kExitUsage, "rendezvous folder " + folder_ + ": " + error.message());
    }
    void put(const std::string& key, const std::string& value) override {
        const std::string path = folder_ + "/" + flat(key), draft = path + "." + std::to_string(getpid());
        std::ofstream(draft, std::ios::binary) << value;
        if (std::rename(draft.c_str(), path.c_str()) != 0)
            throw PlayError(kExitUsage, "cannot write " + path + ": " + std::strerror(errno));
    }
    std::string get(const std::string& key, std::uint64_t timeout_ms) override {
        const std::string path = folder_ + "/" + flat(key);
        const auto until = Clock::now() + std::chrono::milliseconds(timeout_ms);
        for (;;) {
            if (std::ifstream in(path, std::ios::binary); in) {
                std::ostringstream all;
                all << in.rdbuf();
                return all.str();
            }
            if (Clock::now() > until) throw PlayError(kExitTimeout, "nobody has put " + path);
            std::this_thread::sleep_for(kPoll);
        }
    }

private:
    std::string folder_;
};

bool read_all(int fd, void* to, std::size_t bytes) {
    auto* p = static_cast<char*>(to);
    while (bytes > 0) {
        const ssize_t n = ::recv(fd, p, bytes, 0);
        if (n <= 0) return false;
        p += n, bytes -= static_cast<std::size_t>(n);
    }
    return true;
}
bool write_all(int fd, const void* from, std::size_t bytes) {
    const auto* p = static_cast<const char*>(from);
    while (bytes > 0) {
        const ssize_t n = ::send(fd, p, bytes, MSG_NOSIGNAL);
        if (n <= 0) return false;
        p += n, bytes -= static_cast<std::size_t>(n);
    }
    return true;
}
bool read_text(int fd, std::string& out) {
    std::uint32_t size = 0;
    if (!read_all(fd, &size, sizeof size) || size > kMaxValue) return false;
    out.resize(size);
    return read_all(fd, out.data(), size);
}
bool write_text(int fd, const std::string& text) {
    const auto size = static_cast<std::uint32_t>(text.size());
    return write_all(fd, &size, sizeof size) && write_all(fd, text.data(), text.size());
}

struct Address {
    addrinfo* list = nullptr;
    Address(const std::string& host, const std::string& port, bool passive) {
        addrinfo hints{};
        hints.ai_socktype = SOCK_STREAM;
        hints.ai_flags = passive ? AI_PASSIVE : 0;
        if (getaddrinfo(host.c_str(), port.c_str(), &hints, &list) != 0 || !list)
            throw PlayError(kExitUsage, "rendezvous: no such address " + host + ":" + port);
    }
    ~Address() { freeaddrinfo(list); }
};

// Serves one request a connection: 'P' key value, or 'G' key -> found? value. One thread; the process
// ends with it (it holds nothing that outlives it).
class Server {
public:
    Server(const std::string& host, const std::string& port) {
        const Address at(host, port, true);
        fd_ = ::socket(at.list->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        const int yes = 1;
        setsockopt(fd_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
        if (fd_ < 0 || ::bind(fd_, at.list->ai_addr, at.list->ai_addrlen) != 0 || ::listen(fd_, 1024) != 0)
            throw PlayError(kExitUsage, "rendezvous: cannot listen on " + host + ":" + port + ": " + std::strerror(errno));
        thread_ = std::thread([this] { serve(); });
    }
    ~Server() {
        ::shutdown(fd_, SHUT_RDWR);
        thread_.join();
        ::close(fd_);
    }

private:
    void serve() {
        for (int c = ::accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC); c >= 0;
             c = ::accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC)) {
            timeval patience{2, 0};
            setsockopt(c, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
            char what = 0;
            std::string key, value;
            if (read_all(c, &what, 1) && read_text(c, key)) answer(c, what, key, value);
            ::close(c);
        }
    }
    void answer(int c, char what, const std::string& key, std::string& value) {
        if (what == 'P' && read_text(c, value)) {
            values_[key] = value;
            write_all(c, "+", 1);
        } else if (what == 'G') {
            const auto it = values_.find(key);
            if (it == values_.end())
                write_all(c, "-", 1);
            else if (write_all(c, "+", 1))
                write_text(c, it->second);
        }
    }

    int fd_ = -1;
    std::map<std::string, std::string> values_;
    std::thread thread_;
};

class TcpRendezvous final : public Rendezvous {
public:
    TcpRendezvous(std::string host, std::string port, bool serve) : host_(std::move(host)), port_(std::move(port)) {
        if (serve) server_ = std::make_unique<Server>(host_, port_);
    }
    void put(const std::string& key, const std::string& value) override {
        wait(30'000, "put " + key, [&](int fd) {
            char ok = 0;
            return write_all(fd, "P", 1) && write_text(fd, key) && write_text(fd, value) && read_all(fd, &ok, 1) && ok == '+';
        });
    }
    std::string get(const std::string& key, std::uint64_t timeout_ms) override {
        std::string value;
        wait(timeout_ms, "get " + key, [&](int fd) {
            char ok = 0;
            return write_all(fd, "G", 1) && write_text(fd, key) && read_all(fd, &ok, 1) && ok == '+' && read_text(fd, value);
        });
        return value;
    }

private:
    template <class Ask>
    void wait(std::uint64_t timeout_ms, const std::string& what, Ask ask) {
        const auto until = Clock::now() + std::chrono::milliseconds(timeout_ms);
        for (;;) {
            const Address at(host_, port_, false);
            const int fd = ::socket(at.list->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
            const bool done = fd >= 0 && ::connect(fd, at.list->ai_addr, at.list->ai_addrlen) == 0 && ask(fd);
            if (fd >= 0) ::close(fd);
            if (done) return;
            if (Clock::now() > until) throw PlayError(kExitTimeout, "rendezvous: cannot " + what);
            std::this_thread::sleep_for(5 * kPoll);
        }
    }
    std::string host_, port_;
    std::unique_ptr<Server> server_;
};

}  // namespace

std::unique_ptr<Rendezvous> open_rendezvous(const std::string& where, std::uint32_t rank) {
    if (where.rfind("file:", 0) == 0) return std::make_unique<FileRendezvous>(where.substr(5));
    const auto colon = where.rfind(':');
    if (where.rfind("tcp:", 0) == 0 && colon > 4)
        return std::make_unique<TcpRendezvous>(where.substr(4, colon - 4), where.substr(colon + 1), rank == 0);
    throw PlayError(kExitUsage, "--rendezvous must be file:DIR or tcp:HOST:PORT, not " + where);
}

}  // namespace opus::replay
