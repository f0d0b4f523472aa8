#include "rails.h"

#include <algorithm>

#include "engine/engine.h"
#include "transport.h"

namespace opus::standin {

namespace {
constexpr std::int64_t kMillisecond = 1'000'000;
constexpr std::int64_t kLightPollLongest_ns = 20 * kMillisecond;
}  // namespace

bool RailLink::first_time(std::uint64_t number) {
    if (number <= seen_upto || seen_beyond.count(number)) return false;
    seen_beyond.insert(number);
    while (!seen_beyond.empty() && *seen_beyond.begin() == seen_upto + 1) {
        ++seen_upto;
        seen_beyond.erase(seen_beyond.begin());
    }
    return true;
}

Rails::Rails(Transport& transport, std::uint64_t endpoint)
    : transport_(transport), endpoint_(endpoint), steering_(Settings::get().steering) {
    for (const PortLine& line : Settings::get().ports)
        ports_.push_back(std::make_unique<RailPort>(transport, *this, line, endpoint));
}

std::string Rails::attach(const std::set<std::uint32_t>& gpus) {
    std::string missing;
    for (auto& port : ports_) {
        if (!gpus.count(port->line().gpu)) continue;
        port->attach();
        if (!port->attached())
            missing = "port n" + std::to_string(port->line().node) + ".g" + std::to_string(port->line().gpu) + ".p" +
                      std::to_string(port->line().port) + ": " + port->problem();
    }
    return missing;
}

RailLink& Rails::link(std::uint64_t endpoint, Way way) {
    RailLink& l = links_[{endpoint, way}];
    l.peer.endpoint = endpoint;
    l.way = way;
    return l;
}

void Rails::send(const Member& to, Way way, FrameRef frame) {
    RailLink& l = link(to.endpoint, way);
    l.peer = to;
    l.backlog.push_back(std::move(frame));
    pump(l, now_ns());
}

// A port of this side's GPU that leads to the peer's, in turn.
RailPort* Rails::port_for(RailLink& l) {
    for (std::size_t i = 0; i < ports_.size(); ++i) {
        RailPort& port = *ports_[(l.turn + i) % ports_.size()];
        if (port.line().gpu != l.way.from) continue;
        if (steering_.used()) {
            const Lead lead = steering_.lead(port.line().gpu, port.line().port);
            if (!lead.lit || lead.node != l.peer.node || lead.gpu != l.way.to) continue;
        }
        if (!port.attached()) {
            port.attach();
            continue;
        }
        l.turn = (l.turn + i + 1) % ports_.size();
        return &port;
    }
    return nullptr;
}

bool Rails::put(RailLink& l, const FrameRef& frame) {
    RailPort* port = port_for(l);
    if (!port) return false;
    frame->on_port = true;
    frame->sent_ns = 0;
    transport_.stats.frames += 1;
    transport_.stats.bytes += frame->head.bytes;
    if (frame->sent_before) {
        transport_.stats.resent_frames += 1;
        transport_.stats.resent_bytes += frame->head.bytes;
    }
    port->send(l.peer.endpoint, frame);
    return true;
}

void Rails::pump(RailLink& l, std::int64_t now) {
    const auto is_due = [now](const Frame& frame) {
        return !frame.on_port && (frame.sent_ns == 0 || now - frame.sent_ns >= Settings::get().rto_ns);
    };
    std::vector<FrameRef> arrived;
    std::erase_if(l.under_way, [&](const auto& entry) {
        if (!entry.second->arrived || !is_due(*entry.second)) return false;
        arrived.push_back(entry.second);
        return true;
    });
    for (const FrameRef& frame : arrived) transport_.delivered(frame);
    bool dark = false;
    for (auto& [number, frame] : l.under_way) {
        if (!is_due(*frame)) continue;
        if (!put(l, frame)) {
            dark = true;
            break;
        }
    }
    while (!dark && !l.backlog.empty() && l.under_way.size() < Settings::get().window) {
        const FrameRef frame = l.backlog.front();
        frame->head.seq = l.next_number;
        if (!put(l, frame)) {
            dark = true;
            break;
        }
        l.backlog.pop_front();
        l.under_way[l.next_number++] = frame;
    }
    if (!dark)
        l.dark_since_ns = 0;
    else if (l.dark_since_ns == 0)
        l.dark_since_ns = now;
}

int Rails::tick(std::int64_t now) {
    std::int64_t next = -1;
    const auto at_most = [&](std::int64_t ns) { next = next < 0 ? ns : std::min(next, ns); };
    bool dark = false;
    for (auto& [id, l] : links_) {
        if (l.backlog.empty() && l.under_way.empty()) continue;
        if (l.dark_since_ns != 0) {
            pump(l, now);
        } else {
            for (const auto& [number, frame] : l.under_way)
                if (!frame->on_port && now - frame->sent_ns >= Settings::get().rto_ns) {
                    pump(l, now);
                    break;
                }
        }
        if (l.dark_since_ns != 0) {
            dark = true;
            at_most(std::clamp((now - l.dark_since_ns) / 16, kMillisecond, kLightPollLongest_ns));
            continue;
        }
        for (const auto& [number, frame] : l.under_way)
            if (!frame->on_port) at_most(std::max(frame->sent_ns + Settings::get().rto_ns - now, kMillisecond));
    }
    if (dark) steering_.refresh(now);
    return next < 0 ? -1 : static_cast<int>((next + kMillisecond - 1) / kMillisecond);
}

void Rails::frame_came(RailPort& port, std::uint64_t from, const Head& head, const std::byte* data) {
    RailLink& l = link(from, head.way.back());
    if (head.say == Say::ack) {
        const auto it = l.under_way.find(head.seq);
        if (it == l.under_way.end()) return;
        const FrameRef frame = it->second;
        l.under_way.erase(it);
        if (frame->on_port) frame->keep();  // sent again meanwhile and not out yet: its memory may go
        transport_.delivered(frame);
        pump(l, now_ns());
        return;
    }
    const bool fresh = l.first_time(head.seq);
    // Taken in first, acknowledged after: but for losses, nothing is under way once a sender has its answers.
    if (fresh) transport_.arrived(head, data);
    auto ack = std::make_shared<Frame>();
    ack->head.say = Say::ack;
    ack->head.way = head.way.back();
    ack->head.seq = head.seq;
    ack->sent_before = !fresh;
    port.send(from, ack);
}

void Rails::has_left(std::uint64_t endpoint, std::uint64_t comm, std::uint32_t rank) {
    for (auto& [id, l] : links_) {
        if (id.first != endpoint) continue;
        for (auto& [number, frame] : l.under_way) frame->arrived |= frame->head.comm == comm && frame->head.dst == rank;
    }
}

void Rails::purge(const Activity* owner) {
    for (auto& port : ports_) port->purge(owner);
    for (auto& [id, l] : links_) {
        std::erase_if(l.backlog, [&](const FrameRef& f) { return f->owner.get() == owner; });
        std::erase_if(l.under_way, [&](const auto& entry) { return entry.second->owner.get() == owner; });
    }
}

}  // namespace opus::standin
