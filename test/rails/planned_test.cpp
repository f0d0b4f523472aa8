// Drawn jobs whose circuits follow a plan of their own laps (controller/plan).
#include <doctest/doctest.h>

#include "tools/replay/generate.h"
#include "tools/sim/variants.h"

using namespace opus;
using namespace opus::sim;

namespace {

VariantOptions planned(double dark_ms) {
    VariantOptions o;
    o.dark_ns = static_cast<TimeNs>(dark_ms * 1e6);
    o.learned = 10;
    o.dry_run.iterations = 20;
    o.dry_run.bytes_per_us *= 1024;
    return o;
}

replay::Workload drawn(std::uint64_t seed) {
    replay::GenerateOptions g;
    g.seed = seed;
    return replay::generate("layered", g);
}

// Of the dark time that the best schedule found hides, how much a job does under the guard.
double guarded_share(const replay::Workload& job, double dark_ms) {
    VariantOptions o = planned(dark_ms);
    o.rails.guard = true;
    const PlayedVariant demand = play(job, Rails::on_demand, o), ahead = play(job, Rails::provisioned, o);
    for (const PlayedVariant* played : {&demand, &ahead}) {
        REQUIRE(played->ended);
        CHECK(played->fault == "");
    }
    return hidden_share(demand, ahead, play_known(job, {&demand, &ahead}, o).best.iteration_ms);
}

}  // namespace

// None of these has an interlude. They are of the half of the seeds on which constants may be looked at.
TEST_CASE("a job that does the same in each lap has by plan what the best schedule has") {
    for (const std::uint64_t seed : {4, 8, 16, 26}) {
        const replay::Workload job = drawn(seed);
        CAPTURE(job.name);
        const VariantOptions o = planned(50);
        const PlayedVariant demand = play(job, Rails::on_demand, o), ahead = play(job, Rails::provisioned, o);
        REQUIRE(demand.ended);
        REQUIRE(ahead.ended);
        CHECK(demand.fault == "");
        CHECK(ahead.fault == "");
        CHECK(hidden_share(demand, ahead, play_known(job, {&demand, &ahead}, o).best.iteration_ms) > 0.55);
    }
}

TEST_CASE("a job with interludes ends under a plan, guarded or not") {
    for (const std::uint64_t seed : {14, 20, 48})
        for (const bool guard : {false, true}) {
            const replay::Workload job = drawn(seed);
            CAPTURE(job.name);
            VariantOptions o = planned(10);
            o.rails.guard = guard;
            const PlayedVariant ahead = play(job, Rails::provisioned, o);
            CHECK(ahead.ended);
            CHECK(ahead.fault == "");
        }
}

// What a stage sends and what it gets for it is one launch, and meanwhile others need its ports.
TEST_CASE("a plan gives others the light of launches that wait, and gives it back") {
    for (const std::uint64_t seed : {70, 82, 184}) {
        CAPTURE(seed);
        CHECK(guarded_share(drawn(seed), 10) > 0.75);
    }
    // What is suspended on demand is no other use for it.
    CHECK(guarded_share(drawn(82), 50) > 0.7);
}

// A ring has some of its circuits and waits for the last one. A use behind it in the plan is ready long before it was to be.
TEST_CASE("who is ready and first by plan is not overtaken by those behind it") {
    VariantOptions o = planned(50);
    o.dry_run.bytes_per_us /= 1024;
    o.dry_run.jitter = 0.05;
    o.rails.late_ns = 300'000;
    o.rails.guard = true;
    const replay::Workload job = drawn(429);
    CHECK(play(job, Rails::provisioned, o).iteration_ms < 0.82 * play(job, Rails::on_demand, o).iteration_ms);
}

// Evaluations every third, fourth and seventh iteration.
TEST_CASE("a job with interludes goes on by its plan behind them") {
    for (const std::uint64_t seed : {60, 64, 126}) {
        CAPTURE(seed);
        CHECK(guarded_share(drawn(seed), 10) > 0.5);
    }
}

// Their phases are short, their light is up for long: on demand some of it is at rest before there is a plan.
TEST_CASE("a plan moves light on which its own job had runs without end") {
    for (const std::uint64_t seed : {64, 106}) {
        CAPTURE(seed);
        CHECK(guarded_share(drawn(seed), 50) > 0.6);
    }
}

