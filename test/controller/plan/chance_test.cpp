// What a job may lose by chance.
#include "controller/plan/chance.h"

#include <doctest/doctest.h>

using namespace opus::controller::plan;

namespace {

constexpr double kPeriod = 100e6;  // ns

}  // namespace

TEST_CASE("by chance a job loses as much as its periods differ by on demand, and half of its time at most") {
    Chance chance;
    for (int i = 0; i < 8; ++i) chance.add_on_demand(kPeriod, 0, 1);
    chance.see(1000 * kPeriod);
    CHECK(chance.of(kPeriod) == 0);
    for (int i = 0; i < 8; ++i) chance.add_on_demand(kPeriod, i % 2 ? 0.1 : -0.1, 1);
    const double one = chance.of(kPeriod);
    CHECK(one > 0.1 * kPeriod);
    CHECK(one < 0.2 * kPeriod);
    CHECK(chance.of(4 * kPeriod) == doctest::Approx(2 * one).epsilon(0.01));
    CHECK(chance.of(kPeriod / 1e6) == kPeriod / 2e6);
    for (int i = 0; i < 9; ++i) chance.end_plan();  // it is not known any more what it does as a rule
    CHECK(chance.of(kPeriod) == doctest::Approx(1.23 * one).epsilon(0.01));
    chance.forget(kPeriod / 100);
    CHECK(chance.of(kPeriod) == doctest::Approx(1.41 * one).epsilon(0.01));
}

TEST_CASE("short periods do not say by how much long ones differ, nor do a few") {
    Chance chance;
    chance.see(1000 * kPeriod);
    for (int i = 0; i < 16; ++i) chance.add_on_demand(kPeriod / 100, 0, 4);
    for (int i = 0; i < 4; ++i) chance.add_on_demand(kPeriod, 0.1, 4);
    CHECK(chance.of(kPeriod) > 0.1 * kPeriod);
    for (int i = 0; i < 18; ++i) chance.add_on_demand(kPeriod, 0.01, 4);
    CHECK(chance.of(kPeriod) < 0.05 * kPeriod);
}

TEST_CASE("how much longer periods are under a plan is no chance, and by how much they differ there is") {
    for (const double differ : {0.0, 0.2}) {
        CAPTURE(differ);
        Chance chance;
        for (int i = 0; i < 3; ++i) chance.add_on_demand(kPeriod, 0.3, 2);
        for (int i = 0; i < 24; ++i) chance.add_planned(kPeriod, 0.5 + (i % 2 ? differ : -differ), 2);
        CHECK((chance.of(kPeriod) > 0.2 * kPeriod) == (differ > 0));
        CHECK((chance.of(kPeriod) == 0) == (differ == 0));
    }
    Chance chance;  // two plans have nothing to do with each other
    for (int i = 0; i < 24; ++i) {
        chance.add_planned(kPeriod, i % 2 ? 0.5 : 0.1, 1);
        chance.end_plan();
    }
    CHECK(chance.of(kPeriod) == 0);
}
