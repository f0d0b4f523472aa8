#include "ghost_managers.h"

#include <zmq.h>

#include <cstring>
#include <stdexcept>

#include "rank_player.h"

namespace opus::bench {

namespace {

constexpr int kLimitMs = 30'000;
constexpr std::uint64_t kBytes = 1 << 20;

[[noreturn]] void fail(const std::string& what) { throw std::runtime_error(what); }

}  // namespace

GhostManagers::GhostManagers(const std::string& address, std::uint32_t count, std::uint32_t group)
    : context_(::zmq_ctx_new()), group_(group), ghosts_(count), in_(1 << 20) {
    ::zmq_ctx_set(context_, ZMQ_MAX_SOCKETS, int(count) + 64);
    socket_ = ::zmq_socket(context_, ZMQ_ROUTER);
    const int no = 0, strict = 1;
    ::zmq_setsockopt(socket_, ZMQ_LINGER, &no, sizeof(no));
    ::zmq_setsockopt(socket_, ZMQ_ROUTER_MANDATORY, &strict, sizeof(strict));
    for (std::uint32_t i = 0; i < count; ++i) {
        // The first byte may not be 0: ZeroMQ keeps such names for its own.
        const std::uint32_t name = 0x01000000u | i;
        const char wire_name[4] = {char(name >> 24), char(name >> 16), char(name >> 8), char(name)};
        ::zmq_setsockopt(socket_, ZMQ_CONNECT_ROUTING_ID, wire_name, sizeof(wire_name));
        if (::zmq_connect(socket_, address.c_str()) != 0) fail(address + ": " + ::zmq_strerror(::zmq_errno()));
        Ghost& g = ghosts_[i];
        g.session = 0x1000 + i;
        g.comm = {0x67686f7374, i / group};
        g.rank_in_comm = i % group;
    }
}

GhostManagers::~GhostManagers() {
    ::zmq_close(socket_);
    ::zmq_ctx_term(context_);
}

void GhostManagers::send(std::uint32_t ghost, std::vector<wire::Message> messages, bool hello) {
    Ghost& g = ghosts_[ghost];
    wire::Frame frame{hello ? 0 : g.epoch, g.session, ++g.sequence, std::move(messages)};
    wire::encode(frame, out_);
    const std::uint32_t name = 0x01000000u | ghost;
    const char wire_name[4] = {char(name >> 24), char(name >> 16), char(name >> 8), char(name)};
    if (::zmq_send(socket_, wire_name, sizeof(wire_name), ZMQ_SNDMORE) < 0 ||
        ::zmq_send(socket_, out_.data(), out_.size(), 0) < 0)
        fail(std::string("send: ") + ::zmq_strerror(::zmq_errno()));
}

bool GhostManagers::receive(std::uint32_t& ghost, wire::Frame& frame, int timeout_ms) {
    unsigned char name[8];
    int length = ::zmq_recv(socket_, name, sizeof(name), ZMQ_DONTWAIT);
    if (length < 0) {
        zmq_pollitem_t item{socket_, 0, ZMQ_POLLIN, 0};
        if (::zmq_poll(&item, 1, timeout_ms) <= 0) return false;
        length = ::zmq_recv(socket_, name, sizeof(name), 0);
    }
    if (length != 4) fail("a frame from nobody");
    ghost = (std::uint32_t(name[1]) << 16) | (std::uint32_t(name[2]) << 8) | name[3];
    const int bytes = ::zmq_recv(socket_, in_.data(), in_.size(), 0);
    if (bytes < 0 || std::size_t(bytes) > in_.size()) fail("a frame that is too long");
    auto decoded = wire::decode({in_.data(), std::size_t(bytes)});
    if (auto* error = std::get_if<wire::DecodeError>(&decoded)) fail(error->text);
    frame = std::get<wire::Frame>(std::move(decoded));
    for (const wire::Message& message : frame.messages)
        if (std::holds_alternative<wire::Heartbeat>(message)) send(ghost, {wire::Heartbeat{now_ns()}});
    return true;
}

wire::Demand GhostManagers::demand(const Ghost& g) const {
    wire::LaunchDemand d;
    d.launch = {0, g.seq};
    if (g.seq == 0) d.keys.push_back({{g.comm, KeyKind::conn, 0, 0, 0}, 1});
    d.keys.push_back({{g.comm, KeyKind::coll, 0, 0, g.seq}, 1});
    d.op = OpKind::all_reduce;
    d.bytes = kBytes;
    d.ready_ns = now_ns();
    wire::Demand message;
    message.launches.push_back(std::move(d));
    return message;
}

std::vector<wire::Message> GhostManagers::snapshot(const Ghost& g) const {
    wire::Snapshot s;
    s.ranks.push_back({0, 1, 0, 30'000, Policy::proceed, "bench"});
    wire::CommMember m;
    m.comm = g.comm;
    m.rank_in_comm = g.rank_in_comm;
    m.size = group_;
    m.rank = 0;
    m.gpu = 0;
    m.generation = 1;
    s.comms.push_back(m);
    return {s};
}

void GhostManagers::handle_enrolment(std::uint32_t index, const wire::Frame& frame) {
    Ghost& g = ghosts_[index];
    for (const wire::Message& message : frame.messages) {
        if (const auto* refused = std::get_if<wire::Refused>(&message)) fail("refused: " + refused->reason);
        if (const auto* welcome = std::get_if<wire::Welcome>(&message); welcome != nullptr && !g.welcome) {
            g.welcome = true;
            g.epoch = welcome->epoch;
            send(index, snapshot(g));
        }
        if (const auto* verdicts = std::get_if<wire::Verdicts>(&message))
            for (const wire::CommVerdict& v : verdicts->comms) {
                if (v.comm != g.comm || v.verdict == Verdict::unknown) continue;
                if (v.verdict != Verdict::enforced) fail("communicator not enforced");
                g.enforced = true;
            }
    }
}

void GhostManagers::enroll() {
    for (std::uint32_t i = 0; i < ghosts_.size(); ++i)
        send(i, {wire::Hello{"n" + std::to_string(i), ghosts_[i].session, 0, "bench"}}, true);
    for (std::size_t enforced = 0; enforced < ghosts_.size();) {
        std::uint32_t index = 0;
        wire::Frame frame;
        if (!receive(index, frame, kLimitMs)) fail("enrolment: the controller is silent");
        const bool before = ghosts_.at(index).enforced;
        handle_enrolment(index, frame);
        enforced += !before && ghosts_[index].enforced;
    }
}

TimeNs GhostManagers::drive(std::uint64_t requests) {
    const TimeNs start = now_ns();
    std::uint64_t granted = 0, open = ghosts_.size();
    const std::uint64_t last = ghosts_[0].seq + requests / ghosts_.size();
    TimeNs end = start;
    for (std::uint32_t i = 0; i < ghosts_.size(); ++i) send(i, {demand(ghosts_[i])});
    while (open > 0) {
        std::uint32_t index = 0;
        wire::Frame frame;
        if (!receive(index, frame, kLimitMs)) fail("no grant: " + std::to_string(granted) + " had come");
        Ghost& g = ghosts_[index];
        for (const wire::Message& message : frame.messages) {
            if (std::holds_alternative<wire::Pass>(message)) fail("passed: " + std::get<wire::Pass>(message).why);
            const auto* grant = std::get_if<wire::Grant>(&message);
            if (grant == nullptr) continue;
            for (const wire::LocalLaunch& launch : grant->firm) {
                if (launch.seq != g.seq) continue;
                ++granted;
                const TimeNs now = now_ns();
                wire::Done done;
                done.launches.push_back({launch, now, now, now, false});
                if (++g.seq < last) {
                    send(index, {done, demand(g)});
                } else {
                    send(index, {done});
                    --open;
                    end = now;
                }
            }
        }
    }
    return end - start;
}

}  // namespace opus::bench