// A ring and a pair of it have what comes next by the same light; the ring's other ports turn before the pair has done all of it.
TEST_CASE("what follows unasked keeps no port beyond its turn") { CHECK(guarded_share(drawn(571), 50) > 0.8); }

// Its best schedule turns the port whose light has been idle for longest, not that whose light is needed last.
TEST_CASE("a plan takes the ports that are free first, where that is shorter") {
    CHECK(guarded_share(drawn(507), 10) > 0.9);
    CHECK(guarded_share(drawn(527), 50) > 0.9);
}

// For as many laps as the plan kept that light for. The next plan moves it.
TEST_CASE("a plan moves light on which a plan before it had runs") {
    for (const std::uint64_t seed : {110, 126}) {
        CAPTURE(seed);
        CHECK(guarded_share(drawn(seed), 50) > 0.7);
    }
}

// And the job is no slower for it.
TEST_CASE("what the plan keeps light for starts unasked") {
    for (const std::uint64_t seed : {4, 8, 16, 26}) {
        const replay::Workload job = drawn(seed);
        CAPTURE(job.name);
        VariantOptions o = planned(10);
        const PlayedVariant runs = play(job, Rails::provisioned, o);
        o.rails.runs = false;
        const PlayedVariant asked = play(job, Rails::provisioned, o);
        for (const PlayedVariant* c : {&runs, &asked}) {
            REQUIRE(c->ended);
            CHECK(c->fault == "");
        }
        CHECK(asked.counters.run_launches == 0);
        CHECK(runs.counters.run_launches > 0);
        CHECK(runs.counters.demands < asked.counters.demands);
        CHECK(runs.iteration_ms < 1.01 * asked.iteration_ms);
    }
}

// Of both jobs bad plans are found. The last of the checks is what shows that the one before it is asked at all.
TEST_CASE("a job that is slower for its plan goes on on demand") {
    const auto over_demand = [](const replay::Workload& job, VariantOptions o, bool guard) {
        o.rails.guard = guard;
        return play(job, Rails::provisioned, o).iteration_ms / play(job, Rails::on_demand, o).iteration_ms;
    };
    VariantOptions noisy = planned(50);
    noisy.dry_run.jitter = 0.05;
    noisy.rails.late_ns = 300'000;
    CHECK(over_demand(drawn(98), noisy, true) < 1.005);
    VariantOptions with_bytes = planned(0.1);
    with_bytes.dry_run.bytes_per_us /= 1024;
    CHECK(over_demand(drawn(279), with_bytes, true) < 1.005);
    CHECK(over_demand(drawn(279), with_bytes, false) > 1.02);
}

TEST_CASE("a job that is slower for its plan falls back, and the log says by how much and for how long") {
    VariantOptions o = planned(10);
    o.rails.guard = true;
    int said = 0;
    o.rails.log = [&said](const std::string& line) {
        said += line.find("plans have made it slower by ") != std::string::npos &&
                line.find(" us: on demand; tried again in ") != std::string::npos;
    };
    for (const std::uint64_t seed : {236, 628}) play(drawn(seed), Rails::provisioned, o);  // their batches differ
    CHECK(said > 0);
}

// The rest of its ports stays for others, but where its bytes are worth a dark time.
TEST_CASE("by plan a pair gets one circuit, and more where its bytes pay for a dark time") {
    replay::GenerateOptions g;
    g.gpus = 1;
    const replay::Workload job = replay::generate("dp", g);
    VariantOptions o = planned(10);
    o.dry_run.iterations = 4, o.learned = 2;
    const PlayedVariant lit = play(job, Rails::lit, o);
    for (const double scale : {1.0, 1024.0}) {  // the second: transfers take next to no time
        CAPTURE(scale);
        o.dry_run.bytes_per_us = 25'000 * scale;
        const PlayedVariant demand = play(job, Rails::on_demand, o);
        REQUIRE(demand.ended);
        CHECK(demand.fault == "");
        CHECK(demand.iteration_ms >= play(job, Rails::lit, o).iteration_ms);
    }
    CHECK(lit.ended);
}
