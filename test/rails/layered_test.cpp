// Jobs that are drawn, and three that others have drawn: each on demand and provisioned, under the same noise.
#include <doctest/doctest.h>

#include <fstream>

#include "test/rails/in_turn.h"
#include "tools/replay/generate.h"
#include "tools/sim/against_demand.h"

using namespace opus;
using namespace opus::sim;

namespace {

const doctest::test_suite layered("layered");

struct Noise {
    const char* name;
    double jitter;
    TimeNs late_ns;
};

// Under sanitizers, which look for other things, some of them are enough.
bool sanitized() { return is_set("OPUS_TEST_SANITIZED"); }

constexpr Noise kNoisy{"noisy", 0.05, 300'000};

VariantOptions guarded(const Noise& noise, double dark_ms) {
    VariantOptions o;
    o.dark_ns = static_cast<TimeNs>(dark_ms * 1e6);
    o.dry_run.iterations = 20;
    o.dry_run.bytes_per_us *= 1024;
    o.dry_run.jitter = noise.jitter;
    o.rails.late_ns = noise.late_ns;
    o.rails.guard = true;
    return o;
}

bool begins_late(const replay::Workload& job, const Noise& noise, double dark_ms) {
    return job.name == "layered-2" && noise.jitter > 0 && dark_ms == 50;
}

// `n`: number of the job. Under noise it is played at the other dark time than quiet.
void check(const replay::Workload& job, std::size_t n) {
    for (const Noise& noise : {Noise{"quiet", 0, 0}, kNoisy})
        for (const double dark_ms : in_turn(n++, {10.0, 50.0})) {
            if (begins_late(job, noise, dark_ms)) continue;
            const VariantOptions o = guarded(noise, dark_ms);
            CAPTURE(job.name);
            CAPTURE(noise.name);
            CAPTURE(dark_ms);
            const AgainstDemand both = against_demand(job, o);
            CHECK(both.fault == "");
            // Under noise chance alone makes some longer while they learn (bench_layered_jobs --itself).
            CHECK(both.settled_percent() <= AgainstDemand::kMostPercent);
            if (noise.jitter == 0) CHECK(both.broken() == "");
        }
}

void check_cut(std::uint64_t seed) {
    replay::GenerateOptions g;
    g.seed = seed;
    const replay::Workload job = replay::generate("layered", g);
    VariantOptions o = guarded({"quiet", 0, 0}, 0.1);
    o.dry_run.bytes_per_us /= 1024;
    CAPTURE(job.name);
    CHECK(against_demand(job, o).broken() == "");
}

}  // namespace

// Some of those that were slower by the most, of the first 200, and some that were not; `make soak` plays all.
TEST_CASE("a job never ends up slower for having been provisioned" * layered) {
    replay::GenerateOptions o;
    std::size_t n = 0;
    for (const std::uint64_t seed : {1, 2, 3, 30, 75, 77, 91, 136, 160, 166}) {
        if (sanitized() && seed > 3) break;
        o.seed = seed;
        check(replay::generate("layered", o), n++);
    }
}

// With bytes that take their time: a plan with too few circuits costs more than it hides. Some of those that were slower, of the
// first 100, when plans and runs gave each pair one.
TEST_CASE("a job with much to carry never ends up slower for having been provisioned, however quick the switch" * layered) {
    replay::GenerateOptions g;
    for (const std::uint64_t seed : {2, 30, 78, 88, 95}) {
        if (sanitized() && seed > 2) break;
        g.seed = seed;
        const replay::Workload job = replay::generate("layered", g);
        for (const double dark_ms : {0.1, 1.0}) {
            VariantOptions o = guarded({"quiet", 0, 0}, dark_ms);
            o.dry_run.bytes_per_us /= 1024;
            CAPTURE(job.name);
            CAPTURE(dark_ms);
            CHECK(against_demand(job, o).broken() == "");
        }
    }
}

// Plans of laps that something else cuts short again and again: no lap of theirs is ever timed.
TEST_CASE("a job whose laps are cut never ends up slower for having been provisioned" * layered) {
    for (const std::uint64_t seed : {230, 279}) {
        if (sanitized() && seed > 230) break;
        check_cut(seed);
    }
}

// Its laps are of three dark times and its plan saves a quarter of one in each. It begins in the 17th of 20; until
// docs/decisions/046 it ended up slower.
TEST_CASE("a job of short laps whose plan begins late does not end up slower within twenty iterations" * layered *
          doctest::skip(sanitized())) {
    replay::GenerateOptions g;
    g.seed = 2;
    const replay::Workload job = replay::generate("layered", g);
    REQUIRE(begins_late(job, kNoisy, 50));
    CHECK(against_demand(job, guarded(kNoisy, 50)).settled_percent() <= AgainstDemand::kMostPercent);
}

// What NCCL allows, and no training job does: communicators that come and go, uses in the first iteration only, iterations of
// several kinds, hosts that are busy for minutes.
TEST_CASE("programs drawn at random end on demand and provisioned, and are served as they must be" * layered) {
    replay::GenerateOptions g;
    g.gpus = 2;
    g.iterations = 12;
    for (g.seed = 1; g.seed <= (sanitized() ? 5 : 40); ++g.seed) {
        g.nodes = 2 + g.seed % 3;
        for (const bool guard : {true, false}) {
            VariantOptions o = guarded(g.seed % 2 == 0 ? kNoisy : Noise{"quiet", 0, 0}, 10);
            o.dry_run.iterations = g.iterations;
            o.rails.guard = guard;
            CAPTURE(g.seed);
            CAPTURE(guard);
            const replay::Workload job = replay::generate("random", g);
            for (const Rails rails : {Rails::on_demand, Rails::provisioned}) {
                const PlayedVariant variant = play(job, rails, o);
                CHECK(variant.ended);
                CHECK(variant.fault == "");
            }
        }
    }
}

// Micro-batches, in the later of which more is computed. Planned for the earlier ones they were longer in their second
// iteration by 5.7 and 5.6 dark times.
TEST_CASE("jobs whose micro-batches differ end up no slower for being provisioned" * layered) {
    replay::GenerateOptions g;
    for (const std::uint64_t seed : {196, 348}) {
        g.seed = seed;
        CAPTURE(seed);
        CHECK(against_demand(replay::generate("layered", g), guarded({"quiet", 0, 0}, 10)).broken() == "");
    }
}

// Iterations of 70 ms, in which a dark time is 50: soon all of their light is at rest, and there is nothing to plan.
TEST_CASE("a plan that has not paid for its begin by then is not begun" * layered) {
    replay::GenerateOptions g;
    for (const std::uint64_t seed : {15, 22}) {
        g.seed = seed;
        CAPTURE(seed);
        const AgainstDemand both = against_demand(replay::generate("layered", g), guarded(kNoisy, 50));
        CHECK(both.fault == "");
        CHECK(both.settled_percent() <= AgainstDemand::kMostPercent);
    }
}

// They take half and one and a half times as long as the one that was timed. The guard takes a long one for a loss, once.
TEST_CASE("that laps are unlike in length is no reason to go without a plan" * layered) {
    replay::GenerateOptions g;
    for (const auto& [seed, least] : {std::pair{48u, 0.7}, std::pair{110u, 0.6}}) {
        g.seed = seed;
        CAPTURE(seed);
        VariantOptions o = guarded({"quiet", 0, 0}, 10);
        o.learned = 10;
        const replay::Workload job = replay::generate("layered", g);
        const PlayedVariant demand = play(job, Rails::on_demand, o), ahead = play(job, Rails::provisioned, o);
        CHECK(hidden_share(demand, ahead, play_known(job, {&demand, &ahead}, o).best.iteration_ms) > least);
    }
}

TEST_CASE("a job of others never ends up slower for having been provisioned" * layered) {
    std::size_t n = 0;
    for (const char* name : {"moe-zero1-2x2", "moe-ddp-2x2", "moe-zero1-gpipe-3x4"}) {
        std::ifstream in(std::string(OPUS_TEST_JOBS) + "/" + name + ".jsonl");
        std::vector<replay::WorkloadError> errors;
        const replay::Workload job = replay::read_workload(in, errors);
        REQUIRE(errors.empty());
        check(job, n++);
    }
}
