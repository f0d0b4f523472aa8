// What the controller's core takes for a gang, a plan and a decision, against the number of nodes. No sockets, no
// switches but played ones that obey at once.
//
//   bench_core_scaling [--runs 7] [--most 4608]      prints JSON: one object a size
//
//   gang      a collective over all nodes whose circuits are up: every demand, the grant, every done
//   plan      the demand that completes a gang whose circuits all have to be moved: plan, schedule, command
//   decision  a demand that completes a gang of two nodes, while all other nodes are in flight in pairs
//
// Gang and plan in the thread's CPU time (long enough to be interrupted by others), the decision by the clock.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <stdexcept>
#include <vector>

#include "controller/core/core.h"

namespace {

using namespace opus;
using namespace opus::controller;

constexpr TimeNs kStep = 1'000;
constexpr TimeNs kSettled = 1'000'000'000;
constexpr std::uint64_t kPairs = 1, kRing = 2, kFirstShuffled = 3;

// One rail, one GPU of two ports a node, one switch.
Fabric make_fabric(std::uint32_t nodes) {
    Fabric f;
    f.name = "scaling";
    Switch sw;
    sw.name = "ocs";
    sw.ingress = 2 * nodes;
    sw.dark_ns = 25'000'000;
    f.switches.push_back(sw);
    f.rails.push_back({"r0", {0}, {}});
    for (std::uint32_t n = 0; n < nodes; ++n) {
        const std::string name = "n" + std::to_string(n);
        f.nodes.push_back({name, {n}});
        f.rails[0].gpus.push_back(n);
        f.gpus.push_back({name + ".g0", n, 0, 0, "", {2 * n, 2 * n + 1}});
        for (std::uint32_t p = 0; p < 2; ++p)
            f.ports.push_back({name + ".g0.p" + std::to_string(p), n, p, 0, 2 * n + p + 1});
    }
    return f;
}

double cpu_us() {
    timespec t{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return double(t.tv_sec) * 1e6 + double(t.tv_nsec) / 1e3;
}
double clock_us() {
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class World {
public:
    World(std::uint32_t nodes, std::uint32_t shuffles) : fabric_(make_fabric(nodes)), core_(fabric_, {}) {
        seq_.resize(nodes);
        std::vector<wire::Snapshot> snapshots(nodes);
        for (std::uint32_t n = 0; n < nodes; ++n)
            snapshots[n].ranks.push_back({0, 1, 0, 30'000, Policy::proceed, "bench"});
        std::vector<std::uint32_t> order(nodes);
        std::iota(order.begin(), order.end(), 0);
        for (std::uint32_t pair = 0; pair + 1 < nodes; pair += 2) join(snapshots, {kPairs, pair}, {pair, pair + 1});
        join(snapshots, {kRing, 0}, order);
        std::mt19937 chance(1);
        for (std::uint64_t s = 0; s < shuffles; ++s) {
            std::shuffle(order.begin(), order.end(), chance);
            join(snapshots, {kFirstShuffled + s, 0}, order);
        }
        feed(SwitchEvent{0, SessionUp{}});
        for (std::uint32_t n = 0; n < nodes; ++n) {
            feed(NodeSession{n, n + 1});
            feed(NodeMessage{n, n + 1, std::move(snapshots[n])});
        }
        now_ += kSettled;  // what a switch was told before this controller's time is over by then
        feed(Tick{});
        granted_ = 0;
    }

    // The launches of nodes from .. to - 1 for their next collective of `comm`.
    void demand(CommId comm, std::uint64_t n, std::uint32_t from, std::uint32_t to) {
        for (std::uint32_t node = from; node < to; ++node) {
            wire::LaunchDemand d;
            d.launch = {0, seq_[node]};
            if (n == 0) d.keys.push_back({{comm, KeyKind::conn, 0, 0, 0}, 1});
            d.keys.push_back({{comm, KeyKind::coll, 0, 0, n}, 1});
            d.op = OpKind::all_reduce;
            d.bytes = 1 << 20;
            feed(NodeMessage{node, node + 1, wire::Demand{{d}}});
        }
    }
    void done(std::uint32_t from, std::uint32_t to) {
        for (std::uint32_t node = from; node < to; ++node)
            feed(NodeMessage{node, node + 1, wire::Done{{{{0, seq_[node]++}, 1, 1, 1, false}}}});
    }
    void expect(std::uint64_t granted) {
        if (granted_ != granted)
            throw std::runtime_error(std::to_string(granted_) + " launches granted, not " + std::to_string(granted));
        granted_ = 0;
    }
    std::uint32_t nodes() const { return std::uint32_t(fabric_.nodes.size()); }
    // Of the last event from outside: CPU time or, shorter than a clock for that takes, time.
    double last_us() const { return last_us_; }
    void time_by_cpu(bool yes) { clock_ = yes ? cpu_us : clock_us; }

private:
    static void join(std::vector<wire::Snapshot>& snapshots, CommId comm, const std::vector<std::uint32_t>& order) {
        for (std::uint32_t i = 0; i < order.size(); ++i) {
            wire::CommMember m;
            m.comm = comm;
            m.rank_in_comm = i;
            m.size = std::uint32_t(order.size());
            m.rank = 0;
            m.gpu = 0;
            m.generation = 1;
            snapshots[order[i]].comms.push_back(m);
        }
    }

    void feed(const Event& event) {
        std::vector<Event> events;
        const double start = clock_();
        on(event);
        last_us_ = clock_() - start;
        for (take_answers(events); !events.empty();) {
            const std::vector<Event> now = std::exchange(events, {});
            for (const Event& answer : now) {
                on(answer);
                take_answers(events);
            }
        }
    }

    void on(const Event& event) {
        actions_.clear();
        core_.on(event, now_ += kStep, actions_);
    }

    void take_answers(std::vector<Event>& answers) {
        for (const Action& action : actions_) {
            if (const auto* read = std::get_if<ReadMap>(&action))
                answers.push_back(SwitchEvent{read->sw, MapRead{read->op, DriverError::none, "", {}}});
            if (const auto* program = std::get_if<Program>(&action))
                answers.push_back(SwitchEvent{program->sw, Applied{program->op, DriverError::none, "", now_, now_, now_}});
            if (const auto* send = std::get_if<SendTo>(&action))
                if (const auto* grant = std::get_if<wire::Grant>(&send->message)) granted_ += grant->firm.size();
        }
    }

    Fabric fabric_;
    Core core_;
    Actions actions_;
    std::vector<std::uint64_t> seq_;
    TimeNs now_ = 0;
    double last_us_ = 0;
    double (*clock_)() = clock_us;
    std::uint64_t granted_ = 0;
};

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

nlohmann::json measure(std::uint32_t nodes, std::uint32_t runs) {
    World world(nodes, runs + 1);
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

}  // namespace

int main(int argc, char** argv) {
    std::uint32_t runs = 7, most = 4608;
    CLI::App app{"Cost of a gang, a plan and a decision against the number of nodes"};
    app.add_option("--runs", runs, "of each, the median counts")->check(CLI::Range(1, 1000));
    app.add_option("--most", most, "nodes")->check(CLI::Range(2, 100'000));
    CLI11_PARSE(app, argc, argv);
    try {
        for (const std::uint32_t nodes : {2u, 8u, 32u, 128u, 512u, 1152u, 2304u, 4608u})
            if (nodes <= most) std::puts(measure(nodes, runs).dump().c_str());
        return 0;
    } catch (const std::exception& e) {
        std::fprintf(stderr, "bench_core_scaling: %s\n", e.what());
        return 1;
    }
}
