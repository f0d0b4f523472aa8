// A job is provisioned as long as it is no slower for it.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include "controller/core/guard.h"

#include <doctest/doctest.h>

using namespace opus;
using controller::Guard;
using Stage = Guard::Stage;

namespace {

constexpr std::int64_t kLap = 1'000'000'000;

wire::RankPace news(wire::PaceKind kind, double took = 0, double lap = 1) {
    return {0, 1, kind, std::int64_t(took * kLap), std::int64_t(lap * kLap), std::int64_t(lap * kLap)};
}

// Of laps that take so much of one on demand while it is provisioned: how many are, of `laps`, and what all of them take.
struct Result {
    int provisioned = 0;
    double took = 0;
};
Result play(Guard& guard, int laps, double provisioned, double without_runs, double on_demand = 1) {
    Result r;
    for (int i = 0; i < laps; ++i) {
        if (guard.stage() == Stage::measuring) guard.hear(news(wire::PaceKind::ready));
        const Guard::Rule rule = guard.rule();
        const double took = rule.runs ? provisioned : rule.provision ? without_runs : on_demand;
        r.provisioned += rule.provision;
        r.took += took;
        guard.hear(news(wire::PaceKind::lap, took));
    }
    return r;
}

}  // namespace

TEST_CASE("a job begins on demand, and is provisioned once a lap of it is known") {
    Guard g(true, true);
    CHECK(g.rule() == Guard::Rule{false, false});
    CHECK(g.hear(news(wire::PaceKind::ready)));
    CHECK(g.rule() == Guard::Rule{true, true});
}

TEST_CASE("one that is faster for it stays provisioned") {
    Guard g(true, true);
    const Result r = play(g, 250, 0.9, 0.9);
    CHECK(r.provisioned >= 249 - int(Guard::kLookLaps));
    CHECK(g.fallbacks() == 0);
}

TEST_CASE("two slow laps in a row end it, one does not") {
    Guard g(true, true);
    g.hear(news(wire::PaceKind::ready));
    CHECK(!g.hear(news(wire::PaceKind::lap, 1.04)));
    CHECK(!g.hear(news(wire::PaceKind::lap, 0.95)));
    CHECK(!g.hear(news(wire::PaceKind::lap, 1.04)));
    CHECK(g.hear(news(wire::PaceKind::lap, 1.04)));
    CHECK(g.stage() == Stage::away);
    CHECK(g.rule() == Guard::Rule{false, false});
    CHECK(g.text().find("4.0 % longer") != std::string::npos);
}

TEST_CASE("a lap that has taken far too long is not waited for") {
    Guard g(true, true);
    g.hear(news(wire::PaceKind::ready));
    CHECK(g.hear(news(wire::PaceKind::excess, 1.2)));
    CHECK(g.stage() == Stage::away);
}

TEST_CASE("what is slower each time is tried ever more seldom: in the end it costs next to nothing") {
    Guard g(true, true);
    const Result r = play(g, 2000, 1.2, 1.2);
    CHECK(r.provisioned < 16);
    CHECK(r.took < 2000 * 1.002);
    CHECK(g.fallbacks() > 4);
}

TEST_CASE("what is slower in runs is provisioned without them") {
    Guard g(true, true);
    play(g, 60, 1.2, 0.8);
    CHECK(g.rule() == Guard::Rule{true, false});
    const Result r = play(g, 1000, 1.2, 0.8);
    CHECK(r.took < 1000 * 0.82);
}

TEST_CASE("runs alone are guarded as well") {
    Guard g(false, true);
    g.hear(news(wire::PaceKind::ready));
    CHECK(g.rule() == Guard::Rule{false, true});
    g.hear(news(wire::PaceKind::lap, 1.1));
    g.hear(news(wire::PaceKind::lap, 1.1));
    CHECK(g.rule() == Guard::Rule{false, false});
}

TEST_CASE("a job that has become slower itself is provisioned again, for that was not why") {
    Guard g(true, true);
    play(g, 20, 0.9, 0.9);
    Result r;
    for (int i = 0; i < 12; ++i) {  // its sequences are twice as long from now on; the yardstick is the old one at first
        r.provisioned += g.rule().provision;
        g.hear(news(wire::PaceKind::lap, g.rule().provision ? 1.8 : 2.0));
        if (g.stage() == Stage::trying) break;
    }
    CHECK(g.stage() == Stage::trying);
}

TEST_CASE("where little is saved, the yardstick is taken anew now and then") {
    Guard g(true, true);
    int looked = 0;
    g.hear(news(wire::PaceKind::ready));
    for (int i = 0; i < 60; ++i) {
        looked += g.stage() == Stage::looking;
        g.hear(news(wire::PaceKind::lap, 1.0));
    }
    CHECK(looked >= int(Guard::kLookLaps));
    CHECK(looked <= 4 * int(Guard::kLookLaps));
}

TEST_CASE("what was part of a lap leaves no judgement behind, but what is owed") {
    Guard g(true, true);
    g.hear(news(wire::PaceKind::ready, 0, 0.1));
    g.hear(news(wire::PaceKind::excess, 0.2, 0.1));  // lost: a tenth of a second
    REQUIRE(g.stage() == Stage::away);
    g.hear(news(wire::PaceKind::longer, 0, 0.1));
    CHECK(g.stage() == Stage::measuring);
    g.hear(news(wire::PaceKind::ready, 0, 1));
    CHECK(g.stage() == Stage::away);
    CHECK(g.laps_owed() == 20);
    CHECK(g.fallbacks() == 0);
    for (int i = 0; i < 20; ++i) g.hear(news(wire::PaceKind::lap, 1));
    CHECK(g.rule() == Guard::Rule{true, true});
}

TEST_CASE("laps that lose now and then end it as two in a row do") {
    Guard g(true, true);
    g.hear(news(wire::PaceKind::ready));
    bool away = false;
    for (int i = 0; i < 40 && !away; ++i) away = g.hear(news(wire::PaceKind::lap, i % 2 == 0 ? 1.02 : 0.998)) && g.stage() == Stage::away;
    CHECK(away);
}

TEST_CASE("trials cost at most their part of all laps, however often the laps are lost sight of") {
    Guard g(true, true);
    double took = 0;
    const int laps = 4000;
    for (int i = 0; i < laps; ++i) {
        if (i % 10 == 9) g.hear(news(wire::PaceKind::lost));
        if (g.stage() == Stage::measuring) g.hear(news(wire::PaceKind::ready));
        const double lap = g.rule().provision ? 1.2 : 1;
        took += lap;
        g.hear(news(wire::PaceKind::lap, lap));
    }
    CHECK(took > laps);
    CHECK(took < laps * (1 + Guard::kMostLost) + 1);
}

TEST_CASE("what may be luck is looked at again before it is believed") {
    for (const double spread : {0.0, 0.04}) {
        Guard g(true, true);
        g.hear(news(wire::PaceKind::ready));
        for (std::uint32_t i = 0; i < Guard::kProven; ++i) g.hear(news(wire::PaceKind::lap, 0.95 + (i % 2 == 0 ? spread : -spread)));
        CHECK(g.stage() == (spread > 0 ? Stage::looking : Stage::provisioned));
    }
}
