// What is said of a played job beside its times, held against a job small enough to be worked out by hand, and against
// what must hold of any job.
#include <doctest/doctest.h>

#include <sstream>

#include "tools/opus-sim/advice.h"
#include "tools/opus-sim/model_job.h"

using namespace opus;
using namespace opus::job;

namespace {

// Four nodes of one GPU: a sum with one neighbour, 10 ms of computing, a sum with the other, 5 ms of computing.
JobFile squares() {
    std::istringstream text(
        R"({"workload":1,"name":"squares","iterations":6,"places":[[0,0],[1,0],[2,0],[3,0]]}
{"comm":"row","groups":[[0,1],[2,3]]}
{"comm":"column","groups":[[0,2],[1,3]]}
{"role":"all","ranks":[0,1,2,3]}
{"role":"all","do":"all_reduce","comm":"row","stream":"s","bytes":50000000,"dtype":"bfloat16"}
{"role":"all","do":"compute","stream":"s","us":10000}
{"role":"all","do":"all_reduce","comm":"column","stream":"s","bytes":500000,"dtype":"bfloat16"}
{"role":"all","do":"compute","stream":"s","us":5000}
)");
    std::vector<replay::WorkloadError> errors;
    JobFile job;
    job.workload = read_workload(text, errors);
    REQUIRE(errors.empty());
    return job;
}
RunOptions options() {
    RunOptions o;
    o.dark_ms = {8};
    o.ports = 1, o.trials = 10, o.iterations = 6;
    return o;
}
JobFile model() {
    ModelOptions m;
    m.layers = 4, m.tensor = 2, m.gpus_per_node = 2, m.pipeline = 2, m.data = 2, m.micro_batches = 4;
    JobFile job;
    job.workload = model_job(m);
    return job;
}
double phase_ms(const Run& run, const Answers& a, const std::string& name, double DarkPhase::*what) {
    for (const DarkPhase& p : a.rails.phases)
        if (run.labels[p.label] == name) return p.*what / run.counted;
    FAIL("no operation is called " << name);
    return 0;
}

}  // namespace

