#include "tools/emulator/data_plane.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstring>
#include <stdexcept>

#include "tools/emulator/data_connection.h"

namespace opus::emulator {

using data_plane::Attach;
using data_plane::Attached;
using data_plane::AttachStatus;
using data_plane::FrameHeader;

namespace {
// A port may catch up by so much when the loop was late, so that pacing holds its rate.
constexpr TimeNs kBurstNs = 200'000;
}  // namespace

DataPlane::DataPlane(Loop& loop, const OpticalPlane& optical_plane, Counters& counters, const DataPlaneOptions& options,
                     const std::string& address)
    : loop_(loop),
      optical_plane_(optical_plane),
      counters_(counters),
      options_(options),
      sending_free_ns_(optical_plane.size() + 1),
      receiving_free_ns_(optical_plane.size() + 1),
      listener_(loop, address, [this](int fd) { accepted(fd); }) {
    if (!options_.loss_log.empty()) {
        loss_log_ = std::fopen(options_.loss_log.c_str(), "ae");
        if (!loss_log_)
            throw std::runtime_error("cannot write the loss log " + options_.loss_log + ": " + std::strerror(errno));
    }
    loop_.each_round([this](TimeNs now) { return round(now); });
}

DataPlane::~DataPlane() {
    connections_.clear();
    ended_.clear();
    if (loss_log_) std::fclose(loss_log_);
}

void DataPlane::accepted(int fd) {
    auto connection = std::make_unique<Connection>(*this, fd);
    loop_.add(fd, EPOLLIN, connection.get());
    connections_[connection.get()] = std::move(connection);
}

bool DataPlane::attach(Connection& c) {
    Attach request;
    std::memcpy(&request, c.front(), sizeof request);
    c.consume(sizeof request);
    AttachStatus status = AttachStatus::ok;
    if (request.magic != data_plane::kMagic || request.endpoint == 0)
        status = AttachStatus::malformed;
    else if (request.version != data_plane::kVersion)
        status = AttachStatus::version;
    else if (request.port < 1 || request.port > optical_plane_.size())
        status = AttachStatus::no_such_port;
    else if (find(request.endpoint, request.port))
        status = AttachStatus::endpoint_taken;
    const Attached reply{data_plane::kMagic, status};
    const bool sent = send(c.fd(), &reply, sizeof reply, MSG_NOSIGNAL) == ssize_t(sizeof reply);
    if (!sent || status != AttachStatus::ok) return false;
    c.attached = true;
    c.port = request.port;
    c.endpoint = request.endpoint;
    endpoints_[c.endpoint].push_back(&c);
    return true;
}

// Handles whatever is whole, until the connection has to wait.
void DataPlane::take_frames(Connection& c) {
    if (!c.attached) {
        if (c.available() < sizeof(Attach)) return;
        if (!attach(c)) return end(c);
    }
    while (c.available() >= sizeof(FrameHeader)) {
        FrameHeader header;
        std::memcpy(&header, c.front(), sizeof header);
        if (header.payload_bytes > data_plane::kMaxPayload) return end(c);
        const std::size_t frame_bytes = sizeof header + header.payload_bytes;
        if (c.available() < frame_bytes) {
            c.want_room(frame_bytes);
            break;
        }
        if (handle(c, header, frame_bytes) == Fate::waits) {
            c.waits = true;
            break;
        }
        c.consume(frame_bytes);
    }
    c.watch();
}

DataPlane::Fate DataPlane::handle(Connection& c, FrameHeader& header, std::size_t frame_bytes) {
    bool lit = false;
    Connection* target = receiver(c, header, lit);
    if (target && target->queued_bytes() >= Connection::kHighWater) {
        target->waiters.push_back(&c);
        c.waits_for = target;
        return Fate::waits;
    }
    if (options_.port_gbps > 0 && paced(c, target ? target->port : 0, frame_bytes, monotonic_ns())) return Fate::waits;
    if (!lit) {
        ++counters_.lost_frames;
        counters_.lost_bytes += header.payload_bytes;
        log_loss("lost", c, header);
        return Fate::handled;
    }
    if (!target) {
        ++counters_.misdelivered_frames;
        counters_.misdelivered_bytes += header.payload_bytes;
        log_loss("misdelivered", c, header);
        return Fate::handled;
    }
    ++counters_.delivered_frames;
    counters_.delivered_bytes += header.payload_bytes;
    header.src = c.endpoint;
    header.port = target->port;
    std::memcpy(c.front(), &header, sizeof header);
    target->queue(c.block(), c.front(), frame_bytes);
    if (!target->dirty) {
        target->dirty = true;
        dirty_.push_back(target);
    }
    return Fate::handled;
}

DataPlane::Connection* DataPlane::receiver(const Connection& c, const FrameHeader& header, bool& lit) const {
    if (options_.always_lit) {
        lit = true;
        return find(header.dst, header.port);
    }
    const SwitchPort out = optical_plane_.lit_peer(c.port, monotonic_ns());
    lit = out != 0;
    return lit ? find(header.dst, out) : nullptr;
}

DataPlane::Connection* DataPlane::find(std::uint64_t endpoint, SwitchPort port) const {
    const auto it = endpoints_.find(endpoint);
    if (it == endpoints_.end()) return nullptr;
    for (Connection* c : it->second)
        if (port == 0 || c->port == port) return c;
    return nullptr;
}

// True when the frame's turn is later; the connection is then on the list of times.
bool DataPlane::paced(Connection& c, SwitchPort out, std::size_t frame_bytes, TimeNs now) {
    TimeNs& sending = sending_free_ns_[c.port];
    TimeNs& receiving = receiving_free_ns_[out];  // [0] is nobody's
    const TimeNs start = out ? std::max(sending, receiving) : sending;
    if (start > now) {
        c.paced_until = start;
        paced_.emplace(start, &c);
        return true;
    }
    const TimeNs until = std::max(start, now - kBurstNs) + TimeNs(double(frame_bytes) * 8 / options_.port_gbps);
    sending = until;
    if (out) receiving = until;
    return false;
}

void DataPlane::log_loss(const char* what, const Connection& c, const FrameHeader& header) {
    if (!loss_log_) return;
    timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    std::fprintf(loss_log_, "%" PRId64 " %s %u %" PRIu64 " %" PRIu64 " %u%s\n",
                 std::int64_t(t.tv_sec) * 1'000'000'000 + t.tv_nsec, what, c.port, c.endpoint, header.dst,
                 header.payload_bytes, header.tag & data_plane::kRepetition ? " again" : "");
    loss_log_dirty_ = true;
}

void DataPlane::resume_waiters(Connection& target) {
    // Another one first each time, so that none of several senders is starved.
    if (!target.waiters.empty()) std::rotate(target.waiters.begin(), target.waiters.begin() + 1, target.waiters.end());
    for (Connection* waiter : target.waiters) {
        waiter->waits_for = nullptr;
        runnable_.push_back(waiter);
    }
    target.waiters.clear();
}

// Sends what has been queued and lets those go on who waited for it, until nothing moves.
void DataPlane::settle() {
    while (!dirty_.empty() || !runnable_.empty()) {
        while (!dirty_.empty()) {
            Connection* c = dirty_.back();
            dirty_.pop_back();
            c->dirty = false;
            if (!c->flush()) end(*c);
        }
        if (runnable_.empty()) break;
        Connection* c = runnable_.front();
        runnable_.pop_front();
        c->waits = false;
        take_frames(*c);
    }
}

TimeNs DataPlane::round(TimeNs now) {
    while (!paced_.empty() && paced_.begin()->first <= now) {
        runnable_.push_back(paced_.begin()->second);
        paced_.erase(paced_.begin());
    }
    settle();
    ended_.clear();
    if (loss_log_dirty_) std::fflush(loss_log_);
    loss_log_dirty_ = false;
    return paced_.empty() ? kNever : paced_.begin()->first;
}

void DataPlane::end(Connection& c) {
    if (c.ended) return;
    c.ended = true;
    loop_.remove(c.fd());
    if (c.waits_for) std::erase(c.waits_for->waiters, &c);
    paced_.erase({c.paced_until, &c});
    std::erase(dirty_, &c);
    std::erase(runnable_, &c);
    if (c.attached) {
        auto it = endpoints_.find(c.endpoint);
        std::erase(it->second, &c);
        if (it->second.empty()) endpoints_.erase(it);
    }
    resume_waiters(c);
    const auto it = connections_.find(&c);
    ended_.push_back(std::move(it->second));
    connections_.erase(it);
}

}  // namespace opus::emulator
