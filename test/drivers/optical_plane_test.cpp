#include <doctest/doctest.h>

#include "tools/emulator/optical_plane.h"

using namespace opus;
using namespace opus::emulator;
using Pairs = std::vector<CrossConnect>;
using Ports = std::vector<SwitchPort>;

namespace {

constexpr TimeNs kMs = 1'000'000;
constexpr TimeNs kDark = 25 * kMs;

OpticalPlane any_to_any(std::uint32_t ports = 8) { return OpticalPlane({ports, 0, kDark}); }
OpticalPlane two_sided() { return OpticalPlane({4, 4, kDark}); }

Outcome add(OpticalPlane& plane, const Pairs& pairs, TimeNs now = 0) { return plane.connect(pairs, false, now); }

}  // namespace

TEST_CASE("the map reads new before the light is there") {
    OpticalPlane plane = any_to_any();
    REQUIRE(add(plane, {{1, 2}}, 100).code == 0);
    CHECK(plane.circuits() == Pairs{{1, 2}});
    CHECK(plane.lit_peer(1, 100) == 0);
    CHECK(plane.light(1, 100) == Light::dark);
    CHECK(plane.light(1, 100 + kDark - kMs) == Light::tuning);
    CHECK(plane.lit_peer(1, 100 + kDark - 1) == 0);
    CHECK(plane.lit_peer(1, 100 + kDark) == 2);
    CHECK(plane.light(1, 100 + kDark) == Light::tuned);
}

TEST_CASE("light passes both ways") {
    OpticalPlane plane = two_sided();
    REQUIRE(add(plane, {{1, 5}}).code == 0);
    CHECK(plane.lit_peer(1, kDark) == 5);
    CHECK(plane.lit_peer(5, kDark) == 1);
}

TEST_CASE("power is low in the dark, rises, and is there when tuned") {
    OpticalPlane plane = any_to_any();
    CHECK(plane.power_dbm(1, 0) < -50);
    add(plane, {{1, 2}});
    CHECK(plane.power_dbm(1, 0) < -50);
    const double early = plane.power_dbm(1, kDark - 4 * kMs), late = plane.power_dbm(1, kDark - kMs);
    CHECK(early < late);
    CHECK(late < -30);
    CHECK(plane.power_dbm(1, kDark) > -10);
    CHECK(plane.power_dbm(2, kDark) > -10);
}

TEST_CASE("paths that a command does not change stay lit") {
    OpticalPlane plane = any_to_any();
    add(plane, {{1, 2}, {3, 4}});
    const TimeNs later = 10 * kDark;
    SUBCASE("by adding others") { add(plane, {{5, 6}}, later); }
    SUBCASE("by adding the same again") { add(plane, {{1, 2}, {3, 5}}, later); }
    SUBCASE("by a map that has it still") { REQUIRE(plane.connect(Pairs{{1, 2}, {7, 8}}, true, later).code == 0); }
    CHECK(plane.lit_peer(1, later) == 2);
}

TEST_CASE("a connect takes busy ports from their circuits") {
    OpticalPlane plane = any_to_any();
    add(plane, {{1, 2}, {3, 4}});
    REQUIRE(add(plane, {{1, 3}}, 2 * kDark).code == 0);
    CHECK(plane.circuits() == Pairs{{1, 3}});
    CHECK(plane.lit_peer(2, 3 * kDark) == 0);
    CHECK(plane.lit_peer(4, 3 * kDark) == 0);
    CHECK(plane.lit_peer(1, 2 * kDark) == 0);
    CHECK(plane.lit_peer(1, 3 * kDark) == 3);
}

TEST_CASE("where conflicts are refused a busy port stays as it is") {
    OpticalPlane plane({8, 0, kDark, Conflict::refuse});
    add(plane, {{1, 2}});
    CHECK(add(plane, {{1, 3}}, kDark).code == -221);
    CHECK(plane.lit_peer(1, kDark) == 2);
    CHECK(add(plane, {{1, 2}}, kDark).code == 0);
}

