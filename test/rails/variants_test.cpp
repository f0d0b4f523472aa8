// Jobs on demand, provisioned, and as a schedule that knows the future would have them: deterministic, since virtual.
#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "test/rails/in_turn.h"
#include "tools/replay/generate.h"
#include "tools/replay/pattern.h"
#include "tools/sim/variants.h"

using namespace opus;
using namespace opus::sim;

namespace {

const doctest::test_suite best_found_suite("best found");  // they search for the best schedule as well: half of the time

VariantOptions at(double dark_ms, std::uint32_t iterations = 8) {
    VariantOptions o;
    o.dark_ns = static_cast<TimeNs>(dark_ms * 1e6);
    o.dry_run.iterations = iterations;
    o.dry_run.bytes_per_us *= 1024;
    o.ports = 1;  // with more, most of these jobs have a circuit for each pair
    return o;
}

replay::Workload job_of(const std::string& kind, replay::GenerateOptions o = {}) {
    o.gpus = 1;
    return replay::generate(kind, o);
}

std::vector<replay::Workload> small_jobs() {
    replay::GenerateOptions o;
    o.layers = 4, o.micro_batches = 8;
    std::vector<replay::Workload> all;
    for (const auto& generator : replay::generators())
        if (!generator.drawn) all.push_back(job_of(generator.name, o));
    return all;
}

// So that what is allocated next lies in another order each time.
std::vector<std::unique_ptr<char[]>> strewn(std::uint64_t seed) {
    std::vector<std::unique_ptr<char[]>> blocks;
    for (std::uint64_t i = 0; i < 200'000; ++i)
        blocks.push_back(std::make_unique<char[]>(16 + 16 * (replay::mix(seed, i) % 64)));
    for (std::uint64_t i = 0; i < blocks.size(); ++i)
        if (replay::mix(seed, i) >> 8 & 1) blocks[i].reset();
    return blocks;
}

}  // namespace

TEST_CASE("a play is the same twice, wherever memory lies") {
    replay::GenerateOptions o;
    o.seed = 450;  // its laps leave communicators out, and are of several kinds
    const replay::Workload job = replay::generate("layered", o);
    VariantOptions how = at(50, 12);
    how.ports = 2;
    for (const Rails rails : {Rails::on_demand, Rails::provisioned}) {
        const PlayedVariant first = play(job, rails, how);
        REQUIRE(first.ended);
        for (std::uint64_t heap = 1; heap <= 2; ++heap) {
            const auto blocks = strewn(heap);
            const PlayedVariant again = play(job, rails, how);
            CAPTURE(heap);
            CHECK(again.run.ends() == first.run.ends());
            CHECK(again.decided == first.decided);
        }
    }
}

TEST_CASE("a provisioned job is never slower than one that asks on demand") {
    std::size_t n = 0;
    for (const replay::Workload& job : small_jobs())
        for (const double dark : in_turn(n++, {0.0, 10.0, 25.0, 100.0})) {
            const PlayedVariant demand = play(job, Rails::on_demand, at(dark));
            const PlayedVariant ahead = play(job, Rails::provisioned, at(dark));
            CAPTURE(job.name);
            CAPTURE(dark);
            REQUIRE(demand.ended);
            REQUIRE(ahead.ended);
            CHECK(demand.fault == "");
            CHECK(ahead.fault == "");
            CHECK(ahead.iteration_ms <= demand.iteration_ms * 1.001);
        }
}

TEST_CASE("a guarded job hides as much in the end as one that is not") {
    for (const char* kind : {"llama3-8b", "3d", "4d", "4d-moe"}) {
        const replay::Workload job = std::string(kind) == "llama3-8b" ? replay::generate_llama3_8b({}) : job_of(kind);
        VariantOptions o = at(25, 24);
        o.learned = 14;
        const PlayedVariant ahead = play(job, Rails::provisioned, o);
        o.rails.guard = true;
        const PlayedVariant guarded = play(job, Rails::provisioned, o);
        CAPTURE(job.name);
        REQUIRE(guarded.ended);
        CHECK(guarded.fault == "");
        CHECK(guarded.iteration_ms <= ahead.iteration_ms * 1.0005);
    }
}

TEST_CASE("grants that cover the rest of a phase make no job slower") {
    std::size_t n = 0;
    for (const replay::Workload& job : small_jobs())
        for (const double dark : in_turn(n++, {0.0, 25.0})) {
            VariantOptions o = at(dark, 24);
            o.learned = 14;
            o.rails.runs = false;
            const PlayedVariant without = play(job, Rails::provisioned, o);
            o.rails.runs = true;
            const PlayedVariant with = play(job, Rails::provisioned, o);
            CAPTURE(job.name);
            CAPTURE(dark);
            REQUIRE(with.ended);
            CHECK(with.fault == "");
            CHECK(with.iteration_ms <= without.iteration_ms * 1.0005);
        }
}

namespace {

// How long each iteration lasts, from the second on.
std::vector<double> lengths_ms(const PlayedVariant& variant) {
    const std::vector<std::int64_t> ends = variant.run.ends();
    std::vector<double> lengths;
    for (std::size_t i = 1; i < ends.size(); ++i) lengths.push_back(static_cast<double>(ends[i] - ends[i - 1]) / 1e6);
    return lengths;
}

}  // namespace

TEST_CASE("with runs no iteration is slower than without, from the second on") {
    std::size_t n = 0;
    for (const auto& generator : replay::generators()) {
        if (generator.drawn) continue;
        const std::string kind = generator.name;
        const replay::Workload job = job_of(kind);
        for (const double dark : in_turn(n++, {10.0, 25.0, 100.0})) {
            VariantOptions o = at(dark, 14);
            o.learned = 1;
            const std::vector<double> with = lengths_ms(play(job, Rails::provisioned, o));
            o.rails.runs = false;
            const std::vector<double> without = lengths_ms(play(job, Rails::provisioned, o));
            CAPTURE(kind);
            CAPTURE(dark);
            REQUIRE(with.size() == without.size());
            for (std::size_t i = 0; i < with.size(); ++i) {
                CAPTURE(i);
                CHECK(with[i] <= without[i] * 1.002);
            }
        }
    }
}

TEST_CASE("a job whose circuits never move asks for nothing once its laps are known") {
    for (const char* kind : {"dp", "fsdp"}) {
        const auto demands = [kind](std::uint32_t iterations) {
            VariantOptions o = at(10, iterations);
            o.rails.guard = true;
            return play(job_of(kind), Rails::provisioned, o).counters.demands;
        };
        CAPTURE(kind);
        CHECK(demands(40) == demands(10));
    }
}

TEST_CASE("the job of the paper hides from its fifth iteration on most of what can be hidden") {
    for (const double dark : {10.0, 25.0, 100.0}) {
        VariantOptions o = at(dark, 8);
        o.learned = 1;
        const replay::Workload job = replay::generate_llama3_8b({});
        const std::vector<double> lit = lengths_ms(play(job, Rails::lit, o)),
                                  ahead = lengths_ms(play(job, Rails::provisioned, o)),
                                  demand = lengths_ms(play(job, Rails::on_demand, o));
        CAPTURE(dark);
        for (std::size_t i = 3; i < lit.size(); ++i) {
            CAPTURE(i);
            CHECK(ahead[i] - lit[i] < 0.25 * (demand[i] - lit[i]));
        }
    }
}

TEST_CASE("in runs, the managers of the job of the paper send two frames a node and phase at most") {
    VariantOptions o = at(25, 5);
    o.learned = 4;
    const replay::Workload job = replay::generate_llama3_8b({});
    const PlayedVariant before = play(job, Rails::provisioned, o);
    o.dry_run.iterations = 10;
    const PlayedVariant after = play(job, Rails::provisioned, o);
    REQUIRE(after.phases > before.phases);
    CHECK((after.frames_up - before.frames_up) / (after.phases - before.phases) <= 2);
}

TEST_CASE("where nothing is ever dark the best-found schedule and its bound are the job itself" * best_found_suite) {
    for (const replay::Workload& job : small_jobs()) {
        VariantOptions o = at(0, 6);
        o.ports = 2;  // a ring needs two
        o.search.trials = 30;
        const PlayedVariant lit = play(job, Rails::lit, o);
        const Known known = play_known(job, {&lit}, o);
        CAPTURE(job.name);
        CHECK(known.best.iteration_ms == doctest::Approx(lit.iteration_ms).epsilon(1e-4));
        CHECK(known.least_ms == doctest::Approx(lit.iteration_ms).epsilon(1e-4));
    }
}

TEST_CASE("nobody is faster than the best-found schedule, nor that than the bound" * best_found_suite) {
    for (const replay::Workload& job : small_jobs())
        for (const double dark : {10.0, 25.0}) {
            VariantOptions o = at(dark, 10);
            o.learned = 5;  // an iteration that is short because the one before was long is no feat
            o.search.trials = 100;
            const PlayedVariant demand = play(job, Rails::on_demand, o), ahead = play(job, Rails::provisioned, o);
            const Known known = play_known(job, {&demand, &ahead}, o);
            CAPTURE(job.name);
            CAPTURE(dark);
            CHECK(known.best.iteration_ms <= demand.iteration_ms * 1.0002);
            CHECK(known.best.iteration_ms <= ahead.iteration_ms * 1.0002);
            CHECK(known.least_ms <= known.best.iteration_ms * 1.0001);
            CHECK(known.least_ms >= 0.95 * known.best.iteration_ms);
        }
}

// The goal of all kinds is 95 %.
TEST_CASE("a pipeline that fills hides seven tenths of what can be" * best_found_suite) {
    for (const char* kind : {"pp", "zero-bubble"}) {
        const replay::Workload job = job_of(kind);
        VariantOptions o = at(25, 30);
        o.learned = 20;
        o.search.trials = 60;
        const PlayedVariant demand = play(job, Rails::on_demand, o), ahead = play(job, Rails::provisioned, o);
        CAPTURE(kind);
        CHECK(hidden_share(demand, ahead, play_known(job, {&demand, &ahead}, o).best.iteration_ms) >= 0.7);
    }
}

TEST_CASE("stages in a ring hide more than half of what can be, and come to rest" * best_found_suite) {
    const replay::Workload job = job_of("interleaved");
    for (const double dark : {10.0, 25.0, 100.0}) {
        VariantOptions o = at(dark, 24);
        o.learned = 12;
        o.search.trials = 300;
        const PlayedVariant demand = play(job, Rails::on_demand, o), ahead = play(job, Rails::provisioned, o);
        CAPTURE(dark);
        CHECK(ahead.fault == "");
        CHECK(hidden_share(demand, ahead, play_known(job, {&demand, &ahead}, o).best.iteration_ms) > 0.55);
        const std::vector<double> lengths = lengths_ms(ahead);
        for (std::size_t i = o.learned; i < lengths.size(); ++i)
            CHECK(lengths[i] == doctest::Approx(lengths[i - 1]).epsilon(1e-5));
    }
}

TEST_CASE("all-to-alls of a run wait for nobody's look" * best_found_suite) {
    replay::GenerateOptions generate;
    generate.gpus = 1;
    const replay::Workload job = replay::generate("ep", generate);
    for (const double dark : {10.0, 25.0, 100.0}) {
        VariantOptions o = at(dark, 18);
        o.learned = 12;
        o.search.trials = 60;
        const PlayedVariant demand = play(job, Rails::on_demand, o), ahead = play(job, Rails::provisioned, o);
        CAPTURE(dark);
        CHECK(ahead.fault == "");
        CHECK(hidden_share(demand, ahead, play_known(job, {&demand, &ahead}, o).best.iteration_ms) >=
              (dark < 100 ? 0.95 : 0.35));
    }
}

TEST_CASE("a pipeline of phases does first what the future needs first, where receives are posted early" * best_found_suite) {
    const struct {
        const char* kind;
        double dark_ms, share;
    } goals[] = {{"4d", 10, 0.7},      {"4d", 25, 0.7},     {"4d", 100, 0.85},
                 {"4d-moe", 10, 0.05}, {"4d-moe", 25, 0.1}, {"4d-moe", 100, 0.05}};
    for (const auto& goal : goals) {
        const replay::Workload job = job_of(goal.kind);
        VariantOptions o = at(goal.dark_ms, 18);
        o.learned = 12;
        o.search.trials = 5;
        const PlayedVariant demand = play(job, Rails::on_demand, o), ahead = play(job, Rails::provisioned, o);
        const Known known = play_known(job, {&demand, &ahead}, o);
        CAPTURE(goal.kind);
        CAPTURE(goal.dark_ms);
        CHECK(ahead.fault == "");
        CHECK(hidden_share(demand, ahead, known.least_ms) >= goal.share);  // which no schedule can be faster than
    }
}

namespace {

constexpr double kNoisyDarkMs = 25;

// Computation lasts longer by up to `jitter` of what it does.
VariantOptions noisy(std::uint64_t seed, double jitter) {
    VariantOptions o = at(kNoisyDarkMs, 20);
    o.dry_run.jitter = jitter;
    o.dry_run.seed = seed;
    return o;
}

// Of what is waited for on demand, the part that is waited for still.
double waited_share(const replay::Workload& job, const VariantOptions& o) {
    const double lit = play(job, Rails::lit, o).iteration_ms, demand = play(job, Rails::on_demand, o).iteration_ms,
                 ahead = play(job, Rails::provisioned, o).iteration_ms;
    return (ahead - lit) / (demand - lit);
}

}  // namespace

// Nor, while it learns, by more than a dark time of each of its ports.
TEST_CASE("where no order of the past is that of the next, a provisioned job is no slower than one that asks") {
    constexpr std::size_t kLearning = 4;  // iterations after the first
    std::size_t n = 0;
    for (const char* kind : {"pp", "interleaved", "zero-bubble", "cp", "ep", "3d", "4d", "4d-moe"}) {
        const replay::Workload job = job_of(kind);
        for (const std::uint64_t seed : in_turn(n++, {1u, 2u, 3u})) {
            const double jitter = seed == 1 ? 0.02 : 0.05;
            VariantOptions o = noisy(seed, jitter);
            o.learned = 1 + kLearning;
            const PlayedVariant demand = play(job, Rails::on_demand, o), ahead = play(job, Rails::provisioned, o);
            CAPTURE(kind);
            CAPTURE(jitter);
            CAPTURE(seed);
            CHECK(ahead.iteration_ms <= demand.iteration_ms * 1.0002);
            const std::vector<std::int64_t> asked = demand.run.ends(), learned = ahead.run.ends();
            for (std::size_t i = 1; i <= kLearning; ++i) {
                const auto more = static_cast<double>((learned[i] - learned[0]) - (asked[i] - asked[0])) / 1e6;
                CHECK(more <= static_cast<double>(job.world() * o.ports) * kNoisyDarkMs);
            }
        }
    }
}

TEST_CASE("where noise decides which of two comes first, half of what is waited for on demand is not") {
    for (const char* kind : {"3d", "4d", "pp"}) {  // noise decides which of two comes first
        const replay::Workload job = job_of(kind);
        std::vector<double> waited;
        for (std::uint64_t seed = 1; seed <= 5; ++seed) {
            VariantOptions o = noisy(seed, 0.02);
            o.learned = 12;
            waited.push_back(waited_share(job, o));
        }
        std::nth_element(waited.begin(), waited.begin() + 2, waited.end());
        CAPTURE(kind);
        CHECK(waited[2] < 0.5);
    }
}

// On a busy computer each launch is seen when somebody comes to it: those of one moment come in another order every time.
TEST_CASE("a job whose launches are seen late is learned all the same") {
    struct Late {
        std::string kind;
        TimeNs late_ns;
        double dark_ms;
        std::uint32_t learned;
        double waits;  // at most, of what it waits on demand
    };
    for (const Late& l : {Late{"llama3-8b", 1'000'000, 100, 4, 0.35}, Late{"4d", 300'000, 25, 8, 0.7},
                          Late{"3d", 1'000'000, 25, 6, 0.6}}) {
        const replay::Workload job = job_of(l.kind);
        std::vector<double> waits;
        for (std::uint64_t seed = 1; seed <= 3; ++seed) {
            VariantOptions o = at(l.dark_ms, l.learned + 4);
            o.learned = l.learned;
            o.rails.late_ns = l.late_ns;
            o.rails.seed = seed;
            const double lit = play(job, Rails::lit, o).iteration_ms, demand = play(job, Rails::on_demand, o).iteration_ms,
                         ahead = play(job, Rails::provisioned, o).iteration_ms;
            waits.push_back((ahead - lit) / (demand - lit));
        }
        std::sort(waits.begin(), waits.end());
        CAPTURE(l.kind);
        MESSAGE(l.kind << ": waits for " << waits[0] << ", " << waits[1] << ", " << waits[2]);
        CHECK(waits[1] <= l.waits);
    }
}

TEST_CASE("the job of the paper waits for no more dark than if the future were known" * best_found_suite) {
    replay::GenerateOptions o;
    const replay::Workload job = replay::generate_llama3_8b(o);
    for (const double dark : {10.0, 25.0, 100.0}) {
        const VariantOptions options = at(dark, 12);
        const PlayedVariant lit = play(job, Rails::lit, options);
        const PlayedVariant demand = play(job, Rails::on_demand, options);
        const PlayedVariant ahead = play(job, Rails::provisioned, options);
        const Known known = play_known(job, {&demand, &ahead}, options);
        CAPTURE(dark);
        CHECK(hidden_share(demand, ahead, known.best.iteration_ms) >= 0.9);
        CHECK(ahead.iteration_ms <= lit.iteration_ms * (dark <= 25 ? 1.005 : 1.03));
    }
}
