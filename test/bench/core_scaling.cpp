// What the controller's core takes against the number of nodes. No sockets, no switches but played ones that obey at
// once.
//
//   bench_core_scaling [--runs 7] [--most 4608]      prints JSON: one object a size, first of the gangs, then of the rest
//
//   gang      a collective over all nodes whose circuits are up: every demand, the grant, every done
//   plan      the demand that completes a gang whose circuits all have to be moved: plan, schedule, command
//   decision  a demand that completes a gang of two nodes, while all other nodes are in flight in pairs
//
// Gang and plan in the thread's CPU time (long enough to be interrupted by others), the decision by the clock.
//
// The rest is what happens to wide launches now and then (test/controller/core/wide_scenarios.h), and what people ask
// about them (bytes: of the longest reply): CPU time of the longest step, and of all. A row that takes longer than kMost at a size is stopped, and
// left out at those above.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <stdexcept>
#include <vector>

#include "controller/shell/ctl_replies.h"
#include "test/controller/core/wide_scenarios.h"

namespace {

using namespace opus;
using namespace opus::controller;
using test::clock_us;
using test::cpu_us;
using test::WideWorld;

constexpr std::uint64_t kPairs = 1, kRing = 2, kFirstShuffled = 3;
constexpr double kMost = 4e6;  // microseconds

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

void join(WideWorld& world, std::uint32_t shuffles) {
    std::vector<std::uint32_t> order(world.nodes());
    std::iota(order.begin(), order.end(), 0);
    for (std::uint32_t pair = 0; pair + 1 < world.nodes(); pair += 2) world.join({kPairs, pair}, {pair, pair + 1});
    world.join({kRing, 0}, order);
    std::mt19937 chance(1);
    for (std::uint64_t s = 0; s < shuffles; ++s) {
        std::shuffle(order.begin(), order.end(), chance);
        world.join({kFirstShuffled + s, 0}, order);
    }
}

nlohmann::json measure(std::uint32_t nodes, std::uint32_t runs) {
    WideWorld world(nodes);
    join(world, runs + 1);
    world.start();
    std::vector<double> gang, plan, decision;
    const auto whole = [&](CommId comm, std::uint64_t n) {
        world.demand(comm, n, 0, nodes - 1);
        world.time_by_cpu(true);
        world.demand(comm, n, nodes - 1, nodes);
        world.time_by_cpu(false);
        const double last = world.last_us();
        world.expect(nodes);
        world.done(0, nodes);
        return last;
    };
    for (std::uint32_t r = 0; r <= runs; ++r) {
        const double planned = whole({kFirstShuffled + r, 0}, 0);
        if (r > 0) plan.push_back(planned);
    }
    whole({kRing, 0}, 0);
    for (std::uint32_t r = 0; r < runs; ++r) {
        const double start = cpu_us();
        whole({kRing, 0}, 1 + r);
        gang.push_back(cpu_us() - start);
    }
    // Every pair in flight; then one pair at a time ends and starts again.
    for (std::uint32_t pair = 0; pair + 1 < nodes; pair += 2) world.demand({kPairs, pair}, 0, pair, pair + 2);
    world.expect(nodes / 2 * 2);
    const std::uint32_t again = std::max(200u, nodes / 2);
    for (std::uint32_t i = 0; i < again; ++i) {
        const std::uint32_t pair = i * 2 % (nodes / 2 * 2);
        world.done(pair, pair + 2);
        world.demand({kPairs, pair}, 1 + i * 2 / (nodes / 2 * 2), pair, pair + 2);
        decision.push_back(world.last_us());
        world.expect(2);
    }
    return {{"nodes", nodes}, {"gang_us", median(gang)}, {"plan_us", median(plan)}, {"decision_us", median(decision)}};
}

// --- wide launches ----------------------------------------------------------------------------------

nlohmann::json play(const test::WideScenario& scenario, std::uint32_t nodes) {
    CoreOptions options;
    if (scenario.runs) options.rest_ns = 0;
    WideWorld world(nodes, options);
    world.give_up_after(kMost);
    scenario.play(world);
    return {{"step_us", world.longest_us()}, {"all_us", world.spent_us()}};
}

// As the daemon answers: what the core says, as JSON, as text; one part after the other, until opus-ctl has all.
template <class Reply>
nlohmann::json answer(std::uint32_t nodes, Reply reply) {
    WideWorld world(nodes);
    test::wait_for_ports(world);
    const WireCounters wire;
    const Latency control;
    const ControllerView view{world.fabric(), world.core(), wire, control, 1, "", "", 0, world.now()};
    double longest = 0, all = 0;
    std::size_t bytes = 0;
    for (std::size_t from = 0, parts = 0; parts == 0 || from > 0; ++parts) {
        const double start = cpu_us();
        const nlohmann::json part = reply(view, from);
        const std::string text = to_text(part);
        const double took = cpu_us() - start;
        longest = std::max(longest, took);
        all += took;
        bytes = std::max(bytes, text.size());
        from = part.value("next", std::size_t{0});
    }
    return {{"step_us", longest}, {"all_us", all}, {"bytes", bytes}};
}

nlohmann::json row(const std::string& name, std::uint32_t nodes) {
    for (const test::WideScenario& scenario : test::wide_scenarios())
        if (name == scenario.name) return play(scenario, nodes);
    if (name == "ports") return answer(nodes, [](const ControllerView& view, std::size_t from) { return ports_reply(view, from); });
    return answer(nodes, [](const ControllerView& view, std::size_t from) { return why_reply(view, "", from); });
}

// What took too long at a size, or grew so that it would at this one, is left out.
nlohmann::json measure_wide(std::uint32_t nodes, std::map<std::string, double>& least_us) {
    nlohmann::json point = {{"nodes", nodes}};
    std::vector<std::string> names{"ports", "why"};
    for (const test::WideScenario& scenario : test::wide_scenarios()) names.push_back(scenario.name);
    for (const std::string& name : names) {
        double& least = least_us[name];
        if (least > kMost) {
            point[name] = {{"stopped", "would take longer than " + std::to_string(int(kMost / 1e6)) + " s"}};
            continue;
        }
        const double start = cpu_us();
        try {
            point[name] = row(name, nodes);
        } catch (const std::exception& e) { point[name] = {{"stopped", e.what()}}; }
        // The next size is twice as large, or somewhat more.
        const double took = cpu_us() - start;
        least = took > kMost || point[name].contains("stopped") ? 2 * kMost : 8 * point[name].value("all_us", took);
    }
    return point;
}

}  // namespace

int main(int argc, char** argv) {
    std::uint32_t runs = 7, most = 4608;
    CLI::App app{"Cost of a gang, a plan, a decision and of wide launches against the number of nodes"};
    app.add_option("--runs", runs, "of each, the median counts")->check(CLI::Range(1, 1000));
    app.add_option("--most", most, "nodes")->check(CLI::Range(2, 100'000));
    CLI11_PARSE(app, argc, argv);
    try {
        for (const std::uint32_t nodes : {2u, 8u, 32u, 128u, 512u, 1152u, 2304u, 4608u})
            if (nodes <= most) std::puts(measure(nodes, runs).dump().c_str());
        std::map<std::string, double> least_us;
        for (const std::uint32_t nodes : {64u, 128u, 256u, 512u, 1152u, 2304u, 4608u})
            if (nodes <= most) {
                std::puts(measure_wide(nodes, least_us).dump().c_str());
                std::fflush(stdout);
            }
        return 0;
    } catch (const std::exception& e) {
        std::fprintf(stderr, "bench_core_scaling: %s\n", e.what());
        return 1;
    }
}
