// What a field of a message may hold, beyond its type. rule(x) names the member that is wrong and what
// is wrong with it, or says nothing. decode() asks after each struct it has read, innermost first, so
// a rule may take for granted that the parts of its struct keep theirs.
#pragma once

#include <string>

#include "opus/launch_ring.h"
#include "opus/wire.h"

namespace opus::wire {

struct Fault {
    const char* member = nullptr;  // null: no fault
    const char* text = nullptr;
    explicit operator bool() const { return text != nullptr; }
};

template <class T>
Fault rule(const T&) {
    return {};
}

inline bool is_zero(const CommId& c) { return c == CommId{}; }
inline bool is_printable(const std::string& s) {
    for (const char c : s)
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) return false;
    return true;
}
inline Fault name_rule(const char* member, const std::string& s) {
    if (s.size() > kMaxName) return {member, "longer than 255 bytes"};
    if (!is_printable(s)) return {member, "holds a control character"};
    return {};
}
inline Fault text_rule(const char* member, const std::string& s) {
    if (s.size() > kMaxText) return {member, "longer than 4095 bytes"};
    if (!is_printable(s)) return {member, "holds a control character"};
    return {};
}
inline bool is_local(std::uint32_t index) { return index == kNone || index < kMaxLocal; }

inline Fault rule(const LocalLaunch& x) {
    if (x.rank == kNone) return {"rank", "missing"};
    if (x.seq > ring::kSeqMask) return {"seq", "beyond 2^48"};
    return {};
}
inline Fault rule(const Key& x) {
    if (is_zero(x.comm)) return {"comm", "zero"};
    const bool directed = is_directed(x.kind);
    if (directed && x.src == x.dst) return {"dst", "equals src"};
    if (directed && (x.src >= kMaxRanks || x.dst >= kMaxRanks)) return {"dst", "ranks must be below 2^22"};
    if (!directed && (x.src != 0 || x.dst != 0)) return {"src", "only transfers have src and dst"};
    const bool once = x.kind == KeyKind::conn || x.kind == KeyKind::conn_p2p;
    if (once && x.n != 0) return {"n", "must be 0 for first uses"};
    if (x.n > ring::kSeqMask) return {"n", "beyond 2^48"};
    return {};
}
inline Fault rule(const KeyRange& x) {
    if (x.count == 0) return {"count", "must be at least 1"};
    if (x.count > kMaxKeysPerLaunch) return {"count", "more than 65536"};
    if (is_connection(x.first.kind) && x.count != 1) return {"count", "must be 1 for first uses"};
    return {};
}
inline Fault rule(const LaunchDemand& x) {
    if (x.keys.empty()) return {"keys", "empty: a launch without a key never asks"};
    std::size_t keys = 0;
    for (const auto& range : x.keys)
        if ((keys += range.count) > kMaxKeysPerLaunch) return {"keys", "more than 65536"};
    if (x.ready_ns < 0) return {"ready_ns", "negative"};
    return {};
}
inline Fault rule(const Bystander& x) {
    if (x.pid == 0) return {"pid", "missing"};
    if (auto fault = name_rule("program", x.program)) return fault;
    return text_rule("library", x.library);
}
inline Fault rule(const LaunchDone& x) {
    if (x.ready_ns < 0) return {"ready_ns", "negative"};
    if (x.go_ns < 0) return {"go_ns", "negative"};
    if (x.done_ns < 0) return {"done_ns", "negative"};
    return {};
}
inline Fault rule(const CommMember& x) {
    if (is_zero(x.comm)) return {"comm", "zero"};
    if (x.size == 0 || x.size > kMaxRanks) return {"size", "must be 1 to 2^22"};
    if (x.rank_in_comm >= x.size) return {"rank_in_comm", "not below size"};
    if (x.rank == kNone) return {"rank", "missing"};
    if (!is_local(x.gpu)) return {"gpu", "must be below 64, or none"};
    return {};
}
inline Fault rule(const RankInfo& x) {
    if (x.rank == kNone) return {"rank", "missing"};
    if (!is_local(x.gpu)) return {"gpu", "must be below 64, or none"};
    return name_rule("job", x.job);
}
inline Fault rule(const PortSteering& x) {
    if (x.gpu >= kMaxLocal) return {"gpu", "must be below 64"};
    if (x.port >= kMaxLocal) return {"port", "must be below 64"};
    const bool dark = x.peer_node == kNone;
    if (dark != (x.peer_gpu == kNone) || dark != (x.peer_port == kNone)) return {"peer_gpu", "a peer is whole or none"};
    if (!is_local(x.peer_gpu)) return {"peer_gpu", "must be below 64"};
    if (!is_local(x.peer_port)) return {"peer_port", "must be below 64"};
    return {};
}
inline Fault rule(const Hello& x) {
    if (x.node.empty()) return {"node", "empty"};
    if (x.session == 0) return {"session", "zero"};
    if (auto fault = name_rule("node", x.node)) return fault;
    if (auto fault = name_rule("version", x.version)) return fault;
    return text_rule("where", x.where);
}
inline Fault rule(const Token& x) { return x.grant == 0 ? Fault{"grant", "zero"} : Fault{}; }
inline Fault rule(const CommGone& x) {
    if (is_zero(x.comm)) return {"comm", "zero"};
    return x.rank == kNone ? Fault{"rank", "missing"} : Fault{};
}
inline Fault rule(const Returned& x) { return x.id == 0 ? Fault{"id", "zero"} : Fault{}; }
inline Fault rule(const GpuAssignment& x) {
    if (x.local >= kMaxLocal) return {"local", "must be below 64"};
    if (x.ports == 0 || x.ports > kMaxLocal) return {"ports", "must be 1 to 64"};
    if (auto fault = name_rule("pci", x.pci)) return fault;
    if (auto fault = name_rule("uuid", x.uuid)) return fault;
    return name_rule("rail", x.rail);
}
inline Fault rule(const Welcome& x) {
    if (x.session == 0) return {"session", "zero"};
    if (x.epoch == 0) return {"epoch", "zero"};
    return x.node == kNone ? Fault{"node", "missing"} : Fault{};
}
inline Fault rule(const Refused& x) { return text_rule("reason", x.reason); }
inline Fault rule(const Place& x) {
    if (x.node == kNone) return {"node", "missing"};
    return x.gpu >= kMaxLocal ? Fault{"gpu", "must be below 64"} : Fault{};
}
inline Fault rule(const CommVerdict& x) {
    if (is_zero(x.comm)) return {"comm", "zero"};
    return text_rule("why", x.why);
}
inline Fault rule(const CommEntrant& x) {
    if (is_zero(x.comm)) return {"comm", "zero"};
    if (x.rank == kNone) return {"rank", "missing"};
    return {};
}
inline Fault rule(const Grant& x) { return x.id == 0 ? Fault{"id", "zero"} : Fault{}; }
inline Fault rule(const Revoke& x) { return x.id == 0 ? Fault{"id", "zero"} : Fault{}; }
inline Fault rule(const Pass& x) { return text_rule("why", x.why); }
inline Fault rule(const WaitingLaunch& x) { return text_rule("misses", x.misses); }
inline Fault rule(const Resync& x) { return text_rule("reason", x.reason); }
inline Fault rule(const CtlRequest& x) {
    if (auto fault = name_rule("command", x.command)) return fault;
    return x.arguments.size() > kMaxBody ? Fault{"arguments", "longer than 8 MiB"} : Fault{};
}
inline Fault rule(const CtlReply& x) { return x.body.size() > kMaxBody ? Fault{"body", "longer than 8 MiB"} : Fault{}; }

}  // namespace opus::wire
