// What is played of a job: models by their dimensions, one rail for all, and what must hold between the variants.
#include <doctest/doctest.h>

#include <cmath>

#include "tools/opus-sim/fold_rails.h"
#include "tools/opus-sim/model_job.h"
#include "tools/opus-sim/run_job.h"
#include "tools/replay/generate.h"

using namespace opus;
using namespace opus::job;

namespace {

ModelOptions small_model() {
    ModelOptions o;
    o.layers = 4, o.tensor = 2, o.gpus_per_node = 2, o.pipeline = 2, o.data = 2, o.micro_batches = 4;
    return o;
}
// A norm over all ranks is left out.
replay::Workload without_norm(replay::Workload w) {
    for (replay::Role& role : w.roles)
        std::erase_if(role.steps,
                      [&](const replay::Step& s) { return is_operation(s.kind) && w.comms[s.comm].name == "world"; });
    return w;
}
JobFile job_of(replay::Workload w) {
    JobFile job;
    job.workload = std::move(w);
    return job;
}
RunOptions quick() {
    RunOptions o;
    o.dark_ms = {0, 10, 100};
    o.ports = 1;
    o.trials = 20;
    return o;
}

}  // namespace

TEST_CASE("models have as many parameters as their papers say") {
    const double published[][2] = {{0, 8.03e9}, {1, 70.6e9}, {2, 405.9e9}, {3, 174.6e9}, {4, 46.7e9}, {5, 671e9}};
    REQUIRE(models().size() == std::size(published));
    for (const auto& [i, parameters] : published) {
        const Model& m = models()[static_cast<std::size_t>(i)];
        CAPTURE(m.name);
        CHECK(parameters_of(m) == doctest::Approx(parameters).epsilon(0.01));
    }
}

TEST_CASE("every model trains in every schedule and sharding, and its ranks agree") {
    for (const Model& m : models())
        for (const char* schedule : {"1f1b", "interleaved", "zero-bubble"})
            for (const char* sharding : {"none", "zero1", "fsdp"}) {
                ModelOptions o = small_model();
                o.model = m.name, o.schedule = schedule, o.sharding = sharding;
                if (m.experts != 0) o.expert = 2, o.tensor = 1;
                CAPTURE(m.name);
                CAPTURE(schedule);
                CAPTURE(sharding);
                const replay::Workload w = model_job(o);
                std::vector<replay::WorkloadError> errors;
                check_agreement(w, errors);
                CHECK(errors.empty());
                CHECK(dry_run(w, {}).ended);
            }
}

TEST_CASE("degrees that do not fit are refused in words") {
    ModelOptions o = small_model();
    o.expert = 2;
    CHECK_THROWS_WITH_AS(model_job(o), doctest::Contains("has no experts"), std::invalid_argument);
    o = small_model();
    o.pipeline = 5;
    CHECK_THROWS_WITH_AS(model_job(o), doctest::Contains("4 layers only"), std::invalid_argument);
    o = small_model();
    o.data = 60000;
    CHECK_THROWS_WITH_AS(model_job(o), doctest::Contains("more than"), std::invalid_argument);
}

TEST_CASE(
    "electrical rails are never slower, no schedule goes below the bound, none that is tried is better than the best "
    "found") {
    for (const char* schedule : {"1f1b", "zero-bubble"}) {
        ModelOptions m = small_model();
        m.schedule = schedule;
        const Run run = run_job(job_of(model_job(m)), quick());
        REQUIRE(run.electrical.ended);
        REQUIRE(run.points.size() == 3);
        for (const Point& p : run.points) {
            CAPTURE(p.dark_ms);
            for (const VariantFigures* v : {&p.demand, &p.provisioned}) {
                CHECK(v->ended);
                CHECK(v->fault == "");
                CHECK(v->iteration_ms >= run.electrical.iteration_ms * 0.9999);
                CHECK(p.best_ms <= v->iteration_ms);
            }
            CHECK(p.bound_ms <= p.best_ms);
            CHECK(p.best_ms >= run.electrical.iteration_ms * 0.9999);
        }
        CHECK(run.points[2].demand.iteration_ms > run.points[0].demand.iteration_ms);
    }
}

TEST_CASE("the same job gives the same figures, whatever else is played beside it") {
    RunOptions o = quick();
    const JobFile job = job_of(model_job(small_model()));
    const Run a = run_job(job, o);
    o.at_once = 1;
    const Run b = run_job(job, o);
    for (std::size_t i = 0; i < a.points.size(); ++i) {
        CHECK(a.points[i].demand.iteration_ms == b.points[i].demand.iteration_ms);
        CHECK(a.points[i].provisioned.iteration_ms == b.points[i].provisioned.iteration_ms);
        CHECK(a.points[i].best_ms == b.points[i].best_ms);
    }
}

