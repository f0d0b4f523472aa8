#include "manager/core/keys.h"

#include <algorithm>
#include <tuple>

namespace opus::manager {
namespace {

enum class Direction { none, outward, inward };

Direction direction_of(OpKind kind) {
    switch (kind) {
        case OpKind::send:
        case OpKind::put_signal:
        case OpKind::signal: return Direction::outward;
        case OpKind::recv: return Direction::inward;
        default: return Direction::none;
    }
}

bool is_one_sided(OpKind kind) { return kind == OpKind::put_signal || kind == OpKind::signal; }

// No key for what stays inside the rank; nor for a wait, which moves no byte.
bool stays_inside(const ring::OpEntry& op, const wire::CommMember& member) {
    if (static_cast<OpKind>(op.kind) == OpKind::wait_signal) return true;
    const bool directed = direction_of(static_cast<OpKind>(op.kind)) != Direction::none;
    return member.size <= 1 || (directed && op.peer == member.rank_in_comm);
}

bool is_mesh(OpKind kind) { return kind == OpKind::all_to_all || kind == OpKind::gather || kind == OpKind::scatter; }

// It connects each with each, beside what transfers and rings do for themselves.
bool connects_mesh(const ring::OpEntry& op) {
    constexpr std::uint32_t kBoth = ring::kOpConnects | ring::kOpMesh;
    return (op.flags & kBoth) == kBoth;
}

Key key_of(const ring::OpEntry& op, const wire::CommMember& member, bool conn) {
    Key key;
    key.comm = member.comm;
    const Direction direction = direction_of(static_cast<OpKind>(op.kind));
    if (direction == Direction::none) {
        key.kind = !conn ? KeyKind::coll : connects_mesh(op) ? KeyKind::conn_mesh : KeyKind::conn;
    } else {
        key.kind = is_one_sided(static_cast<OpKind>(op.kind)) ? KeyKind::put : conn ? KeyKind::conn_p2p : KeyKind::p2p;
        const bool outward = direction == Direction::outward;
        key.src = outward ? member.rank_in_comm : op.peer;
        key.dst = outward ? op.peer : member.rank_in_comm;
    }
    key.n = conn && key.kind != KeyKind::conn_mesh ? 0 : op.n;
    return key;
}

auto sequence_order(const LaunchKey& k) {
    const Key& f = k.range.first;
    return std::tie(k.member, f.comm, f.kind, f.src, f.dst);
}

void join_neighbours(std::vector<LaunchKey>& keys) {
    std::sort(keys.begin(), keys.end(), [](const LaunchKey& a, const LaunchKey& b) {
        const auto x = sequence_order(a), y = sequence_order(b);
        return x != y ? x < y : a.range.first.n < b.range.first.n;
    });
    std::size_t last = 0;
    for (std::size_t i = 1; i < keys.size(); ++i) {
        wire::KeyRange& into = keys[last].range;
        const wire::KeyRange& next = keys[i].range;
        const std::uint64_t end = into.first.n + into.count;
        // What needs a mesh is told apart from what needs a ring, unless it is the very same key.
        const bool joins = next.first.n < end || (next.first.n == end && next.mesh == into.mesh);
        if (sequence_order(keys[last]) == sequence_order(keys[i]) && joins) {
            into.count = static_cast<std::uint32_t>(std::max(end, next.first.n + next.count) - into.first.n);
            into.mesh |= next.mesh;
        } else {
            keys[++last] = keys[i];
        }
    }
    if (!keys.empty()) keys.resize(last + 1);
}

}  // namespace

std::vector<LaunchKey> keys_of(const std::vector<ring::OpEntry>& ops, std::uint16_t launch_flags, ring::Gate gate,
                               const MemberLookup& members) {
    std::vector<LaunchKey> keys;
    const bool only_conn = (launch_flags & ring::kLaunchConn) != 0;
    for (const ring::OpEntry& op : ops) {
        const wire::CommMember* member = members(op.comm);
        if (member == nullptr || stays_inside(op, *member)) continue;
        const bool of_pairs = is_mesh(static_cast<OpKind>(op.kind));
        const bool mesh = of_pairs || (op.flags & ring::kOpMesh) != 0;
        const bool connects = (op.flags & ring::kOpConnects) != 0;
        const bool first_use = (op.flags & ring::kOpFirstUse) != 0;
        if (!only_conn && !connects) keys.push_back({op.comm, {key_of(op, *member, false), op.count, mesh}});
        if (only_conn || (gate == ring::Gate::host && (first_use || connects)))
            keys.push_back({op.comm, {key_of(op, *member, true), 1, of_pairs || connects_mesh(op)}});
    }
    join_neighbours(keys);
    return keys;
}

}  // namespace opus::manager
