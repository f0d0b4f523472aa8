// Which circuits of a node a key needs, by where its communicator's members are.
#include <doctest/doctest.h>

#include "manager/core/circuits.h"

namespace opus::manager {
namespace {

constexpr CommId kComm{1, 1};

wire::KeyRange transfer(std::uint32_t src, std::uint32_t dst) { return {{kComm, KeyKind::p2p, src, dst, 0}}; }
wire::KeyRange collective(bool mesh) { return {{kComm, KeyKind::coll, 0, 0, 0}, 1, mesh}; }

using Reaches = std::vector<Reach>;

}  // namespace

TEST_CASE("a transfer's light is where NCCL sends: on the receiver's rail with a member there, else on the sender's") {
    const Places pair{{0, 0}, {1, 1}}, three{{0, 0}, {1, 1}, {0, 1}};
    Places own = three;
    own[0].own_nic = true;
    CHECK(circuits_of(transfer(0, 1), pair, 0) == Reaches{{0, {1, 1}}});
    CHECK(circuits_of(transfer(0, 1), pair, 1) == Reaches{{1, {0, 0}}});
    CHECK(circuits_of(transfer(0, 1), three, 0) == Reaches{{1, {1, 1}}});
    CHECK(circuits_of(transfer(0, 1), three, 1) == Reaches{{1, {0, 1}}});
    CHECK(circuits_of(transfer(1, 0), three, 0) == Reaches{{0, {1, 1}}});
    CHECK(circuits_of(transfer(0, 1), own, 0) == Reaches{{0, {1, 1}}});
    CHECK(circuits_of(transfer(0, 2), three, 0) == Reaches{});
    CHECK(circuits_of(transfer(0, 1), pair, 2) == Reaches{});
    CHECK(!circuits_of(transfer(0, 3), three, 0));
    CHECK(!circuits_of(transfer(0, 1), {}, 0));
}

TEST_CASE("a ring's light is on each rail of the next node, a mesh's is that of its transfers") {
    const Places grid{{0, 0}, {0, 1}, {1, 0}, {1, 1}, {2, 0}, {2, 1}};
    CHECK(circuits_of(collective(false), grid, 1) == Reaches{{0, {0, 0}}, {0, {2, 0}}, {1, {0, 1}}, {1, {2, 1}}});
    CHECK(circuits_of(collective(true), grid, 1) == circuits_of(collective(false), grid, 1));  // of three nodes
    Places own = grid;
    own[2].own_nic = true;
    CHECK(circuits_of(collective(false), own, 1) == circuits_of(collective(false), grid, 1));
    CHECK(circuits_of(collective(true), own, 1) ==
          Reaches{{0, {0, 0}}, {0, {0, 1}}, {0, {2, 0}}, {0, {2, 1}}, {1, {0, 1}}, {1, {2, 1}}});
    const Places ragged{{0, 0}, {1, 0}, {1, 1}};
    CHECK(circuits_of(collective(true), ragged, 0) == Reaches{{0, {1, 0}}, {0, {1, 1}}});
}

TEST_CASE("inside an NVLink domain nothing needs light, between domains rings join hosts by their order") {
    const Places world{{0, 0, false, 0}, {0, 1, false, 0}, {1, 0, false, 0}, {1, 1, false, 0},
                       {2, 0, false, 2}, {2, 1, false, 2}, {3, 0, false, 2}, {3, 1, false, 2}};
    CHECK(circuits_of(transfer(0, 2), world, 0) == Reaches{});
    CHECK(circuits_of(transfer(0, 3), world, 0) == Reaches{});
    CHECK(circuits_of(transfer(0, 6), world, 0) == Reaches{{0, {3, 0}}});
    CHECK(circuits_of(collective(false), world, 1) == Reaches{{0, {3, 0}}, {1, {3, 1}}});
    CHECK(circuits_of(collective(true), world, 1) == Reaches{{0, {2, 0}}, {0, {3, 0}}, {1, {2, 1}}, {1, {3, 1}}});
}

}  // namespace opus::manager
