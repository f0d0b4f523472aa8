// The planner alone: what can be routed can be placed.
#include <doctest/doctest.h>

#include <algorithm>
#include <random>

#include "controller/core/schedule/planner.h"
#include "test/controller/core/harness.h"

namespace {

using namespace opus;
using namespace opus::controller;

struct Board {
    explicit Board(const test::Shape& shape) : fabric(test::make_fabric(shape)), inventory(fabric) {
        for (SwitchIndex s = 0; s < fabric.switches.size(); ++s)
            inventory.sw(s).session = inventory.sw(s).map_known = true;
        for (PortId p = 0; p < fabric.ports.size(); ++p) inventory.port(p).unknown = inventory.port(p).absent = false;
    }
    bool is_dark(PortId p) const { return inventory.port(p).peer == kNone; }

    Fabric fabric;
    Inventory inventory;
};

// Circuits that earlier gangs have left behind.
void light_some(Board& board, std::mt19937& random) {
    std::vector<PortId> ports(board.fabric.ports.size());
    for (PortId p = 0; p < ports.size(); ++p) ports[p] = p;
    std::shuffle(ports.begin(), ports.end(), random);
    for (const PortId p : ports)
        for (const PortId q : ports)
            if (board.fabric.ports[p].gpu != board.fabric.ports[q].gpu && board.is_dark(p) && board.is_dark(q) &&
                board.fabric.can_join(p, q) && random() % 4 != 0)
                board.inventory.light(make_circuit(p, q), 1, 1);
}

// Pairs of GPUs, no more at a GPU than it has ports.
std::vector<PairId> some_pairs(Board& board, std::mt19937& random) {
    const auto gpus = static_cast<GpuId>(board.fabric.gpus.size());
    std::vector<std::pair<GpuId, GpuId>> all;
    for (GpuId a = 0; a < gpus; ++a)
        for (GpuId b = a + 1; b < gpus; ++b) all.emplace_back(a, b);
    std::shuffle(all.begin(), all.end(), random);
    std::vector<std::size_t> degree(gpus);
    std::vector<PairId> pairs;
    for (const auto& [a, b] : all) {
        const std::size_t most = board.fabric.gpus[a].ports.size();
        if (degree[a] == most || degree[b] == most) continue;
        ++degree[a];
        ++degree[b];
        pairs.push_back(board.inventory.pair_between(a, b));
    }
    std::sort(pairs.begin(), pairs.end());
    return pairs;
}

}  // namespace

TEST_CASE("what can be routed is placed where nobody is in the way, whatever light is there") {
    std::mt19937 random(1);
    std::uint32_t missed = 0;
    for (int i = 0; i < 4000; ++i) {
        test::Shape shape;
        shape.nodes = 5 + random() % 12;
        shape.ports = 4;
        shape.planes = random() % 2 == 0 ? 2 : 4;
        Board board(shape);
        light_some(board, random);
        const std::vector<PairId> pairs = some_pairs(board, random);
        Planner planner(board.inventory);
        // On two switches there is always a way: a graph of degree four is two graphs of degree two (Petersen, 1891). The
        // search is bounded: among more nodes it misses one in some hundreds of those that need every port.
        const bool routable = planner.routable(pairs);
        CHECK((routable || shape.planes == 4 || shape.nodes > 8));
        if (!routable) continue;
        Gang gang;
        gang.pairs = pairs;
        Plan plan;
        if (!planner.place(gang, plan)) {
            ++missed;
            continue;
        }
        std::vector<PortId> used;
        for (const auto& list : {plan.kept, plan.fresh})
            for (const auto& [pair, circuit] : list) used.insert(used.end(), {circuit.a, circuit.b});
        std::sort(used.begin(), used.end());
        CHECK(std::adjacent_find(used.begin(), used.end()) == used.end());
        for (const PairId e : pairs)
            CHECK((std::any_of(plan.fresh.begin(), plan.fresh.end(), [e](auto& f) { return f.first == e; }) ||
                   std::any_of(plan.kept.begin(), plan.kept.end(), [e](auto& k) { return k.first == e; })));
    }
    CHECK(missed == 0);
}

