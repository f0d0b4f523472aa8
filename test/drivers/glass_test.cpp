#include <doctest/doctest.h>

#include "tools/emulator/glass.h"

using namespace opus;
using namespace opus::emulator;
using Pairs = std::vector<CrossConnect>;
using Ports = std::vector<SwitchPort>;

namespace {

constexpr TimeNs kMs = 1'000'000;
constexpr TimeNs kDark = 25 * kMs;

Glass any_to_any(std::uint32_t ports = 8) { return Glass({ports, 0, kDark}); }
Glass two_sided() { return Glass({4, 4, kDark}); }

Outcome add(Glass& glass, const Pairs& pairs, TimeNs now = 0) { return glass.connect(pairs, false, now); }

}  // namespace

TEST_CASE("the map reads new before the light is there") {
    Glass glass = any_to_any();
    REQUIRE(add(glass, {{1, 2}}, 100).code == 0);
    CHECK(glass.circuits() == Pairs{{1, 2}});
    CHECK(glass.lit_peer(1, 100) == 0);
    CHECK(glass.light(1, 100) == Light::dark);
    CHECK(glass.light(1, 100 + kDark - kMs) == Light::tuning);
    CHECK(glass.lit_peer(1, 100 + kDark - 1) == 0);
    CHECK(glass.lit_peer(1, 100 + kDark) == 2);
    CHECK(glass.light(1, 100 + kDark) == Light::tuned);
}

TEST_CASE("light passes both ways") {
    Glass glass = two_sided();
    REQUIRE(add(glass, {{1, 5}}).code == 0);
    CHECK(glass.lit_peer(1, kDark) == 5);
    CHECK(glass.lit_peer(5, kDark) == 1);
}

TEST_CASE("power is low in the dark, rises, and is there when tuned") {
    Glass glass = any_to_any();
    CHECK(glass.power_dbm(1, 0) < -50);
    add(glass, {{1, 2}});
    CHECK(glass.power_dbm(1, 0) < -50);
    const double early = glass.power_dbm(1, kDark - 4 * kMs), late = glass.power_dbm(1, kDark - kMs);
    CHECK(early < late);
    CHECK(late < -30);
    CHECK(glass.power_dbm(1, kDark) > -10);
    CHECK(glass.power_dbm(2, kDark) > -10);
}

TEST_CASE("paths that a command does not change stay lit") {
    Glass glass = any_to_any();
    add(glass, {{1, 2}, {3, 4}});
    const TimeNs later = 10 * kDark;
    SUBCASE("by adding others") { add(glass, {{5, 6}}, later); }
    SUBCASE("by adding the same again") { add(glass, {{1, 2}, {3, 5}}, later); }
    SUBCASE("by a map that has it still") { REQUIRE(glass.connect(Pairs{{1, 2}, {7, 8}}, true, later).code == 0); }
    CHECK(glass.lit_peer(1, later) == 2);
}

TEST_CASE("a connect takes busy ports from their circuits") {
    Glass glass = any_to_any();
    add(glass, {{1, 2}, {3, 4}});
    REQUIRE(add(glass, {{1, 3}}, 2 * kDark).code == 0);
    CHECK(glass.circuits() == Pairs{{1, 3}});
    CHECK(glass.lit_peer(2, 3 * kDark) == 0);
    CHECK(glass.lit_peer(4, 3 * kDark) == 0);
    CHECK(glass.lit_peer(1, 2 * kDark) == 0);
    CHECK(glass.lit_peer(1, 3 * kDark) == 3);
}

TEST_CASE("where conflicts are refused a busy port stays as it is") {
    Glass glass({8, 0, kDark, Conflict::refuse});
    add(glass, {{1, 2}});
    CHECK(add(glass, {{1, 3}}, kDark).code == -221);
    CHECK(glass.lit_peer(1, kDark) == 2);
    CHECK(add(glass, {{1, 2}}, kDark).code == 0);
}

