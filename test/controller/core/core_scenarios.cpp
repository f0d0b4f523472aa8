// The scenarios of docs/protocol.md: each breaks a protocol that lacks the rule it is there for.
#include "test/controller/core/job_words.h"

namespace opus::controller::test {
namespace {

const std::vector<std::size_t> kAll2{0, 1}, kAll3{0, 1, 2};

bool some_log_has(const World& world, const std::string& text) {
    for (const auto& line : world.logs)
        if (line.find(text) != std::string::npos) return true;
    return false;
}

}  // namespace

TEST_CASE("the simplest program: two nodes, one collective after the other") {
    Job job;
    job.comms = {kAll2};
    for (NodeIndex n = 0; n < 2; ++n)
        job.ranks.push_back(rank_on(n, {on(0, {coll(0)}), on(0, {coll(0)}), on(0, {coll(0)})}));
    World world({}, job);
    must_end(world);
    CHECK(world.core->counters().grants == 3);
    CHECK(world.core->counters().reconfigurations == 1);  // kept for the second and the third
    CHECK(world.core->counters().gangs_without_move == 2);
    CHECK(world.core->counters().suspensions == 0);
    CHECK(world.lit(world.port("n0.g0.p0"), world.port("n1.g0.p0")));
    CHECK(world.lit(world.port("n0.g0.p1"), world.port("n1.g0.p1")));  // both ports are used
}

TEST_CASE("a one-sided operation has its light, and waits for nobody: its peer makes no call") {
    Job job;
    job.comms = {{0, 1, 2}};
    job.ranks = {rank_on(0, {on(0, {put(0, 1)}), on(0, {send(0, 2)}), on(0, {put(0, 1)})}), rank_on(1, {}),
                 rank_on(2, {on(0, {recv(0, 0)}), on(0, {put(0, 1)})})};
    World world({.nodes = 3, .ports = 1}, job);
    must_end(world);
    CHECK(world.core->counters().suspensions == 0);
}

TEST_CASE("each member is connected with each more than once") {
    Job job;
    job.comms = {{0, 1, 2}};
    for (NodeIndex n = 0; n < 3; ++n)
        job.ranks.push_back(rank_on(n, {on(0, {conn_mesh(0)}), on(0, {conn(0)}), on(0, {coll(0)}), on(0, {conn_mesh(0)})}));
    World world({.nodes = 3, .ports = 2}, job);
    must_end(world);
    CHECK(world.core->counters().grants == 4);
    for (const auto& [a, b] : {std::pair("n0", "n1"), std::pair("n1", "n2"), std::pair("n0", "n2")}) {
        const auto port = [&](const char* node, const char* p) { return world.port(std::string(node) + ".g0." + p); };
        CHECK((world.lit(port(a, "p0"), port(b, "p0")) || world.lit(port(a, "p0"), port(b, "p1")) ||
               world.lit(port(a, "p1"), port(b, "p0")) || world.lit(port(a, "p1"), port(b, "p1"))));
    }
}

TEST_CASE("A1: a group that sends and receives meets a peer that does one after the other") {
    Job job;
    job.comms = {kAll2};
    job.ranks = {rank_on(0, {on(0, {send(0, 1), recv(0, 1)})}), rank_on(1, {on(0, {recv(0, 0)}), on(0, {send(0, 0)})})};
    REQUIRE(ends_without_opus(job));
    for (const std::uint32_t ports : {1u, 2u}) {
        World world({.nodes = 2, .ports = ports}, job);
        must_end(world);
        CHECK(world.core->counters().suspensions == 0);
    }
}

TEST_CASE("A2: a launch that one in flight waits for passes those that are queued") {
    // r0: group{a, b} to r2; r2 receives a, then b; r1 and r2 want each other meanwhile, with one port each.
    Job job;
    job.comms = {kAll3, {1, 2}};
    job.ranks = {rank_on(0, {lasting(50 * kMs, on(0, {send(0, 2), send(0, 2)}))}),
                 rank_on(1, {later(10 * kMs, on(0, {send(1, 1)}))}),
                 rank_on(2, {lasting(50 * kMs, on(0, {recv(0, 0)})), on(0, {recv(0, 0)}), on(1, {recv(1, 0)})})};
    REQUIRE(ends_without_opus(job));
    World world({.nodes = 3, .ports = 1}, job);
    must_end(world);
    CHECK(world.core->counters().suspensions == 0);
    CHECK(world.start_time(2, 1) < world.start_time(2, 2));
}

TEST_CASE("a gang that grows while it waits reserves ports for a pair that has light on ports it wished for others") {
    // n1 and n2 are joined by the ports that are cheapest for each of them. r3 and r1 wait for a ring of n0, n1 and n2;
    // r2 joins them, and with it the pair n1-n2. What comes afterwards and is lit must not take the other port of n2.
    Job job;
    job.comms = {{0, 1, 2, 3}, {1, 2}, {0, 1, 2}, {0, 2}};
    const LaunchSpec ring = lasting(400 * kMs, on(0, {coll(2)}));
    job.ranks = {rank_on(0, {ring, later(520 * kMs, on(2, {send(3, 1)}))}),
                 rank_on(1, {on(0, {coll(1)}), ring, later(420 * kMs, on(1, {send(0, 3)})), on(1, {send(0, 2)})}),
                 rank_on(2, {on(0, {coll(1)}), ring, later(450 * kMs, on(1, {send(0, 3), recv(0, 1)})),
                             later(520 * kMs, on(2, {recv(3, 0)}))}),
                 rank_on(3, {later(420 * kMs, on(1, {recv(0, 1), recv(0, 2)}))})};
    REQUIRE(ends_without_opus(job));
    World world({.nodes = 4, .ports = 2}, job);
    must_end(world);
    CHECK(world.start_time(3, 0) < world.start_time(0, 1));
}

TEST_CASE("A3: what only exclusive ports make impossible is suspended and brought back") {
    Job job;
    job.comms = {kAll3};
    job.ranks = {rank_on(0, {on(0, {send(0, 1)})}),
                 rank_on(1, {on(0, {send(0, 2)}), on(0, {recv(0, 0)}), on(0, {send(0, 2)})}),
                 rank_on(2, {on(0, {recv(0, 1), recv(0, 1)})})};
    REQUIRE(ends_without_opus(job));
    World world({.nodes = 3, .ports = 1}, job);
    must_end(world);
    CHECK(world.core->counters().suspensions >= 1);
    CHECK(some_log_has(world, "suspended n2.r2 launch 0"));
    World wide({.nodes = 3, .ports = 2}, job);
    must_end(wide);
}

TEST_CASE("A3: what is suspended and brought back each time its peer has other work still ends") {
    Job job;
    job.comms = {kAll3};
    job.ranks = {rank_on(0, {on(0, {send(0, 1)}), on(0, {send(0, 1)}), on(0, {send(0, 1)})}),
                 rank_on(1, {on(0, {send(0, 2)}), on(0, {recv(0, 0)}), on(0, {recv(0, 0)}), on(0, {recv(0, 0)}),
                             on(0, {send(0, 2)})}),
                 rank_on(2, {on(0, {recv(0, 1), recv(0, 1)})})};
    REQUIRE(ends_without_opus(job));
    World world({.nodes = 3, .ports = 1}, job);
    must_end(world);
}

TEST_CASE("a late peer is no fault: its launch in flight is not suspended while nobody wants its ports") {
    Job job;
    job.comms = {kAll2};
    job.ranks = {rank_on(0, {on(0, {send(0, 1), send(0, 1)})}),
                 rank_on(1, {on(0, {recv(0, 0)}), later(60'000 * kMs, on(0, {recv(0, 0)}))})};
    World world({.nodes = 2, .ports = 1}, job);
    must_end(world);
    CHECK(world.core->counters().suspensions == 0);
    CHECK(world.core->counters().passes == 0);
}

TEST_CASE(
    "a launch that all have started, and that waits for kernels nobody sees, is suspended for who they wait for") {
    // The send's kernel comes after one of an intra-node communicator that shares its resources; that one waits for
    // what rank 2 does after it has met rank 1.
    Job job;
    job.comms = {kAll3, {1, 2}};
    job.ranks = {rank_on(0, {on(0, {send(0, 1)})}), rank_on(1, {on(0, {recv(0, 0)}), later(20 * kMs, on(1, {coll(1)}))}),
                 rank_on(2, {later(20 * kMs, on(0, {coll(1)}))})};
    job.ranks[0].program[0].behind = {{2, 0}};
    REQUIRE(ends_without_opus(job));
    World world({.nodes = 3, .ports = 1}, job);
    must_end(world);
    CHECK(world.core->counters().suspensions >= 1);
    CHECK(world.core->counters().passes == 0);
}

TEST_CASE("what does not end for 10 s, whatever the reason, gives its ports to others, unless it lasts by its nature") {
    constexpr TimeNs kSecond = 1'000 * kMs;
    for (const bool lasts : {false, true}) {
        CAPTURE(lasts);
        Job job;
        job.comms = {{0, 1}, {1, 2}};
        const auto first = [&](OpSpec transfer) {
            return lasting(25 * kSecond, on(0, {lasts ? conn_mesh(0) : transfer}));
        };
        job.ranks = {rank_on(0, {first(send(0, 1))}), rank_on(1, {first(recv(0, 0)), later(20 * kMs, on(1, {coll(1)}))}),
                     rank_on(2, {later(20 * kMs, on(0, {coll(1)}))})};
        REQUIRE(ends_without_opus(job));
        World world({.nodes = 3, .ports = 1}, job);
        must_end(world);
        CHECK((world.core->counters().suspensions == 0) == lasts);
        CHECK((world.start_time(2, 0) > 25 * kSecond) == lasts);
        CHECK(world.core->counters().passes == 0);
    }
}

TEST_CASE("what is suspended again and again with nobody having come to it makes way sooner each time") {
    // As above, and rank 0 waits for many launches of rank 2, for each of which its send is in the way once more.
    constexpr std::size_t kLaunches = 12;
    Job job;
    job.comms = {kAll3, {1, 2}};
    job.ranks = {rank_on(0, {on(0, {send(0, 1)})}), rank_on(1, {on(0, {recv(0, 0)})}), rank_on(2, {})};
    for (std::size_t i = 0; i < kLaunches; ++i) {
        job.ranks[1].program.push_back(later(i == 0 ? 20 * kMs : 0, on(1, {coll(1)})));
        job.ranks[2].program.push_back(later(i == 0 ? 20 * kMs : 0, on(0, {coll(1)})));
    }
    job.ranks[0].program[0].behind = {{2, kLaunches - 1}};
    REQUIRE(ends_without_opus(job));
    World world({.nodes = 3, .ports = 1, .dark_ns = 10 * kMs}, job);
    must_end(world);
    CHECK(world.core->counters().suspensions >= kLaunches);
    CHECK(world.start_time(2, kLaunches - 1) < kLaunches * 100 * kMs);  // each once would be after 160 ms and two moves
}

TEST_CASE("what is suspended is not brought back for what it has sent: only when somebody comes to it") {
    // A pipeline's stage: it sends to rank 1 and receives from it in one group. Rank 1 has much to do with rank 2 before.
    constexpr std::size_t kLaunches = 12;
    Job job;
    job.comms = {kAll3, {1, 2}};
    job.ranks = {rank_on(0, {on(0, {send(0, 1), recv(0, 1)})}), rank_on(1, {on(0, {recv(0, 0)})}), rank_on(2, {})};
    for (std::size_t i = 0; i < kLaunches; ++i) {
        job.ranks[1].program.push_back(later(5 * kMs, on(0, {coll(1)})));
        job.ranks[2].program.push_back(on(0, {coll(1)}));
    }
    job.ranks[1].program.push_back(on(0, {send(0, 0)}));
    REQUIRE(ends_without_opus(job));
    World world({.nodes = 3, .ports = 1, .dark_ns = 10 * kMs}, job);
    must_end(world);
    CHECK(world.core->counters().suspensions == 1);
}

TEST_CASE("by plan a launch that has sent and waits makes way at once") {
    // As above, again and again: rank 1 has one port, for rank 0, for rank 2 while rank 0 waits, and for rank 0.
    constexpr std::size_t kLaps = 60;
    Job job;
    job.comms = {kAll3, {1, 2}};
    job.ranks = {rank_on(0, {}), rank_on(1, {}), rank_on(2, {})};
    for (std::size_t i = 0; i < kLaps; ++i) {
        job.ranks[0].program.push_back(later(5 * kMs, on(0, {send(0, 1), recv(0, 1)})));
        job.ranks[1].program.push_back(on(0, {recv(0, 0)}));
        job.ranks[1].program.push_back(later(30 * kMs, on(0, {coll(1)})));
        job.ranks[1].program.push_back(later(30 * kMs, on(0, {send(0, 0)})));
        job.ranks[2].program.push_back(on(0, {coll(1)}));
    }
    REQUIRE(ends_without_opus(job));
    TimeNs took[2];
    for (const bool provision : {false, true}) {
        CoreOptions o;
        o.provision = provision;
        World world({.nodes = 3, .ports = 1, .dark_ns = 10 * kMs}, job, 1, o);
        must_end(world);
        CHECK(world.core->counters().suspensions >= kLaps - 1);
        took[provision] = world.now;
    }
    CHECK(took[1] < took[0] - static_cast<TimeNs>(kLaps) / 2 * 20 * kMs);  // in most laps both moves are hidden
}

TEST_CASE("a gang for which others were suspended is not overtaken when they become part of it") {
    // Rank 0 sends twice to rank 1, over all ports between the two nodes, and the second receive comes late: it needs
    // one of these ports for n2 as well. The ring of n1, n2 and n3 comes after it.
    Job job;
    job.comms = {{0, 1, 2}, {3, 4, 5}};
    job.ranks = {rank_on(0, {on(0, {send(0, 1), send(0, 1)})}),
                 rank_on(1, {on(0, {recv(0, 0)}), later(200 * kMs, on(0, {recv(0, 0), recv(0, 2)}))}),
                 rank_on(2, {later(2'000 * kMs, on(0, {send(0, 1)}))}),
                 rank_on(1, {later(390 * kMs, on(0, {coll(1)}))}),
                 rank_on(2, {later(390 * kMs, on(0, {coll(1)}))}),
                 rank_on(3, {later(390 * kMs, on(0, {coll(1)}))})};
    REQUIRE(ends_without_opus(job));
    World world({.nodes = 4, .ports = 2}, job);
    must_end(world);
    CHECK(world.core->counters().suspensions >= 1);
    CHECK(world.start_time(1, 1) < world.start_time(3, 0));
}

TEST_CASE(
    "what waits for a pair that another gang has joined meanwhile goes, whatever is in the way where it wanted it") {
    // The ports of n1 lead to n2, for long, and to n3. Two launches of n0 and n1 wait: the first gets n3's port, and
    // the second, which has reserved n2's, has light by that.
    Job job;
    job.comms = {{0, 1, 2, 3}, {0, 1}, {0, 1}, {1, 2}, {1, 3}};
    job.ranks = {
        rank_on(0, {lasting(3'000 * kMs, later(300 * kMs, on(0, {coll(1)}))), later(350 * kMs, on(1, {coll(2)}))}),
        rank_on(1, {lasting(200 * kMs, on(0, {recv(0, 2), recv(0, 3)})),
                    lasting(9'000 * kMs, later(100 * kMs, on(1, {coll(3)}))),
                    lasting(400 * kMs, later(100 * kMs, on(2, {coll(4)}))),
                    lasting(3'000 * kMs, later(300 * kMs, on(3, {coll(1)}))), later(350 * kMs, on(4, {coll(2)}))}),
        rank_on(2, {lasting(200 * kMs, on(0, {send(0, 1)})), lasting(9'000 * kMs, later(100 * kMs, on(1, {coll(3)})))}),
        rank_on(3, {lasting(200 * kMs, on(0, {send(0, 1)})), lasting(400 * kMs, later(100 * kMs, on(1, {coll(4)})))})};
    REQUIRE(ends_without_opus(job));
    World world({.nodes = 4, .ports = 2}, job);
    must_end(world);
    CHECK(world.start_time(0, 0) > 600 * kMs);
    CHECK(world.start_time(0, 1) < world.start_time(0, 0) + 100 * kMs);
    CHECK(world.core->counters().suspensions == 0);
}

TEST_CASE("two gangs that wait for one pair have all its ports turned at once, and start together") {
    Job job;
    job.comms = {{0, 2}, {1, 3}, {0, 1}, {0, 1}};
    const auto busy = [](std::size_t comm) { return lasting(700 * kMs, on(0, {coll(comm)})); };
    const auto first = lasting(300 * kMs, later(400 * kMs, on(1, {coll(2)}))), second = later(450 * kMs, on(2, {coll(3)}));
    job.ranks = {rank_on(0, {busy(0), first, second}), rank_on(1, {busy(1), first, second}), rank_on(2, {busy(0)}),
                 rank_on(3, {busy(1)})};
    World world({.nodes = 4, .ports = 2}, job);
    must_end(world);
    CHECK(world.start_time(0, 1) > 800 * kMs);
    CHECK(world.start_time(0, 2) < world.start_time(0, 1) + 10 * kMs);  // no dark time later
    CHECK(world.core->counters().reconfigurations == 2);
}

TEST_CASE(
    "launches that wait for late peers take their circuits from each other ever more seldom, and end when these come") {
    Job job;
    job.comms = {{0, 1, 2}, {0, 3, 4}};
    const auto early = [](std::size_t comm) { return on(0, {send(comm, 0)}); };
    const auto late = [](std::size_t comm) { return later(10'000 * kMs, on(0, {send(comm, 0)})); };
    job.ranks = {rank_on(0, {on(0, {recv(0, 1), recv(0, 2)}), on(1, {recv(1, 1), recv(1, 2)})}), rank_on(1, {early(0)}),
                 rank_on(2, {late(0)}), rank_on(3, {early(1)}), rank_on(4, {late(1)})};
    REQUIRE(ends_without_opus(job));
    World world({.nodes = 5, .ports = 2}, job);
    must_end(world);
    CHECK(world.core->counters().suspensions > 4);  // it is tried
    CHECK(world.core->counters().suspensions < 60);
    CHECK(world.now < 10'500 * kMs);
}

TEST_CASE("D1: a launch over two sequences starts when the circuits of both are up") {
    // Rank 0 fuses a collective with n1 and one with n2; their own launches are apart.
    Job job;
    job.comms = {{0, 1}, {0, 2}};
    job.ranks = {rank_on(0, {on(0, {coll(0), coll(1)})}), rank_on(1, {on(0, {coll(0)})}),
                 rank_on(2, {later(1'000 * kMs, on(0, {coll(1)}))})};
    REQUIRE(ends_without_opus(job));
    World world({.nodes = 3, .ports = 2}, job);
    must_end(world);
    // The second key was not full when the first gang started; its circuit was made all the same.
    CHECK(world.start_time(0, 0) < 1'000 * kMs);
    CHECK(world.core->counters().reconfigurations == 1);
}

TEST_CASE("a launch that holds up operations which nobody sees is complete as it is") {
    // Its peer may wait for those before it comes to the key that is seen.
    Job job;
    job.comms = {kAll2};
    job.ranks = {rank_on(0, {on(0, {coll(0)})}), rank_on(1, {later(1'000 * kMs, on(0, {coll(0)}))})};
    job.ranks[0].program[0].mixed = true;
    World world({.nodes = 2, .ports = 1}, job);
    must_end(world);
    CHECK(world.start_time(0, 0) < 200 * kMs);
    CHECK(world.core->counters().reconfigurations == 1);  // on circuits of its own
    CHECK(world.core->counters().passes == 0);
}

TEST_CASE("G1: connections are made under a key of their own, before the launch that needs them") {
    // L of comm 1 is ahead in the stream; the first use of comm 0 connects on the host meanwhile.
    Job job;
    job.comms = {kAll2, kAll2};
    for (NodeIndex n = 0; n < 2; ++n)
        job.ranks.push_back(rank_on(n, {lasting(200 * kMs, on(0, {coll(1)})), on(7, {conn(0)}), on(0, {coll(0)})}));
    World world({.nodes = 2, .ports = 1}, job);
    must_end(world);
    CHECK(world.start_time(0, 1) < world.start_time(0, 0) + 100 * kMs);  // beside it, on the same circuit
}

TEST_CASE("G2: one communicator on two streams is demanded in its own order") {
    Job job;
    job.comms = {kAll2, kAll2};
    // a on stream 0 waits for D (stream 2); b is on stream 1.
    for (NodeIndex n = 0; n < 2; ++n)
        job.ranks.push_back(rank_on(n, {lasting(100 * kMs, on(2, {coll(1)})), on(0, {coll(0)}, {0}), on(1, {coll(0)})}));
    World world({.nodes = 2, .ports = 1}, job);
    must_end(world);
    CHECK(world.start_time(0, 1) < world.start_time(0, 2));
}

TEST_CASE("I: one of two rails fails half-way: nothing is granted, nothing is kept from others") {
    Job job;
    // Ranks 0..3: two nodes of two GPUs, one communicator over both rails. Ranks 4, 5: rail 1 only, later.
    job.comms = {{0, 1, 2, 3}, {4, 5}};
    for (NodeIndex n = 0; n < 2; ++n)
        for (std::uint32_t g = 0; g < 2; ++g) job.ranks.push_back(rank_on(n, {on(0, {coll(0)})}, g));
    for (NodeIndex n = 0; n < 2; ++n) job.ranks.push_back(rank_on(n, {later(5 * kMs, on(0, {coll(1)}))}, 1));
    World world({.nodes = 2, .gpus = 2, .ports = 1}, job);
    int failures = 0;
    world.switch_fault = [&](const Program& p) {
        if (p.sw != 0 || failures >= 2) return std::pair{DriverError::none, std::size_t{0}};
        ++failures;
        return std::pair{DriverError::refused, std::size_t{0}};
    };
    must_end(world);
    CHECK(failures == 2);
    CHECK(world.start_time(4, 0) < world.start_time(0, 0));  // the healthy rail was free meanwhile
    CHECK(world.start_time(5, 0) < world.start_time(1, 0));
    CHECK(world.core->counters().switch_errors == 2);
}

TEST_CASE("J: a hold that expires on one member decides for its gang and keeps its key") {
    Job job;
    job.comms = {kAll2};
    job.ranks = {rank_on(0, {on(0, {coll(0)})}), rank_on(1, {later(20 * kMs, on(0, {coll(0)}))})};
    World world({.nodes = 2, .ports = 1}, job);
    world.message_least_ns = world.message_most_ns = 5 * kMs;  // the peer asks before it hears of it
    world.at(20 * kMs, [&] { world.open_gates(0); });
    must_end(world);
    CHECK(world.passed(0, 0));
    CHECK(world.passed(1, 0));  // the peer comes later, meets it, on the same terms
    CHECK(world.core->counters().passes == 2);
    CHECK(world.core->groups().front().verdict == Verdict::degraded);
    CHECK(world.lit(world.port("n0.g0.p0"), world.port("n1.g0.p0")));  // circuits are brought to passed launches
}

TEST_CASE("J: the members that wait already are decided with the one whose hold expired") {
    Job job;
    job.comms = {kAll2, {1, 2}};
    // Rank 1's port is busy for long: the gang of comm 0 is complete and waits.
    job.ranks = {rank_on(0, {on(0, {coll(0)})}),
                 rank_on(1, {lasting(5'000 * kMs, on(1, {coll(1)})), later(100 * kMs, on(0, {coll(0)}))}),
                 rank_on(2, {lasting(5'000 * kMs, on(1, {coll(1)}))})};
    World world({.nodes = 3, .ports = 1}, job);
    world.at(1'000 * kMs, [&] {
        CHECK_FALSE(world.started(1, 1));
        world.open_gates(0);
    });
    world.at(1'010 * kMs, [&] { CHECK(world.passed(1, 1)); });
    must_end(world);
    CHECK(world.core->counters().passes == 2);
}

TEST_CASE("hold: a complete gang that is not granted is passed for all its members") {
    Job job;
    job.comms = {kAll2, {1, 2}};
    job.ranks = {rank_on(0, {on(0, {coll(0)})}),
                 rank_on(1, {lasting(5'000 * kMs, on(1, {coll(1)})), later(100 * kMs, on(0, {coll(0)}))}),
                 rank_on(2, {lasting(5'000 * kMs, on(1, {coll(1)}))})};
    World world({.nodes = 3, .ports = 1}, job);
    world.hold_ms = 500;
    world.at(550 * kMs, [&] { CHECK_FALSE(world.started(0, 0)); });
    world.at(700 * kMs, [&] {
        CHECK(world.passed(0, 0));
        CHECK(world.passed(1, 1));
    });
    must_end(world);  // its circuits come when the others are done
    CHECK(world.core->counters().passes == 2);
}

TEST_CASE("hold: one member whose policy is abort decides for all") {
    Job job;
    job.comms = {kAll2, {1, 2}};
    job.ranks = {rank_on(0, {on(0, {coll(0)})}),
                 rank_on(1, {lasting(2'000 * kMs, on(1, {coll(1)})), later(100 * kMs, on(0, {coll(0)}))}),
                 rank_on(2, {lasting(2'000 * kMs, on(1, {coll(1)}))})};
    World world({.nodes = 3, .ports = 1}, job);
    world.hold_ms = 500;
    world.policy = Policy::abort;
    world.run_until(1'000 * kMs);
    CHECK(clean(world));
    CHECK(world.core->counters().aborts == 2);
    CHECK(world.core->counters().passes == 0);
}

TEST_CASE("hold: a peer whose manager is gone is a fault, and holds nobody longer than the hold time") {
    Job job;
    job.comms = {kAll2};
    job.ranks = {rank_on(0, {later(100 * kMs, on(0, {coll(0)}))}), rank_on(1, {later(60'000 * kMs, on(0, {coll(0)}))})};
    World world({.nodes = 2, .ports = 1}, job);
    world.hold_ms = 500;
    world.at(50 * kMs, [&] { world.drop_node(1, false); });
    world.at(400 * kMs, [&] { CHECK_FALSE(world.started(0, 0)); });
    world.run_until(700 * kMs);
    CHECK(world.passed(0, 0));
    CHECK(world.core->counters().passes == 1);  // of its own accord the manager would have passed it, too, a moment later
    CHECK(world.core->groups().front().verdict == Verdict::degraded);
}

TEST_CASE("hold: a peer whose manager comes back in time is waited for") {
    Job job;
    job.comms = {kAll2};
    job.ranks = {rank_on(0, {later(100 * kMs, on(0, {coll(0)}))}), rank_on(1, {later(60'000 * kMs, on(0, {coll(0)}))})};
    World world({.nodes = 2, .ports = 1}, job);
    world.hold_ms = 500;
    world.at(50 * kMs, [&] { world.drop_node(1); });
    must_end(world);
    CHECK(world.core->counters().passes == 0);
}

TEST_CASE("hold: a manager that nobody needed while it was gone too long has cost nothing") {
    // A communicator degrades for those that it holds. Nobody waited for n1 before its manager was back.
    Job job;
    job.comms = {kAll2};
    for (NodeIndex n = 0; n < 2; ++n)
        job.ranks.push_back(rank_on(n, {on(0, {coll(0)}), later(5'000 * kMs, on(0, {coll(0)}))}));
    World world({.nodes = 2, .ports = 1}, job);
    world.hold_ms = 500;
    world.at(1'000 * kMs, [&] { world.drop_node(1, false); });
    world.at(3'000 * kMs, [&] { world.connect_node(1); });
    must_end(world);
    CHECK(world.core->counters().passes == 0);
    CHECK(world.core->groups().front().verdict == Verdict::enforced);
}

TEST_CASE("hold: who comes to wait for a node without a manager later than the hold time is not held") {
    Job job;
    job.comms = {kAll2};
    job.ranks = {rank_on(0, {on(0, {coll(0)}), later(5'000 * kMs, on(0, {coll(0)}))}),
                 rank_on(1, {on(0, {coll(0)}), later(60'000 * kMs, on(0, {coll(0)}))})};
    World world({.nodes = 2, .ports = 1}, job);
    world.hold_ms = 500;
    world.at(1'000 * kMs, [&] { world.drop_node(1, false); });
    world.run_until(6'000 * kMs);
    CHECK(clean(world));
    CHECK(world.passed(0, 1));
    CHECK(world.core->counters().passes == 1);
}

TEST_CASE("hold: a switch that takes minutes is waited for by those who have not said how long they hold") {
    // Two minutes; and one, where the second change set fails and is made again.
    for (const TimeNs dark_ns : {120'000 * kMs, 60'000 * kMs}) {
        const bool fails = dark_ns == 60'000 * kMs;
        Job job;
        job.comms = {kAll2, {1, 2}};
        job.ranks = {rank_on(0, {on(0, {coll(0)})}), rank_on(1, {on(0, {coll(0)})}), rank_on(2, {})};
        if (fails)
            for (const std::size_t r : {1, 2}) job.ranks[r].program.push_back(on(0, {coll(1)}));
        World world({.nodes = 3, .ports = 1, .dark_ns = dark_ns}, job);
        world.hold_ms = 0;
        world.switch_fault = [&](const Program&) {
            return std::pair{fails && world.programs == 2 ? DriverError::timeout : DriverError::none, std::size_t{0}};
        };
        const bool ended = world.run(690'000 * kMs);
        CHECK(clean(world));
        if (!ended) MESSAGE(world.stuck());
        CHECK(ended);
        CHECK(world.core->counters().passes == 0);
        CHECK(world.core->counters().switch_errors == fails);
        CHECK(world.core->groups().front().verdict == Verdict::enforced);
    }
}

TEST_CASE("hold: one that is shorter than the switch needs is said at once, with both numbers, and counts") {
    Job job;
    job.comms = {kAll2};
    for (NodeIndex n = 0; n < 2; ++n) job.ranks.push_back(rank_on(n, {on(0, {coll(0)})}));
    World world({.nodes = 2, .ports = 1, .dark_ns = 120'000 * kMs}, job);
    world.run_until(100 * kMs);
    CHECK(std::count_if(world.logs.begin(), world.logs.end(), [](const std::string& line) {
              return line.find("OPUS_HOLD_MS=30000, and ocs-r0 needs 960100") != std::string::npos;
          }) == 1);
    world.run_until(40'000 * kMs);
    CHECK(world.passed(0, 0));
    CHECK(world.core->counters().passes == 2);
    CHECK(std::any_of(world.logs.begin(), world.logs.end(), [](const std::string& line) {
        return line.find("OPUS_HOLD_MS=30000 is less than the 960100 that ocs-r0 needs") != std::string::npos;
    }));
}

TEST_CASE("hold never counts a peer that is late") {
    Job job;
    job.comms = {kAll2};
    job.ranks = {rank_on(0, {on(0, {coll(0)})}), rank_on(1, {later(60'000 * kMs, on(0, {coll(0)}))})};
    World world({.nodes = 2, .ports = 1}, job);
    world.hold_ms = 500;
    must_end(world);
    CHECK(world.core->counters().passes == 0);
}

}  // namespace opus::controller::test
