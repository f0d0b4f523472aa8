// What words can cost that are as wrong as they can be: never more than the account of a port allows
// (docs/protocol.md).
#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "tools/replay/workload_builder.h"
#include "tools/sim/columns.h"
#include "tools/sim/job_map.h"

using namespace opus;
using namespace opus::sim;

namespace {

constexpr double kDarkMs = 25;

// Pairs that stay as they are: whoever turns circuits does so in vain, and no word that is right saves anything.
// Or that take turns: each launch needs other circuits than the one before. Or that do so at first.
enum class Pairs : std::uint8_t { stay, turn, turn_first };
constexpr std::uint32_t kFirst = 30;

bool turned(Pairs how, std::uint32_t launch) {
    return launch % 2 != 0 && (how == Pairs::turn || (how == Pairs::turn_first && launch < kFirst));
}

replay::Workload pairs(Pairs how, std::uint32_t launches, double window_ms) {
    using replay::StepKind;
    replay::WorkloadBuilder b("pairs", 4, 1, 1);
    b.comm("a", "", {{0, 1}, {2, 3}});
    b.comm("b", "", {{0, 2}, {1, 3}});
    b.comm("never", "", {{0, 3}, {1, 2}});
    b.role("all", {0, 1, 2, 3});
    for (std::uint32_t i = 0; i < launches; ++i) {
        b.compute("s", static_cast<std::uint64_t>(1000 * window_ms), "compute");
        b.collective(StepKind::all_reduce, turned(how, i) ? "b" : "a", "s", 1024, replay::DType::int32);
    }
    return b.workload();
}

struct Adversary {
    double cost_ms = 0;          // over on demand
    std::uint64_t wrong = 0;     // speculations
    std::uint32_t forgiven = 0;  // debts, of the port that was forgiven most
};

// What one wrong bet costs: the way there, as far as the window does not hide it, or the moment for which its light is
// let be; and the way back.
double bet_ms(double window_ms) { return kDarkMs + std::max(kDarkMs / 8, kDarkMs - window_ms); }

wire::Expectation sure_of(const CommId& comm, std::uint64_t n) {
    wire::KeyRange range;
    range.first.comm = comm;
    range.first.n = n;
    return {0, {range}, true};
}

wire::Expectation lie_of(NodeIndex node) { return sure_of(JobMap::comm_id(2, node == 0 || node == 3 ? 0 : 1), 0); }

// Of launch `next` of pairs that stay or take turns.
wire::Expectation truth_of(Pairs how, NodeIndex node, std::uint32_t next) {
    if (how == Pairs::stay) return sure_of(JobMap::comm_id(0, node / 2), next);
    return sure_of(turned(how, next) ? JobMap::comm_id(1, node % 2) : JobMap::comm_id(0, node / 2), next / 2);
}

void silence(std::vector<wire::Message>& messages) {
    std::erase_if(messages, [](const auto& m) { return std::holds_alternative<wire::Next>(m); });
}

ColumnOptions once() {
    ColumnOptions o;
    o.dark_ns = static_cast<TimeNs>(kDarkMs * 1e6);
    o.learned = 0;
    o.rehearsal.iterations = 1;
    o.rehearsal.bytes_per_us *= 1024;
    return o;
}

// Before each launch but the first all ranks say the same, for sure: what comes, or (`lies`) what never does.
Adversary play(Pairs how, std::uint32_t launches, double window_ms, const std::function<bool(std::uint32_t)>& lies) {
    const replay::Workload job = pairs(how, launches, window_ms);
    ColumnOptions o = once();
    o.rails.runs = false;
    const Column demand = sim::play(job, Rails::on_demand, o);
    std::vector<std::uint32_t> done(4);
    o.rails.tamper = [&](NodeIndex node, std::vector<wire::Message>& messages) {
        silence(messages);
        std::size_t ends = 0;
        for (const wire::Message& message : messages)
            if (const auto* d = std::get_if<wire::Done>(&message)) ends += d->launches.size();
        if (ends == 0) return;
        done[node] += static_cast<std::uint32_t>(ends);
        messages.push_back(wire::Next{{lies(done[node] - 1) ? lie_of(node) : truth_of(how, node, done[node])}});
    };
    std::map<std::string, std::uint32_t> forgiven;  // by port
    o.rails.log = [&](const std::string& line) {
        if (line.ends_with(" may be bet on again")) ++forgiven[line.substr(line.find("controller: "))];
    };
    const Column lied = sim::play(job, Rails::provisioned, o);
    REQUIRE(demand.ended);
    REQUIRE(lied.ended);
    CHECK(lied.fault == "");
    CHECK(lied.counters.suspensions == 0);
    Adversary a{lied.total_ms - demand.total_ms, lied.counters.speculations_wrong, 0};
    for (const auto& [port, times] : forgiven) a.forgiven = std::max(a.forgiven, times);
    return a;
}

constexpr double kWindowsMs[] = {2, 10, 40, 100};  // shorter than the dark time, and longer
constexpr double kNoiseMs = 1;

}  // namespace

