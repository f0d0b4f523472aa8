// The members of every wire struct, in wire order: the one list from which encoding, decoding and
// error paths come. A struct whose list lacks a member does not compile (see member_count_of).
// Append only: the position of a member is the protocol.
#pragma once

#include <concepts>
#include <cstddef>
#include <type_traits>
#include <utility>

#include "opus/wire.h"

namespace opus::wire {

template <class T>
inline constexpr std::size_t member_count = 0;

// Members of a list written M(a) && M(b) && ...
constexpr std::size_t members_in(const char* list) {
    std::size_t ands = 0;
    for (; *list != 0; ++list) ands += *list == '&';
    return ands / 2 + 1;
}

// members(s, v) calls v(name, member) for each member of s, const or not, until one call says false.
#define OPUS_WIRE_STRUCT(T, list)                                     \
    template <>                                                       \
    inline constexpr std::size_t member_count<T> = members_in(#list); \
    template <class S, class V>                                       \
    requires std::same_as<std::remove_const_t<S>, T>                  \
    constexpr bool members([[maybe_unused]] S& s, [[maybe_unused]] V&& v) { return list; }
#define M(member) v(#member, s.member)

OPUS_WIRE_STRUCT(CommId, M(hi) && M(lo))
OPUS_WIRE_STRUCT(Key, M(comm) && M(kind) && M(src) && M(dst) && M(n))
OPUS_WIRE_STRUCT(LocalLaunch, M(rank) && M(seq))
OPUS_WIRE_STRUCT(KeyRange, M(first) && M(count) && M(mesh))
OPUS_WIRE_STRUCT(LaunchDemand, M(launch) && M(keys) && M(op) && M(bytes) && M(ready_ns) && M(reserved_run) && M(mixed) && M(behind))
OPUS_WIRE_STRUCT(LaunchDone, M(launch) && M(ready_ns) && M(go_ns) && M(done_ns) && M(ungated))
OPUS_WIRE_STRUCT(LaunchRan, M(demand) && M(done))
OPUS_WIRE_STRUCT(LaunchSeen, M(done) && M(comm) && M(op) && M(bytes))
OPUS_WIRE_STRUCT(LaunchSnapshot, M(demand) && M(state) && M(grant))
OPUS_WIRE_STRUCT(CommMember, M(comm) && M(parent) && M(rank_in_comm) && M(size) && M(rank) && M(gpu) && M(mode) &&
                                 M(generation) && M(done) && M(verdict) && M(creation) && M(own_nic) && M(own_host) && M(at_once) && M(also))
OPUS_WIRE_STRUCT(CommEntrant, M(comm) && M(rank))
OPUS_WIRE_STRUCT(RankInfo, M(rank) && M(pid) && M(gpu) && M(hold_ms) && M(policy) && M(job) && M(reserved_paces))
OPUS_WIRE_STRUCT(PortSteering, M(gpu) && M(port) && M(peer_node) && M(peer_gpu) && M(peer_port))
OPUS_WIRE_STRUCT(Hello, M(node) && M(session) && M(known_epoch) && M(version) && M(where) && M(seat))
OPUS_WIRE_STRUCT(Token, M(grant) && M(firm) && M(soft) && M(reserved_frozen))
OPUS_WIRE_STRUCT(Snapshot, M(ranks) && M(comms) && M(launches) && M(tokens) && M(entering))
OPUS_WIRE_STRUCT(Register, M(ranks) && M(comms) && M(entering))
OPUS_WIRE_STRUCT(CommGone, M(comm) && M(rank))
OPUS_WIRE_STRUCT(Retire, M(ranks) && M(comms) && M(degraded) && M(failed))
OPUS_WIRE_STRUCT(Demand, M(launches))
OPUS_WIRE_STRUCT(Done, M(launches) && M(ran) && M(ended) && M(seen))
OPUS_WIRE_STRUCT(Returned, M(id) && M(started) && M(returned) && M(started_upto) && M(running))
OPUS_WIRE_STRUCT(Expired, M(launches))
OPUS_WIRE_STRUCT(Bystander, M(pid) && M(program) && M(library) && M(shim))
OPUS_WIRE_STRUCT(Heartbeat, M(sent_ns) && M(reserved_learned) && M(reserved_withheld) && M(bystanders))
OPUS_WIRE_STRUCT(GpuAssignment, M(local) && M(ports) && M(pci) && M(rail) && M(uuid))
OPUS_WIRE_STRUCT(Welcome, M(session) && M(epoch) && M(node) && M(gpus) && M(reserved_provision) && M(reserved_runs) && M(grace_ms) &&
                              M(silence_ms) && M(reserved_dark_us) && M(reserved_by_rank))
OPUS_WIRE_STRUCT(Refused, M(session) && M(reason) && M(taken_ms))
OPUS_WIRE_STRUCT(Place, M(node) && M(gpu) && M(own_nic) && M(domain))
OPUS_WIRE_STRUCT(CommVerdict, M(comm) && M(verdict) && M(places) && M(reason) && M(reason_rank) && M(why) && M(known_as))
OPUS_WIRE_STRUCT(Verdicts, M(comms))
OPUS_WIRE_STRUCT(Grant, M(id) && M(firm) && M(soft) && M(steering))
OPUS_WIRE_STRUCT(Revoke, M(id) && M(ports) && M(grants))
OPUS_WIRE_STRUCT(Pass, M(launches) && M(how) && M(why))
OPUS_WIRE_STRUCT(Suspended, M(launches) && M(back))
OPUS_WIRE_STRUCT(WaitingLaunch, M(launch) && M(misses))
OPUS_WIRE_STRUCT(Waiting, M(launches))
OPUS_WIRE_STRUCT(Resync, M(reason))
OPUS_WIRE_STRUCT(CtlRequest, M(id) && M(command) && M(arguments))
OPUS_WIRE_STRUCT(CtlReply, M(id) && M(ok) && M(more) && M(body))

#undef M
#undef OPUS_WIRE_STRUCT

template <class T>
concept WireStruct = member_count<T> >
0;

// How many members the compiler sees: the most values that can initialise T.
struct AnyValue {
    template <class T>
    operator T() const;
};
template <class T, std::size_t... I>
constexpr bool takes(std::index_sequence<I...>) {
    return requires { T{(static_cast<void>(I), AnyValue{})...}; };
}
template <class T, std::size_t N = 16>
constexpr std::size_t aggregate_size() {
    if constexpr (takes<T>(std::make_index_sequence<N>{}))
        return N;
    else
        return aggregate_size<T, N - 1>();
}

}  // namespace opus::wire