TEST_CASE("one rail stands for all where GPUs of a node do the same") {
    for (const char* sharding : {"zero1", "fsdp"}) {
        ModelOptions m = small_model();
        m.sharding = sharding, m.tensor = m.gpus_per_node = 4;
        const JobFile job = job_of(model_job(m));  // with a norm over all its ranks
        RunOptions o = quick();
        o.best = false, o.fold = true;
        const Run one = run_job(job, o);
        o.fold = false;
        const Run all = run_job(job, o);
        CHECK(one.rails == 4);
        CHECK(all.rails == 1);
        CHECK(one.electrical.iteration_ms == doctest::Approx(all.electrical.iteration_ms).epsilon(0.001));
        for (std::size_t i = 0; i < one.points.size(); ++i) {
            CHECK(one.points[i].demand.iteration_ms == doctest::Approx(all.points[i].demand.iteration_ms).epsilon(0.005));
            // When its plan is adopted depends on how many rails ask.
            CHECK(one.points[i].provisioned.iteration_ms <= one.points[i].demand.iteration_ms * 1.005);
            CHECK(one.points[i].demand.reconfigurations ==
                  doctest::Approx(all.points[i].demand.reconfigurations).epsilon(0.05));
        }
    }
}

TEST_CASE("rails that differ are all played") {
    replay::DryRunOptions times;
    times.rings = true;
    REQUIRE(one_rail(model_job(small_model()), times));
    replay::Workload part = model_job(small_model());
    for (replay::Comm& c : part.comms)  // its rings come in by one rail and leave by another
        if (c.groups.front().size() == part.world()) c.groups.front().pop_back();
    CHECK(!one_rail(part, times));
    replay::Workload w = without_norm(model_job(small_model()));
    REQUIRE(one_rail(w, times));
    // One GPU of a node computes for longer.
    replay::Role slow = w.roles[0];
    slow.name = "slow", slow.ranks = {1};
    std::erase(w.roles[0].ranks, 1u);
    slow.steps.front().us += 5, slow.steps.back().us += 5;
    w.roles.push_back(slow);
    CHECK(!one_rail(w, times));
    replay::Workload crossed = without_norm(model_job(small_model()));
    for (replay::Comm& c : crossed.comms)
        if (c.name == "dp") std::swap(c.groups[0][0], c.groups[1][0]);
    CHECK(!one_rail(crossed, times));
}

TEST_CASE(
    "a static split gives ports to what gains most, and there is none where a GPU has more neighbours than ports") {
    ModelOptions m = small_model();
    m.tensor = m.gpus_per_node = 1;
    const JobFile job = job_of(without_norm(model_job(m)));
    RunOptions o = quick();
    o.dark_ms = {0};
    o.best = false, o.ports = 1;
    CHECK(run_job(job, o).split.iteration_ms == 0);  // a neighbour in the pipeline, and a replica
    CHECK(run_job(job, o).split.needed_ports == 2);
    o.ports = 2;
    const Run two = run_job(job, o);
    CHECK(two.split.iteration_ms > two.electrical.iteration_ms);  // half of the bandwidth each
    o.ports = 4;
    const Run four = run_job(job, o);
    CHECK(four.split.iteration_ms <= two.split.iteration_ms);
    CHECK(four.split.iteration_ms > four.electrical.iteration_ms);
    CHECK(four.split.tried > 1);
}

TEST_CASE("operations take what a ring of their members takes, within a node by its own figures") {
    replay::Workload w = model_job(small_model());
    replay::DryRunOptions o;
    o.rings = true, o.bytes_per_us = 1000, o.latency_us = 1, o.node_bytes_per_us = 10'000, o.node_latency_us = 0.5;
    const replay::OperationTimes times(w, o);
    const auto comm = [&](const char* name) {
        std::uint32_t c = 0;
        while (w.comms[c].name != name) ++c;
        return c;
    };
    replay::Step s;
    s.kind = replay::StepKind::all_reduce, s.bytes = 1'000'000, s.comm = comm("dp");
    CHECK(times.ns(s, 0, 1) == 1'002'000);  // two members: twice half of the bytes, two steps
    s.kind = replay::StepKind::all_gather;
    CHECK(times.ns(s, 0, 1) == 1'001'000);
    s.kind = replay::StepKind::reduce_scatter;
    CHECK(times.ns(s, 0, 1) == 501'000);
    CHECK(times.ns(s, 0, 1, 0.5) == 1'001'000);
    s.comm = comm("tp");
    CHECK(times.ns(s, 0, 1) == 50'500);
    s.kind = replay::StepKind::send, s.comm = comm("pp0"), s.peer = 1;
    CHECK(times.ns(s, 0, 1) == 1'001'000);
}