TEST_CASE(
    "a pair wants one circuit more where that saves its bytes a dark time, and both ends have ports that the gang does "
    "not use") {
    Board board(test::Shape{.nodes = 3, .ports = 2, .dark_ns = 10'000'000});
    Planner planner(board.inventory);
    const PairId e = board.inventory.pair_between(0, 1), other = board.inventory.pair_between(1, 2);
    const auto port = [&](GpuId gpu, std::size_t p) { return board.fabric.gpus[gpu].ports[p]; };
    board.inventory.light(make_circuit(port(0, 0), port(1, 0)), 1, 1);
    const double gbps = board.fabric.rails.front().gbps;
    const auto bytes_of_ms = [&](double ms) { return ms * 1e6 * gbps / 8; };
    board.inventory.pair(e).most_bytes = bytes_of_ms(19);
    CHECK(!planner.wants_more({e}));  // saves half of it
    board.inventory.pair(e).most_bytes = bytes_of_ms(21);
    CHECK(planner.wants_more({e}));
    board.inventory.light(make_circuit(port(1, 1), port(2, 0)), 1, 1);
    CHECK(planner.wants_more({e}));  // another's light can go
    CHECK(!planner.wants_more({e, other}));
    board.inventory.darken(port(1, 1), 1, 1);
    board.inventory.light(make_circuit(port(0, 1), port(1, 1)), 1, 1);
    CHECK(!planner.wants_more({e}));
}

TEST_CASE("a port whose light a fault has taken gets it back, by a plan of one circuit a pair, too") {
    Board board(test::Shape{.nodes = 2, .ports = 2, .dark_ns = 10'000'000});
    const auto port = [&](GpuId gpu, std::size_t p) { return board.fabric.gpus[gpu].ports[p]; };
    board.inventory.light(make_circuit(port(0, 0), port(1, 0)), 1, 1);
    Gang gang;
    gang.pairs = {board.inventory.pair_between(0, 1)};
    for (const bool by_fault : {false, true}) {
        board.inventory.port(port(0, 1)).dark_by_fault = by_fault;
        Plan plan;
        REQUIRE(Planner(board.inventory).place(gang, plan, true));
        CHECK(plan.fresh.size() == (by_fault ? 1 : 0));
        CHECK(Planner(board.inventory).wants_more(gang.pairs) == by_fault);  // so no run without end keeps it from it
        PortState& other = board.inventory.port(port(1, 1));
        other.failures = 1;
        CHECK(!Planner(board.inventory).wants_more(gang.pairs));
        other.failures = 0;
        other.unknown = true;
        CHECK(!Planner(board.inventory).wants_more(gang.pairs));
        other.unknown = false;
    }
}

TEST_CASE(
    "the light that is given up is that of a pair that is used seldom; of two that are used about as often, of the "
    "same one always") {
    for (const bool turned : {false, true})
        for (const auto& [first, second] : {std::pair{100, 120}, {120, 100}, {100, 10}, {10, 100}}) {
            CAPTURE(turned);
            CAPTURE(first);
            CAPTURE(second);
            Board board(test::Shape{.nodes = 4, .ports = 2, .dark_ns = 10'000'000});
            const auto port = [&](GpuId gpu, std::size_t p) { return board.fabric.gpus[gpu].ports[p]; };
            const PairId a = board.inventory.pair_between(0, 1), b = board.inventory.pair_between(0, 2);
            board.inventory.light(make_circuit(port(0, turned ? 1 : 0), port(1, 0)), 1, 1);
            board.inventory.light(make_circuit(port(0, turned ? 0 : 1), port(2, 0)), 1, 1);
            board.inventory.pair(a).uses = static_cast<std::uint64_t>(first);
            board.inventory.pair(b).uses = static_cast<std::uint64_t>(second);
            Gang gang;
            gang.pairs = {board.inventory.pair_between(0, 3)};
            Plan plan;
            REQUIRE(Planner(board.inventory).place(gang, plan));
            REQUIRE(plan.fresh.size() == 1);
            const Circuit& made = plan.fresh.front().second;
            const PortId taken = board.fabric.ports[made.a].gpu == 0 ? made.a : made.b;
            CHECK(board.inventory.port(taken).pair == (second < 50 ? b : a));
        }
}
