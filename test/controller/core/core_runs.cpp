// Runs: what a grant covers beside its gang, and how it is taken back (docs/protocol.md, scenarios B to D, H and K).
#include <random>

#include "test/controller/core/job_words.h"

namespace opus::controller::test {
namespace {

const std::vector<std::size_t> kFirst{0, 1}, kSecond{1, 2};

// Every grant is a run without end.
struct RunWorld {
    World world;
    RunWorld(const Shape& shape, const Job& job, std::uint64_t seed = 1, TimeNs t_break_ns = 0,
             std::optional<TimeNs> rest_ns = 0)
        : world(shape, job, seed, options(t_break_ns, rest_ns)) {}
    static CoreOptions options(TimeNs t_break_ns, std::optional<TimeNs> rest_ns) {
        CoreOptions o;
        o.runs = true;
        o.t_break_ns = t_break_ns;
        o.rest_ns = rest_ns;
        return o;
    }
    const Counters& counters() const { return world.core->counters(); }
};

std::vector<LaunchSpec> many(std::size_t count, const LaunchSpec& launch) {
    return std::vector<LaunchSpec>(count, launch);
}

// B1: r0 starts its second launch under the run; r1's waits, by an event, for a launch with r2.
Job b1() {
    Job job;
    job.comms = {kFirst, kSecond};
    job.ranks = {rank_on(0, {on(0, {coll(0)}), on(0, {coll(0)})}),
                 rank_on(1, {on(0, {coll(0)}), on(1, {coll(1)}, {0}), on(0, {coll(0)}, {1})}),
                 rank_on(2, {on(0, {coll(1)})})};
    return job;
}

}  // namespace

TEST_CASE("inside a phase nobody asks: one demand a rank, whatever its length") {
    Job job;
    job.comms = {kFirst};
    for (NodeIndex n = 0; n < 2; ++n) job.ranks.push_back(rank_on(n, many(20, on(0, {coll(0)}))));
    RunWorld run({}, job);
    must_end(run.world);
    run.world.run_until(run.world.now + 10 * kMs);
    CHECK(run.counters().demands == 2);
    CHECK(run.counters().grants == 1);
    CHECK(run.counters().runs == 1);
    CHECK(run.world.run_starts == 38);
    CHECK(run.counters().revocations == 0);
}

TEST_CASE("a run covers no launch that needs other circuits") {
    Job job;
    job.comms = {kFirst, kSecond};
    job.ranks = {rank_on(0, {on(0, {coll(0)}), on(0, {coll(0)})}),
                 rank_on(1, {on(0, {coll(0)}), on(0, {coll(1)}), on(0, {coll(0)})}), rank_on(2, {on(0, {coll(1)})})};
    RunWorld run({.nodes = 3, .ports = 1}, job);
    must_end(run.world);
    CHECK(run.counters().revocations == 2);  // the first gang's, for the second's ports, and that one's
    CHECK(run.counters().reconfigurations == 3);
}

TEST_CASE("B1: a cut that cannot close, because the laggard waits for who wants the ports, is ended by suspension") {
    std::uint64_t suspensions = 0;  // mostly; the revocation may come before r0 starts it
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        REQUIRE(ends_without_opus(b1()));
        RunWorld run({.nodes = 3, .ports = 1}, b1(), seed);
        must_end(run.world);
        suspensions += run.counters().suspensions;
        CHECK(run.counters().revocations >= 1);
        CHECK(run.counters().passes == 0);
    }
    CHECK(suspensions >= 10);
}

TEST_CASE("K2: a laggard's other launches pass who has waited for its ports only so long") {
    Job job = b1();
    job.comms.push_back(kFirst);
    for (const std::size_t r : {0u, 1u})
        for (int i = 0; i < 200; ++i) job.ranks[r].program.push_back(lasting(5 * kMs, on(2, {coll(2)})));
    REQUIRE(ends_without_opus(job));
    RunWorld run({.nodes = 3, .ports = 1}, job);
    must_end(run.world);
    CHECK(run.world.start_time(2, 0) < 500 * kMs);  // 200 launches of 5 ms are a second
}

