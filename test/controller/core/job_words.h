// Words to write programs with, in tests.
#pragma once

#include <doctest/doctest.h>

#include "test/controller/core/harness.h"

namespace opus::controller::test {

inline OpSpec coll(std::size_t comm, OpKind op = OpKind::all_reduce) { return {What::coll, comm, 0, op}; }
inline OpSpec send(std::size_t comm, std::uint32_t to) { return {What::send, comm, to, OpKind::send}; }
inline OpSpec recv(std::size_t comm, std::uint32_t from) { return {What::recv, comm, from, OpKind::recv}; }
inline OpSpec put(std::size_t comm, std::uint32_t to) { return {What::put, comm, to, OpKind::put_signal}; }
inline OpSpec conn_mesh(std::size_t comm) { return {What::connect_mesh, comm, 0, OpKind::all_to_all}; }
inline OpSpec conn(std::size_t comm) { return {What::connect, comm, 0, OpKind::all_reduce}; }

inline LaunchSpec on(int stream, std::vector<OpSpec> ops, std::vector<std::size_t> after = {}) {
    LaunchSpec l;
    l.ops = std::move(ops);
    l.stream = stream;
    l.after = std::move(after);
    return l;
}
inline LaunchSpec lasting(TimeNs work_ns, LaunchSpec l) {
    l.work_ns = work_ns;
    return l;
}
inline LaunchSpec later(TimeNs delay_ns, LaunchSpec l) {
    l.delay_ns = delay_ns;
    return l;
}
inline RankSpec rank_on(NodeIndex node, std::vector<LaunchSpec> program, std::uint32_t gpu = 0) {
    return {node, gpu, std::move(program)};
}

inline bool clean(const World& world) {
    for (const auto& v : world.violations) MESSAGE(v);
    return world.violations.empty();
}

// The program ends without Opus, and with it, and nothing that must not happen happens. No manager passes a launch by
// itself where the controller has passed none.
inline void must_end(World& world) {
    const bool ended = world.run();
    CHECK(clean(world));
    if (!ended) MESSAGE(world.stuck());
    CHECK(ended);
    CHECK((world.unasked == 0 || world.core->counters().passes > 0));
}

}  // namespace opus::controller::test
