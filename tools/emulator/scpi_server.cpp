#include "tools/emulator/scpi_server.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

namespace opus::emulator {

namespace {
constexpr std::size_t kMaxPending = 4u << 20;  // a client that never reads its replies is dropped
}

struct ScpiServer::Connection : Watcher {
    ScpiServer& server;
    SessionId session;
    int fd;
    std::string pending;  // replies that the socket would not take
    bool writing = false;

    Connection(ScpiServer& s, SessionId id, int f) : server(s), session(id), fd(f) {}
    ~Connection() override { close(fd); }
    void ready(std::uint32_t events) override {
        const auto alive = [this] { return server.connections_.contains(session); };
        if (alive() && (events & EPOLLOUT)) server.flush(*this);
        if (alive() && (events & ~std::uint32_t(EPOLLOUT))) server.received(*this);
    }
};

ScpiServer::ScpiServer(Loop& loop, Instrument& instrument, const std::string& address)
    : loop_(loop), instrument_(instrument), listener_(loop, address, [this](int fd) { accepted(fd); }) {
    loop_.each_round([this](TimeNs now) { return round(now); });
}

ScpiServer::~ScpiServer() = default;

void ScpiServer::accepted(int fd) {
    auto connection = std::make_unique<Connection>(*this, ++last_session_, fd);
    if (!instrument_.open(connection->session, monotonic_ns())) return;
    loop_.add(fd, EPOLLIN, connection.get());
    connections_[connection->session] = std::move(connection);
}

void ScpiServer::received(Connection& connection) {
    char bytes[16384];
    const ssize_t count = recv(connection.fd, bytes, sizeof bytes, 0);
    if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) return end(connection);
    if (count < 0) return;
    Outputs outputs;
    instrument_.receive(connection.session, {bytes, static_cast<std::size_t>(count)}, monotonic_ns(), outputs);
    carry_out(outputs);
}

TimeNs ScpiServer::round(TimeNs now) {
    ended_.clear();
    if (instrument_.next_due() <= now) {
        Outputs outputs;
        instrument_.advance(now, outputs);
        carry_out(outputs);
        ended_.clear();
    }
    return instrument_.next_due();
}

void ScpiServer::carry_out(const Outputs& outputs) {
    for (const Output& output : outputs) {
        const auto it = connections_.find(output.session);
        if (it == connections_.end()) continue;
        Connection& connection = *it->second;
        connection.pending += output.bytes;
        if (!output.bytes.empty()) flush(connection);
        if (output.close && connections_.contains(output.session)) end(connection);
    }
}

void ScpiServer::flush(Connection& connection) {
    while (!connection.pending.empty()) {
        const ssize_t count = send(connection.fd, connection.pending.data(), connection.pending.size(), MSG_NOSIGNAL);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0 && errno != EAGAIN) return end(connection);
        if (count < 0) break;
        connection.pending.erase(0, static_cast<std::size_t>(count));
    }
    if (connection.pending.size() > kMaxPending) return end(connection);
    const bool want = !connection.pending.empty();
    if (want != connection.writing) loop_.change(connection.fd, want ? EPOLLIN | EPOLLOUT : EPOLLIN, &connection);
    connection.writing = want;
}

void ScpiServer::end(Connection& connection) {
    loop_.remove(connection.fd);
    instrument_.close(connection.session);
    const auto it = connections_.find(connection.session);
    ended_.push_back(std::move(it->second));
    connections_.erase(it);
}

}  // namespace opus::emulator