TEST_CASE("B3: members that have started different keys of a run go on to where none is half-started") {
    // The run covers p and q. r0 starts p; r1's order is q, p; r1 and r2 want their port.
    Job job;
    job.comms = {kFirst, kFirst, kFirst, kSecond};
    const std::size_t p = 0, q = 1, f = 2, g = 3;
    job.ranks = {rank_on(0, {on(0, {coll(f), coll(p), coll(q)}), on(0, {coll(p)}), later(10 * kMs, on(1, {coll(q)}, {0}))}),
                 rank_on(1, {on(0, {coll(f), coll(p), coll(q)}), later(20 * kMs, on(0, {coll(q)})), on(0, {coll(p)}),
                             later(6 * kMs, on(2, {coll(g)}, {0}))}),
                 rank_on(2, {on(0, {coll(g)})})};
    REQUIRE(ends_without_opus(job));
    RunWorld run({.nodes = 3, .ports = 1}, job, 1, 10'000 * kMs);
    must_end(run.world);
    CHECK(run.counters().revocations >= 1);
    CHECK(run.counters().suspensions == 0);
    CHECK(run.world.start_time(1, 3) > run.world.start_time(1, 2));  // g last: it found the port in use
}

TEST_CASE("C1: circuits stay until all have said what they started, whenever somebody asks for the ports") {
    for (TimeNs when = 0; when < 40 * kMs; when += kMs) {
        Job job;
        job.comms = {kFirst, kSecond};
        job.ranks = {rank_on(0, many(12, lasting(2 * kMs, on(0, {coll(0)})))),
                     rank_on(1, many(12, lasting(2 * kMs, on(0, {coll(0)})))),
                     rank_on(2, {later(25 * kMs + when, on(0, {coll(1)}))})};
        job.ranks[1].program.push_back(later(25 * kMs + when, on(1, {coll(1)})));
        RunWorld run({.nodes = 3, .ports = 1}, job, 1 + static_cast<std::uint64_t>(when));
        run.world.message_most_ns = 8 * kMs;
        must_end(run.world);  // the world sees every circuit that moves under a run, or under a launch
        CHECK(run.counters().suspensions == 0);
    }
}

TEST_CASE("D1: a launch over two sequences does not start under a run that covers one of them") {
    Job job;
    job.comms = {kFirst, {0, 2}};
    job.ranks = {rank_on(0, {on(0, {coll(0)}), on(0, {coll(0), coll(1)})}),
                 rank_on(1, {on(0, {coll(0)}), on(0, {coll(0)})}), rank_on(2, {later(60 * kMs, on(0, {coll(1)}))})};
    REQUIRE(ends_without_opus(job));
    RunWorld run({.nodes = 3, .ports = 2}, job);
    must_end(run.world);
    CHECK(run.counters().runs >= 1);
}

TEST_CASE("D2: who asks for a key that a peer has started unseen is not left waiting for it") {
    Job job;
    job.comms = {kFirst, kFirst};
    job.ranks = {rank_on(0, {on(0, {coll(0)}), on(0, {coll(0), coll(1)})}),
                 rank_on(1, {on(0, {coll(0)}), on(0, {coll(0)}), on(1, {coll(1)}, {1})})};
    job.ranks[1].program[2].after.clear();  // on a stream of its own
    REQUIRE(ends_without_opus(job));
    RunWorld run({}, job);
    must_end(run.world);
}

TEST_CASE("H: a controller that dies inside a run interrupts nobody in it, and finds the run again") {
    for (TimeNs when = 26 * kMs; when < 90 * kMs; when += 4 * kMs) {
        Job job;
        job.comms = {kFirst, kSecond};
        job.ranks = {rank_on(0, many(30, lasting(2 * kMs, on(0, {coll(0)})))),
                     rank_on(1, many(30, lasting(2 * kMs, on(0, {coll(0)})))), rank_on(2, {on(0, {coll(1)})})};
        job.ranks[1].program.push_back(later(70 * kMs, on(1, {coll(1)})));
        RunWorld run({.nodes = 3, .ports = 1}, job, 1 + static_cast<std::uint64_t>(when));
        run.world.at(when, [&run] { run.world.restart_controller(); });
        must_end(run.world);
        CHECK(run.counters().passes == 0);
    }
}

TEST_CASE("the light that is given up is that of the pair that was used less, asked for or not") {
    for (const bool left : {false, true}) {
        CAPTURE(left);
        Job job;
        job.comms = {{0, 1}, {0, 2}, {0, 3}};
        const std::size_t to_left = left ? 40 : 4, to_right = left ? 4 : 40;
        job.ranks = {rank_on(0, many(to_left, on(0, {coll(0)}))), rank_on(1, many(to_left, on(0, {coll(0)}))),
                     rank_on(2, many(to_right, on(0, {coll(1)}))), rank_on(3, {on(0, {coll(2)})})};
        auto& program = job.ranks[0].program;
        program.insert(program.end(), to_right, on(0, {coll(1)}));
        for (const std::size_t rank : {0, 1})
            job.ranks[rank].program.push_back(
                later(900 * kMs, on(0, {coll(0)})));  // its run ended when the other pair took a circuit
        program.push_back(on(0, {coll(2)}));
        RunWorld run({.nodes = 4, .ports = 2}, job);
        must_end(run.world);
        CHECK(run.counters().grants == 4);  // so they were asked for twice and once
        const std::string kept = left ? "n1.g0.p" : "n2.g0.p";
        const auto is_lit = [&](const char* index) {
            return run.world.core->ports().at(run.world.port((kept + index).c_str())).peer != kNone;
        };
        CHECK((is_lit("0") || is_lit("1")));
    }
}

TEST_CASE("K: of two groups that share a port none is left behind") {
    Job job;
    job.comms = {kFirst, kSecond};
    job.ranks = {rank_on(0, many(30, lasting(kMs, on(0, {coll(0)})))), rank_on(1, many(30, lasting(kMs, on(0, {coll(0)})))),
                 rank_on(2, many(30, lasting(kMs, on(0, {coll(1)}))))};
    for (int i = 0; i < 30; ++i) job.ranks[1].program.push_back(lasting(kMs, on(1, {coll(1)})));
    RunWorld run({.nodes = 3, .ports = 1}, job);
    must_end(run.world);
    // Who waits takes no run on ports that another waits for: turn and turn about.
    for (std::size_t i = 1; i < 30; ++i) {
        CHECK(run.world.start_time(0, i) < run.world.start_time(2, i) + 100 * kMs);
        CHECK(run.world.start_time(2, i) < run.world.start_time(0, i) + 100 * kMs);
    }
    CHECK(run.counters().suspensions == 0);
}

TEST_CASE("light at rest: a run on it has no end") {
    Job job;
    job.comms = {kFirst};
    for (NodeIndex n = 0; n < 2; ++n) job.ranks.push_back(rank_on(n, many(100, lasting(5 * kMs, on(0, {coll(0)})))));
    RunWorld run({}, job, 1, 0, 50 * kMs);
    must_end(run.world);
    CHECK(run.counters().runs == 1);
    CHECK(run.counters().demands < 40);
    CHECK(run.counters().revocations == 0);
}

TEST_CASE("a job that does nothing twice comes to rest too, after a longer time") {
    Job job;
    job.comms.assign(16, kFirst);
    std::mt19937_64 random(1);
    std::vector<LaunchSpec> program;
    for (int i = 0; i < 500; ++i) program.push_back(lasting(8 * kMs, on(0, {coll(random() % 16)})));
    for (NodeIndex n = 0; n < 2; ++n) job.ranks.push_back(rank_on(n, program));
    RunWorld run({.dark_ns = 2 * kMs}, job, 1, 0, std::nullopt);
    must_end(run.world);
    CHECK(run.counters().runs == 16);  // of each communicator
    CHECK(run.counters().demands > 2 * 50);
    CHECK(run.counters().demands < 2 * 300);
    CHECK(run.counters().revocations == 0);
}

TEST_CASE("a launch with several keys of one sequence starts in a run without end as well, in a lap or in none") {
    for (const std::uint64_t comms : {1, 16}) {
        CAPTURE(comms);
        Job job;
        job.comms.assign(comms, kFirst);
        std::mt19937_64 random(1);
        std::vector<LaunchSpec> program;
        for (int i = 0; i < 400; ++i) {
            const std::size_t comm = random() % comms;
            program.push_back(lasting(8 * kMs, on(0, {coll(comm), coll(comm)})));
        }
        for (NodeIndex n = 0; n < 2; ++n) job.ranks.push_back(rank_on(n, program));
        RunWorld run({.dark_ns = kMs}, job, 1, 0, std::nullopt);
        must_end(run.world);
        CHECK(run.counters().runs == comms);
        CHECK(run.counters().demands < 2 * 250);
        CHECK(run.counters().revocations == 0);
    }
}

TEST_CASE("a run without end is taken back when somebody wants its ports, and the next comes after a longer rest") {
    Job job;
    job.comms = {kFirst, kSecond};
    job.ranks = {rank_on(0, many(200, lasting(5 * kMs, on(0, {coll(0)})))),
                 rank_on(1, many(200, lasting(5 * kMs, on(0, {coll(0)})))),
                 rank_on(2, many(6, later(120 * kMs, on(0, {coll(1)}))))};
    for (int i = 0; i < 6; ++i) job.ranks[1].program.push_back(later(120 * kMs, on(1, {coll(1)})));
    RunWorld run({.nodes = 3, .ports = 1}, job, 1, 0, 50 * kMs);
    must_end(run.world);
    CHECK(run.counters().runs == 2);  // before the second comes, and after it has gone
    CHECK(run.counters().revocations == 1);
    CHECK(run.counters().suspensions == 0);
    CHECK(run.counters().demands > 100);
}

// Each rank sends to the next in one launch with what it receives; the last one comes late, so the others are granted without it.
Job around_a_ring(TimeNs late) {
    Job job;
    job.comms = {{0, 1, 2, 3}};
    for (std::size_t r = 0; r < 4; ++r) {
        job.ranks.push_back(rank_on(
            NodeIndex(r),
            many(60, lasting(kMs, on(0, {send(0, std::uint32_t(r + 1) % 4), recv(0, std::uint32_t(r + 3) % 4)})))));
        if (r == 3) job.ranks[r].program.front().delay_ns = late;
    }
    return job;
}

TEST_CASE("a run without end covers whole launches, of members that were granted and of those that come later") {
    for (const TimeNs late : {TimeNs{0}, 200 * kMs}) {
        CAPTURE(late);
        RunWorld run({.nodes = 4, .ports = 2}, around_a_ring(late));
        must_end(run.world);
        CHECK(run.counters().revocations == 0);
        CHECK(run.counters().demands <= 12);
        CHECK(run.world.run_starts >= 4 * 60 - 12);
    }
}

// Each rank exchanges with all others in one launch. Pairs are granted one by one, and come to rest one by one.
TEST_CASE(
    "where launches tie circuits to each other, a run without end waits for all of them, and begins with whole "
    "launches") {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        CAPTURE(seed);
        std::mt19937_64 random(seed);
        Job job;
        job.comms = {{0, 1, 2, 3}};
        for (std::uint32_t r = 0; r < 4; ++r) {
            std::vector<OpSpec> with_all;
            for (std::uint32_t other = 0; other < 4; ++other)
                if (other != r) with_all.insert(with_all.end(), {send(0, other), recv(0, other)});
            RankSpec rank = rank_on(NodeIndex{r}, many(300, lasting(kMs, on(0, with_all))));
            for (LaunchSpec& l : rank.program) l.delay_ns = static_cast<TimeNs>(random() % (2 * kMs));
            job.ranks.push_back(rank);
        }
        RunWorld run({.nodes = 4, .ports = 3}, job, seed, 0, 60 * kMs);
        must_end(run.world);
        CHECK(run.counters().revocations == 0);
        CHECK(run.counters().demands <= 4 * 100);
    }
}

}  // namespace opus::controller::test