TEST_CASE("windows between phases are the idle times of a GPU's ports") {
    const Run run = run_job(squares(), options());
    const Windows& w = run.windows;
    CHECK(w.gpus == 4);
    CHECK(w.all.count == 4 * 2 * run.counted);
    REQUIRE(w.transitions.size() == 2);
    CHECK(run.labels[w.transitions[0].from] == "all_reduce row, 2 ranks");
    CHECK(run.labels[w.transitions[0].to] == "all_reduce column, 2 ranks");
    CHECK(w.transitions[0].sums.median_ms == doctest::Approx(10));
    CHECK(w.transitions[0].sums.most_ms == doctest::Approx(10));
    CHECK(w.transitions[0].sums.bytes == doctest::Approx(500'000));  // a ring of two sends each half twice
    CHECK(w.transitions[1].sums.mean_ms == doctest::Approx(5));
    CHECK(w.transitions[1].sums.bytes == doctest::Approx(50'000'000));
    CHECK(w.by_volume[0].count == w.by_volume[2].count);  // under 1 MB, and 10 to 100 MB
    CHECK(w.by_volume[1].count + w.by_volume[3].count + w.by_volume[4].count == 0);
    REQUIRE(w.cdf_ms.size() == 101);
    CHECK(w.cdf_ms.front() == doctest::Approx(5));
    CHECK(w.cdf_ms[50] == doctest::Approx(5));
    CHECK(w.cdf_ms[51] == doctest::Approx(10));
    REQUIRE(w.rails.size() == 1);
    CHECK(w.rails[0].sums.count == 2 * run.counted);
}

TEST_CASE("dark time that is waited for is told from what is hidden, by phase") {
    RunOptions o = options();
    o.iterations = 16;  // learned by then
    const Run run = run_job(squares(), o);
    const Answers& demand = run.points[0].demand_answers;
    // On demand every move is asked for when all are there: 8 ms of 8, before either sum.
    for (const char* name : {"all_reduce row, 2 ranks", "all_reduce column, 2 ranks"}) {
        CAPTURE(name);
        CHECK(phase_ms(run, demand, name, &DarkPhase::dark_ms) == doctest::Approx(2 * 8));
        CHECK(phase_ms(run, demand, name, &DarkPhase::exposed_ms) == doctest::Approx(2 * 8));
    }
    CHECK(demand.way.of_kind(WaySegment::Kind::dark) == doctest::Approx(16));
    CHECK(demand.way.of_kind(WaySegment::Kind::compute) == doctest::Approx(15));
    // Provisioned, the windows of 10 and 5 ms hide 8 and 5 of them, but for messages.
    const Answers& ahead = run.points[0].provisioned_answers;
    CHECK(phase_ms(run, ahead, "all_reduce column, 2 ranks", &DarkPhase::exposed_ms) == doctest::Approx(0));
    CHECK(phase_ms(run, ahead, "all_reduce row, 2 ranks", &DarkPhase::exposed_ms) == doctest::Approx(2 * 3).epsilon(0.1));
    CHECK(ahead.way.of_kind(WaySegment::Kind::dark) == doctest::Approx(3).epsilon(0.1));
    CHECK(ahead.messages_up > 0);
    CHECK(ahead.messages_down > 0);
    // Two ports of each of four GPUs are dark for 16 ms in an iteration.
    CHECK(demand.rails.all.dark == doctest::Approx(16 / run.points[0].demand.iteration_ms).epsilon(0.01));
}

TEST_CASE("of any job: shares are whole, what is waited for was dark, the longest way has no gap") {
    for (const std::uint32_t ports : {1u, 2u}) {
        RunOptions o = options();
        o.dark_ms = {1, 25}, o.ports = ports, o.try_ports = {0};
        const Run run = run_job(model(), o);
        for (const Point& p : run.points)
            for (const Answers* a : {&run.lit_answers, &p.demand_answers, &p.provisioned_answers}) {
                REQUIRE(a->any);
                const PortShares& s = a->rails.all;
                CHECK(s.busy + s.idle + s.dark + s.unlit == doctest::Approx(1));
                double exposed = 0;
                for (const DarkPhase& phase : a->rails.phases) {
                    CHECK(phase.exposed_ms <= phase.dark_ms + 1e-9);
                    CHECK(phase.exposed_ms <= phase.held_ms + 1e-9);
                    exposed += phase.exposed_ms;
                }
                if (a == &run.lit_answers) CHECK(exposed == 0);
                std::int64_t at = 0;
                for (const WaySegment& segment : a->way.segments) {
                    CHECK(segment.from_ns == at);
                    CHECK(segment.to_ns > at);
                    at = segment.to_ns;
                }
                CHECK(static_cast<double>(at) / 1e6 == doctest::Approx(a->way.ms));
                if (a == &run.lit_answers)
                    for (const auto kind : {WaySegment::Kind::dark, WaySegment::Kind::occupied, WaySegment::Kind::control})
                        CHECK(a->way.of_kind(kind) == 0);
            }
        CHECK(run.lit_answers.way.ms == doctest::Approx(run.electrical.iteration_ms));
    }
}

TEST_CASE("launches that are looked up are those that were played") {
    const JobFile job = model();
    sim::VariantOptions c;
    c.dry_run.iterations = 3, c.dry_run.rings = true;
    const JobLaunches launches(job.workload, 1, 3);
    const replay::DryRun run = replay::dry_run(job.workload, c.dry_run);
    std::size_t compared = 0;
    for (std::uint32_t rank = 0; rank < job.workload.world(); ++rank) {
        REQUIRE(launches.launches(rank) == run.ranks[rank].size());
        for (const replay::DryRunLaunch& l : run.ranks[rank]) {
            const auto* o = launches.begin(rank, l.seq);
            REQUIRE(static_cast<std::size_t>(launches.end(rank, l.seq) - o) == l.operations.size());
            for (const replay::Step* step : l.operations) {
                CHECK(o->step->kind == step->kind);
                CHECK(o->step->comm == step->comm);
                CHECK(o->step->bytes == step->bytes);
                // The launch itself is one of the members of its operations, and there are as many as there must be.
                const auto members = launches.members(*o, rank);
                const bool transfer = step->kind == replay::StepKind::send || step->kind == replay::StepKind::recv;
                CHECK(members.size() == (transfer ? 2 : launches.group_size(*step, rank)));
                bool here = false;
                for (const auto& member : members) here |= member.rank == rank && member.seq == l.seq;
                CHECK(here);
                ++o, ++compared;
            }
        }
    }
    CHECK(compared > 100);
}

TEST_CASE("what to change was played: other ports, with the figures that they give") {
    RunOptions o = options();
    o.try_ports = {2};
    const Run run = run_job(squares(), o);
    REQUIRE(run.alternatives.size() == 1);
    const Alternative& two = run.alternatives[0];
    RunOptions alone = o;
    alone.ports = 2, alone.try_ports = {0};
    const Run other = run_job(squares(), alone);
    CHECK(two.split.iteration_ms == other.split.iteration_ms);
    CHECK(two.points[0].provisioned_ms == other.points[0].provisioned.iteration_ms);
    const Conclusion v = conclusion_of(run, o, 0.001);
    const std::string before = percent_text(*loss_of(run.points[0].provisioned.iteration_ms, run));
    const std::string after =
        percent_text(std::min(*loss_of(two.split.iteration_ms, run), *loss_of(two.points[0].provisioned_ms, run)));
    REQUIRE(before != after);
    bool said = false;
    for (const std::string& change : v.changes)
        said |= change.starts_with("With 2 ports a GPU") &&
                change.find(after + " instead of " + before + " at 8 ms") != change.npos;
    CHECK(said);
}

TEST_CASE("a conclusion follows from what was played, and from what may be lost") {
    RunOptions o = options();
    o.try_ports = {0}, o.dark_ms = {8, 25};
    const Run run = run_job(squares(), o);
    const double fast = *loss_of(run.points[0].provisioned.iteration_ms, run),
                 slow = *loss_of(run.points[1].provisioned.iteration_ms, run);
    REQUIRE(fast < slow);
    const Conclusion any = conclusion_of(run, o, slow + 0.01);
    CHECK(any.answer == Conclusion::Answer::yes);
    CHECK(any.point == &run.points[1]);
    CHECK(any.sentence.find("piezo") != std::string::npos);  // 25 ms
    CHECK(any.sentence.find(percent_text(slow)) != std::string::npos);
    const Conclusion some = conclusion_of(run, o, (fast + slow) / 2);
    CHECK(some.answer == Conclusion::Answer::yes);
    CHECK(some.point == &run.points[0]);
    const Conclusion none = conclusion_of(run, o, fast / 2);
    CHECK(none.answer == Conclusion::Answer::no);
    CHECK(none.sentence.find(percent_text(fast)) != std::string::npos);
}

TEST_CASE("a technology whose switches are too small for a rail is not praised without saying so") {
    RunOptions o = options();
    o.try_ports = {0}, o.split = o.best = false, o.ports = 8, o.dark_ms = {1e-5};  // plzt: 16 ports
    const Run run = run_job(squares(), o);
    const Conclusion v = conclusion_of(run, o, 10);
    CHECK(v.sentence.find("if one had the 32 ports that a rail needs (they have 16)") != std::string::npos);
    for (const TechnologyFit& t : v.technologies) CHECK(t.fits == (t.technology->ports >= 32));
    o.ports = 4;
    CHECK(conclusion_of(run, o, 10).sentence.find("if one had") == std::string::npos);
}

TEST_CASE("operations that ports cannot serve are named") {
    ModelOptions m;
    m.layers = 4, m.tensor = 1, m.gpus_per_node = 1, m.data = 4, m.micro_batches = 2;
    JobFile job;
    job.workload = model_job(m);
    RunOptions o = options();
    o.best = false, o.try_ports = {2};
    const Run run = run_job(job, o);
    REQUIRE(run.unserved.matters());
    const Conclusion v = conclusion_of(run, o, 0.05);
    CHECK(v.answer == Conclusion::Answer::with_changes);
    for (const std::string& name : run.unserved.names) CHECK(v.sentence.find(name) != std::string::npos);
    CHECK(run.alternatives[0].unserved.names.empty());  // a ring has two neighbours
    REQUIRE(!v.changes.empty());
    CHECK(v.changes[0].find("With 2 ports a GPU circuits serve every operation") == 0);
}

TEST_CASE("what circuits cannot serve takes what a packet network beside them takes, in all variants") {
    ModelOptions m;
    m.layers = 4, m.tensor = 1, m.gpus_per_node = 1, m.data = 4, m.micro_batches = 2;
    JobFile job;
    job.workload = model_job(m);
    RunOptions o = options();
    o.ports = 1, o.try_ports = {0}, o.dark_ms = {0.01};  // a ring has two neighbours: all goes over packets
    const Run full = run_job(job, o);
    o.packet_gbits = o.out_gbits / 10;
    const Run run = run_job(job, o);
    CHECK(run.electrical.iteration_ms == full.electrical.iteration_ms);
    CHECK(full.points[0].demand.iteration_ms == doctest::Approx(full.electrical.iteration_ms).epsilon(0.01));
    CHECK(run.points[0].demand.iteration_ms > 1.5 * full.points[0].demand.iteration_ms);
    CHECK(run.points[0].provisioned.iteration_ms == doctest::Approx(run.points[0].demand.iteration_ms).epsilon(0.01));
    CHECK(run.points[0].best_ms == doctest::Approx(run.points[0].demand.iteration_ms).epsilon(0.01));
    CHECK(run.points[0].bound_ms <= run.points[0].best_ms);
    CHECK(run.split.iteration_ms == doctest::Approx(run.points[0].demand.iteration_ms).epsilon(0.01));
    CHECK_FALSE(run.unserved.matters());  // it was played
    CHECK(full.unserved.matters());
    o.packet_gbits = o.out_gbits;
    CHECK_THROWS_WITH_AS(run_job(job, o), doctest::Contains("--packet-gbits 400 is no less than --gbits 400"),
                         std::invalid_argument);
}

TEST_CASE("a static split leaves to packets what it has no ports for, and keeps circuits for what gains most") {
    RunOptions o = options();
    o.best = false, o.try_ports = {0}, o.dark_ms = {10}, o.ports = 2;
    const Run without = run_job(model(), o);
    REQUIRE(without.split.iteration_ms == 0);
    o.packet_gbits = 10;
    const Run slow = run_job(model(), o);
    o.packet_gbits = 200;
    const Run fast = run_job(model(), o);
    CHECK(slow.split.iteration_ms > fast.split.iteration_ms);
    CHECK(fast.split.iteration_ms >= fast.electrical.iteration_ms);
    const auto packets = [](const Run& run) {
        return std::ranges::count_if(run.split.circuits, [](const std::string& c) { return c.ends_with(": packets"); });
    };
    CHECK(packets(fast) > 0);
    CHECK(packets(slow) < static_cast<long>(slow.split.circuits.size()));
}

TEST_CASE("what ports cannot serve and hardly matters goes beside, and does not decide") {
    RunOptions o = options();
    o.best = false, o.try_ports = {0};
    const Run run = run_job(model(), o);  // a norm over all ranks needs two ports
    REQUIRE(run.unserved.names.size() == 1);
    CHECK(run.unserved.share < 1e-6);
    const Conclusion v = conclusion_of(run, o, 10);
    CHECK(v.answer == Conclusion::Answer::yes);
    bool said = false;
    for (const std::string& change : v.changes)
        said |= change.starts_with("Let " + run.unserved.names[0] + " go over a packet network");
    CHECK(said);
}

TEST_CASE("a slow rank slows all that wait for it, and seeds have a spread") {
    RunOptions o = options();
    o.answers = false, o.best = false;
    const double even = run_job(squares(), o).electrical.iteration_ms;
    o.slow = {slow_rank("1=1.5")};
    CHECK(run_job(squares(), o).electrical.iteration_ms == doctest::Approx(even + 7.5));
    o.slow = {slow_rank("4=1.5")};
    CHECK_THROWS_WITH_AS(run_job(squares(), o), doctest::Contains("ranks 0 to 3"), std::invalid_argument);
    for (const char* bad : {"", "1", "=2", "x=2", "1=", "1=0", "1=1e9", "1=2x"})
        CHECK_THROWS_AS(slow_rank(bad), std::invalid_argument);
    o.slow.clear();
    o.jitter = 0.2, o.seeds = 4;
    const Run run = run_job(squares(), o);
    REQUIRE(run.seeds.size() == 4);
    CHECK(run.seeds[0].electrical_ms == run.electrical.iteration_ms);
    CHECK(run.seeds[0].points[0].demand_ms == run.points[0].demand.iteration_ms);
    CHECK(run.seeds[1].electrical_ms != run.seeds[0].electrical_ms);
    const Spread s = spread_of(run.seeds, 0, &SeedTimes::At::demand_ms);
    CHECK(s.least < s.mean);
    CHECK(s.mean < s.most);
    CHECK(s.least > 0);
}
