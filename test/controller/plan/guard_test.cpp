// A lap is planned as long as it is no slower for it.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include "controller/plan/guard.h"

#include <doctest/doctest.h>

using namespace opus;
using controller::plan::Guard;
using Stage = Guard::Stage;

namespace {

// Of laps that take so much of one on demand while they are planned: how many are, of `laps`, and what all of them take.
struct Result {
    int planned = 0;
    double took = 0;
};
Result play(Guard& guard, int laps, double planned, double on_demand = 1) {
    Result r;
    guard.begin();
    for (int i = 0; i < laps; ++i) {
        const double took = guard.provisions() ? planned : on_demand;
        r.planned += guard.provisions();
        r.took += took;
        guard.lap_over(took);
    }
    return r;
}

}  // namespace

TEST_CASE("a job begins on demand, and is planned once a lap of it is timed") {
    Guard g;
    CHECK(!g.provisions());
    CHECK(g.begin());
    CHECK(g.provisions());
}

TEST_CASE("one that is faster for it stays planned") {
    Guard g;
    const Result r = play(g, 250, 0.9);
    CHECK(r.planned >= 249 - int(Guard::kLookLaps));
    CHECK(g.fallbacks() == 0);
}

TEST_CASE("two slow laps in a row end it, one does not") {
    Guard g;
    g.begin();
    CHECK(!g.lap_over(1.04));
    CHECK(!g.lap_over(0.95));
    CHECK(!g.lap_over(1.04));
    CHECK(g.lap_over(1.04));
    CHECK(g.stage() == Stage::away);
    CHECK(!g.provisions());
    CHECK(g.text().find("4.0 % longer") != std::string::npos);
}

TEST_CASE("laps that are longer, and not for light by the estimate, are compared with some on demand") {
    Guard g;
    g.begin();
    CHECK(!g.lap_over(1, 1.04));
    CHECK(g.lap_over(1, 1.04));
    CHECK(g.stage() == Stage::asking);
    CHECK(!g.provisions());
    CHECK(!g.lap_over(1.04, 1.04));  // what was done ahead may still be in its way
    CHECK(!g.lap_over(1, 1));
    CHECK(!g.lap_over(1, 1));
    CHECK(g.stage() == Stage::away);  // it was the plan
    CHECK(g.fallbacks() == 1);
    CHECK(g.text().find("4.0 % longer") != std::string::npos);
}

TEST_CASE("a job that has become slower is not taken off its plan for that, and is asked ever more seldom") {
    Guard g;
    g.begin();
    int on_demand = 0;
    for (int i = 0; i < 400; ++i) {
        on_demand += !g.provisions();
        g.lap_over(1, 1.04);
    }
    CHECK(g.fallbacks() == 0);
    CHECK(on_demand < 40);
}

TEST_CASE("laps that differ by chance are not taken for longer ones at once") {
    Guard g;
    g.begin();
    for (const double in_all : {1.01, 1.05, 1.004, 0.97, 1.0, 1.0, 1.01, 1.05, 1.004}) {  // the fifth and sixth are looks
        g.lap_over(1, in_all);
        CHECK(g.stage() != Stage::asking);
    }
    CHECK(g.lap_over(1, 1.03));  // the fourth, one after the other
    CHECK(g.stage() == Stage::asking);
}

TEST_CASE("a lap that has taken far too long is not waited for") {
    Guard g;
    g.begin();
    CHECK(g.lasts_too_long(1.2));
    CHECK(g.stage() == Stage::away);
}

TEST_CASE("what is slower each time is tried ever more seldom: in the end it costs next to nothing") {
    Guard g;
    const Result r = play(g, 2000, 1.2);
    CHECK(r.planned < 20);
    CHECK(r.took < 2000 * 1.002);
    CHECK(g.fallbacks() > 4);
}

TEST_CASE("a job that has become slower itself is planned again, for that was not why") {
    Guard g;
    play(g, 20, 0.9);
    Result r;
    for (int i = 0; i < 12; ++i) {  // its sequences are twice as long from now on; the yardstick is the old one at first
        r.planned += g.provisions();
        g.lap_over(g.provisions() ? 1.8 : 2.0);
        if (g.stage() == Stage::trying) break;
    }
    CHECK(g.stage() == Stage::trying);
}

TEST_CASE("where little is saved, the yardstick is taken anew now and then") {
    Guard g;
    int looked = 0;
    g.begin();
    for (int i = 0; i < 60; ++i) {
        looked += g.stage() == Stage::looking;
        g.lap_over(1.0);
    }
    CHECK(looked >= int(Guard::kLookLaps));
    CHECK(looked <= 4 * int(Guard::kLookLaps));
}

TEST_CASE("laps that lose now and then end it as two in a row do") {
    Guard g;
    g.begin();
    bool away = false;
    for (int i = 0; i < 40 && !away; ++i) away = g.lap_over(i % 2 == 0 ? 1.02 : 0.998) && g.stage() == Stage::away;
    CHECK(away);
}

TEST_CASE("what may be luck is looked at again before it is believed") {
    for (const double spread : {0.0, 0.04}) {
        Guard g;
        g.begin();
        for (std::uint32_t i = 0; i < Guard::kProven; ++i) g.lap_over(0.95 + (i % 2 == 0 ? spread : -spread));
        CHECK(g.stage() == (spread > 0 ? Stage::looking : Stage::provisioned));
    }
}
