#include "test/controller/core/wide_scenarios.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <stdexcept>

namespace opus::controller::test {
namespace {

constexpr CommId kRing{1, 0}, kOther{2, 0}, kThird{3, 0};
constexpr int kLooks = 25;  // every 50 ms, so that gangs are told why they wait, too

std::vector<std::uint32_t> in_order(const WideWorld& world) {
    std::vector<std::uint32_t> order(world.nodes());
    std::iota(order.begin(), order.end(), 0);
    return order;
}

// kRing and kThird in the order of the nodes, kOther in another.
void join_all(WideWorld& world) {
    std::vector<std::uint32_t> order = in_order(world);
    world.join(kRing, order);
    world.join(kThird, order);
    std::shuffle(order.begin(), order.end(), std::mt19937(1));
    world.join(kOther, order);
}

void hold(bool what, const char* otherwise) {
    if (!what) throw std::runtime_error(otherwise);
}

void look(WideWorld& world) {
    wait_for_ports(world);
    world.watch(true);
    for (int i = 0; i < kLooks; ++i) world.wake();
    world.watch(false);
    hold(world.core().counters().suspensions == 0, "what runs and lacks nobody was suspended");
}

void suspend(WideWorld& world) {
    world.watch(false);
    join_all(world);
    world.start();
    world.demand(kRing, 0, 0, world.nodes());
    world.expect(world.nodes());
    world.lose_circuit();
    world.watch(false);
    hold(world.core().counters().suspensions == world.nodes(), "not all were suspended");
}

void restart(WideWorld& world) {
    world.watch(false);
    join_all(world);
    world.start();
    world.demand(kRing, 0, 0, world.nodes());
    world.expect(world.nodes());
    world.watch(true);
    world.restart(kRing, 0);
    world.watch(false);
    std::uint32_t in_flight = 0;
    for (const RankStatus& rank : world.core().ranks()) in_flight += rank.launches_in_flight;
    hold(in_flight == world.nodes() && world.core().counters().suspensions == 0, "what ran does not run on");
}

void take_back(WideWorld& world) {
    world.watch(false);
    join_all(world);
    world.start();
    world.demand(kRing, 0, 0, world.nodes());
    hold(world.core().counters().runs == 1, "no run");
    world.demand(kOther, 0, 0, world.nodes() - 1);
    world.watch(true);
    world.demand(kOther, 0, world.nodes() - 1, world.nodes());
    world.give_back();
    world.watch(false);
    hold(world.core().counters().revocations == 1, "the run is not taken back");
}

}  // namespace

void wait_for_ports(WideWorld& world) {
    world.watch(false);
    join_all(world);
    world.start();
    world.demand(kRing, 0, 0, world.nodes());
    world.expect(world.nodes());
    world.demand(kOther, 0, 0, world.nodes());
    world.demand(kThird, 0, 0, world.nodes() - 1);
    world.expect(0);
}

const std::vector<WideScenario>& wide_scenarios() {
    static const std::vector<WideScenario> all{
        {"look", "a wide gang waits for the ports of another launch: who might be suspended", look},
        {"suspend", "another hand takes a circuit of a wide launch: all of it is suspended", suspend},
        {"restart", "a controller comes while a wide launch is in flight: all snapshots", restart},
        {"take_back", "a wide run is taken back: the demand for which it is, and all answers", take_back, true},
    };
    return all;
}

}  // namespace opus::controller::test