TEST_CASE("a batch is validated whole, then applied") {
    OpticalPlane plane = any_to_any();
    CHECK(add(plane, {{1, 2}, {3, 99}}).code == -222);
    CHECK(plane.circuits().empty());
    CHECK(plane.reconfigurations() == 0);
    SUBCASE("unless the device is one that applies what is before the mistake") {
        plane.set_partial(true);
        CHECK(add(plane, {{1, 2}, {3, 99}, {4, 5}}).code == -222);
        CHECK(plane.circuits() == Pairs{{1, 2}});
    }
}

TEST_CASE("impossible circuits are refused") {
    OpticalPlane any = any_to_any();
    CHECK(add(any, {{1, 1}}).code == -221);
    CHECK(add(any, {{0, 1}}).code == -222);
    CHECK(add(any, {{1, 9}}).code == -222);
    CHECK(add(any, {{1, 2}, {2, 3}}).code == -221);
    CHECK(add(any, {{1, 8}}).code == 0);
    OpticalPlane sided = two_sided();
    CHECK(add(sided, {{1, 2}}).code == -221);
    CHECK(add(sided, {{5, 6}}).code == -221);
    CHECK(add(sided, {{5, 1}}).code == -221);
    CHECK(add(sided, {{4, 8}}).code == 0);
}

TEST_CASE("a disabled port refuses circuits and lets no light pass") {
    OpticalPlane plane = any_to_any();
    add(plane, {{1, 2}});
    plane.set_enabled(Ports{1, 3}, false, kDark);
    CHECK(plane.lit_peer(2, 2 * kDark) == 0);
    CHECK(add(plane, {{3, 4}}, kDark).code == -221);
    plane.set_enabled(Ports{1}, true, 3 * kDark);
    CHECK(plane.lit_peer(2, 3 * kDark) == 0);
    CHECK(plane.lit_peer(2, 4 * kDark) == 1);
    CHECK(plane.set_enabled(Ports{9}, true, 0).code == -222);
}

TEST_CASE("a stuck port is in the map and stays dark") {
    OpticalPlane plane = any_to_any();
    plane.set_stuck(Ports{2}, 0);
    REQUIRE(add(plane, {{1, 2}}).code == 0);
    CHECK(plane.peer(1) == 2);
    CHECK(plane.lit_peer(1, 100 * kDark) == 0);
    CHECK(plane.power_dbm(1, 100 * kDark) < -50);
    plane.set_stuck({}, 100 * kDark);
    CHECK(plane.lit_peer(1, 101 * kDark) == 2);
}

TEST_CASE("a circuit is disconnected by either end, at once") {
    OpticalPlane plane = two_sided();
    add(plane, {{1, 5}, {2, 6}, {3, 7}});
    REQUIRE(plane.disconnect(Ports{1, 6, 4}, kDark).code == 0);
    CHECK(plane.circuits() == Pairs{{3, 7}});
    CHECK(plane.lit_peer(5, kDark) == 0);
    CHECK(plane.lit_peer(3, kDark) == 7);
    CHECK(plane.disconnect_pairs(Pairs{{3, 8}}, kDark).code == -221);
    CHECK(plane.disconnect_pairs(Pairs{{3, 7}}, kDark).code == 0);
    CHECK(plane.circuits().empty());
}

TEST_CASE("a reconfiguration is a command that changed the map") {
    OpticalPlane plane = any_to_any();
    add(plane, {{1, 2}, {3, 4}});
    CHECK(plane.reconfigurations() == 1);
    add(plane, {{1, 2}});
    plane.disconnect(Ports{7}, 0);
    CHECK(plane.reconfigurations() == 1);
    plane.disconnect_all(0);
    CHECK(plane.reconfigurations() == 2);
}

TEST_CASE("with no dark time light is there at once") {
    OpticalPlane plane({4, 0, 0});
    add(plane, {{1, 2}}, 7);
    CHECK(plane.lit_peer(1, 7) == 2);
    CHECK(plane.power_dbm(1, 7) > -10);
}