TEST_CASE("ports whose speculations are all wrong lose what was saved on them and one dark time at most") {
    const replay::Workload job = pairs(Pairs::turn_first, 3 * kFirst, 100);
    ColumnOptions o = once();
    const Column demand = sim::play(job, Rails::on_demand, o);
    const Column honest = sim::play(job, Rails::provisioned, o);
    std::uint32_t ends = 0;
    o.rails.tamper = [&](NodeIndex node, std::vector<wire::Message>& messages) {
        for (const wire::Message& message : messages) ends += std::holds_alternative<wire::Done>(message);
        if (ends < 4 * kFirst) return;
        silence(messages);
        messages.push_back(wire::Next{{lie_of(node)}});
    };
    const Column lied = sim::play(job, Rails::provisioned, o);
    REQUIRE(demand.ended);
    REQUIRE(honest.ended);
    REQUIRE(lied.ended);
    CHECK(honest.total_ms < demand.total_ms - 200);  // there is something saved that can be lost
    CHECK(lied.counters.speculations_wrong > 3);
    CHECK(lied.total_ms > honest.total_ms + 50);
    CHECK(lied.total_ms <= demand.total_ms + kDarkMs + 5);
    CHECK(lied.counters.suspensions == 0);
    MESSAGE("on demand " << demand.total_ms << " ms, honest " << honest.total_ms << " ms, lied to " << lied.total_ms << " ms");
}

TEST_CASE("words that are never right move nothing") {
    for (const Pairs how : {Pairs::stay, Pairs::turn})
        for (const double window : kWindowsMs) {
            const Adversary a = play(how, 100, window, [](std::uint32_t) { return true; });
            CAPTURE(window);
            CHECK(a.wrong == 0);
            CHECK(a.cost_ms <= kNoiseMs);
        }
}

TEST_CASE("words that are right and wrong in turns cost a port one bet, for good") {
    for (const double window : kWindowsMs) {
        const Adversary a = play(Pairs::stay, 200, window, [](std::uint32_t i) { return i % 2 != 0; });
        CAPTURE(window);
        CHECK(a.wrong == 2);  // of each pair one
        CHECK(a.forgiven == 0);
        CHECK(a.cost_ms == doctest::Approx(bet_ms(window)).epsilon(0.05));
        const Adversary b = play(Pairs::turn, 200, window, [](std::uint32_t i) { return i % 2 != 0; });
        CHECK(b.cost_ms <= bet_ms(window) + kNoiseMs);  // those that are right save something
    }
}

TEST_CASE("words that are right until the debt is forgiven, and then wrong, cost one bet more") {
    for (const double window : kWindowsMs) {
        const Adversary a = play(Pairs::stay, 400, window, [](std::uint32_t i) { return i % 9 == 8; });
        CAPTURE(window);
        CHECK(a.forgiven == 1);
        CHECK(a.cost_ms == doctest::Approx(2 * bet_ms(window)).epsilon(0.05));
        const Adversary b = play(Pairs::turn, 400, window, [](std::uint32_t i) { return i % 9 == 8; });
        CHECK(b.cost_ms <= (1 + b.forgiven) * bet_ms(window) + kNoiseMs);
    }
}

TEST_CASE("the worst words cost a port one bet, and one more for each doubling of those that were right in a row") {
    std::vector<bool> lies;
    constexpr std::uint32_t kDoublings = 5;
    for (std::uint32_t d = 0; d <= kDoublings; ++d) {
        lies.insert(lies.end(), std::size_t{8} << (d == 0 ? 0 : d - 1), false);
        lies.push_back(true);
    }
    const auto is_lie = [&lies](std::uint32_t i) { return i < lies.size() && lies[i]; };
    for (const double window : kWindowsMs)
        for (const Pairs how : {Pairs::stay, Pairs::turn}) {
            const Adversary a = play(how, static_cast<std::uint32_t>(lies.size()) + 8, window, is_lie);
            CAPTURE(window);
            CHECK(a.forgiven <= kDoublings);
            CHECK(a.cost_ms <= (1 + kDoublings) * bet_ms(window) + kNoiseMs);
            if (how == Pairs::stay) CHECK(a.cost_ms >= 0.95 * (1 + kDoublings) * bet_ms(window));  // they can
        }
}