TEST_CASE("a batch is validated whole, then applied") {
    Glass glass = any_to_any();
    CHECK(add(glass, {{1, 2}, {3, 99}}).code == -222);
    CHECK(glass.circuits().empty());
    CHECK(glass.reconfigurations() == 0);
    SUBCASE("unless the device is one that applies what is before the mistake") {
        glass.set_partial(true);
        CHECK(add(glass, {{1, 2}, {3, 99}, {4, 5}}).code == -222);
        CHECK(glass.circuits() == Pairs{{1, 2}});
    }
}

TEST_CASE("impossible circuits are refused") {
    Glass any = any_to_any();
    CHECK(add(any, {{1, 1}}).code == -221);
    CHECK(add(any, {{0, 1}}).code == -222);
    CHECK(add(any, {{1, 9}}).code == -222);
    CHECK(add(any, {{1, 2}, {2, 3}}).code == -221);
    CHECK(add(any, {{1, 8}}).code == 0);
    Glass sided = two_sided();
    CHECK(add(sided, {{1, 2}}).code == -221);
    CHECK(add(sided, {{5, 6}}).code == -221);
    CHECK(add(sided, {{5, 1}}).code == -221);
    CHECK(add(sided, {{4, 8}}).code == 0);
}

TEST_CASE("a disabled port refuses circuits and lets no light pass") {
    Glass glass = any_to_any();
    add(glass, {{1, 2}});
    glass.set_enabled(Ports{1, 3}, false, kDark);
    CHECK(glass.lit_peer(2, 2 * kDark) == 0);
    CHECK(add(glass, {{3, 4}}, kDark).code == -221);
    glass.set_enabled(Ports{1}, true, 3 * kDark);
    CHECK(glass.lit_peer(2, 3 * kDark) == 0);
    CHECK(glass.lit_peer(2, 4 * kDark) == 1);
    CHECK(glass.set_enabled(Ports{9}, true, 0).code == -222);
}

TEST_CASE("a stuck port is in the map and stays dark") {
    Glass glass = any_to_any();
    glass.set_stuck(Ports{2}, 0);
    REQUIRE(add(glass, {{1, 2}}).code == 0);
    CHECK(glass.peer(1) == 2);
    CHECK(glass.lit_peer(1, 100 * kDark) == 0);
    CHECK(glass.power_dbm(1, 100 * kDark) < -50);
    glass.set_stuck({}, 100 * kDark);
    CHECK(glass.lit_peer(1, 101 * kDark) == 2);
}

TEST_CASE("a circuit is disconnected by either end, at once") {
    Glass glass = two_sided();
    add(glass, {{1, 5}, {2, 6}, {3, 7}});
    REQUIRE(glass.disconnect(Ports{1, 6, 4}, kDark).code == 0);
    CHECK(glass.circuits() == Pairs{{3, 7}});
    CHECK(glass.lit_peer(5, kDark) == 0);
    CHECK(glass.lit_peer(3, kDark) == 7);
    CHECK(glass.disconnect_pairs(Pairs{{3, 8}}, kDark).code == -221);
    CHECK(glass.disconnect_pairs(Pairs{{3, 7}}, kDark).code == 0);
    CHECK(glass.circuits().empty());
}

TEST_CASE("a reconfiguration is a command that changed the map") {
    Glass glass = any_to_any();
    add(glass, {{1, 2}, {3, 4}});
    CHECK(glass.reconfigurations() == 1);
    add(glass, {{1, 2}});
    glass.disconnect(Ports{7}, 0);
    CHECK(glass.reconfigurations() == 1);
    glass.disconnect_all(0);
    CHECK(glass.reconfigurations() == 2);
}

TEST_CASE("with no dark time light is there at once") {
    Glass glass({4, 0, 0});
    add(glass, {{1, 2}}, 7);
    CHECK(glass.lit_peer(1, 7) == 2);
    CHECK(glass.power_dbm(1, 7) > -10);
}
