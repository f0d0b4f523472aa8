// A rank dies, in every state that a launch of it can be in: its peers see what NCCL makes of that, everybody else
// goes on, and once its job is gone nothing holds a port.
#include "test/controller/core/job_words.h"
#include "test/controller/core/random_job.h"

namespace opus::controller::test {
namespace {

constexpr std::size_t kRounds = 4;
constexpr std::size_t kDies = 0, kPeer = 1, kStranger = 2, kFourth = 3;

// The peer meets the one that dies on one stream and the stranger on another, over its only port; stranger and fourth
// meet as well. The launches of stream 1 do not need the dead.
Job rivals() {
    Job job;
    job.comms = {{kDies, kPeer}, {kPeer, kStranger}, {kStranger, kFourth}};
    std::vector<LaunchSpec> with_dead, with_peer, with_stranger;
    for (std::size_t i = 0; i < kRounds; ++i) {
        with_dead.push_back(lasting(15 * kMs, on(0, {coll(0)})));
        with_peer.push_back(lasting(15 * kMs, on(1, {coll(1)})));
        with_stranger.push_back(lasting(15 * kMs, on(2, {coll(2)})));
    }
    const auto both = [](std::vector<LaunchSpec> x, const std::vector<LaunchSpec>& y) {
        x.insert(x.end(), y.begin(), y.end());
        return x;
    };
    job.ranks = {rank_on(0, with_dead), rank_on(1, both(with_dead, with_peer)),
                 rank_on(2, both(with_peer, with_stranger)), rank_on(3, with_stranger)};
    return job;
}

void no_port_is_held(World& world) {
    for (const PortStatus& p : world.core->ports()) {
        CAPTURE(world.fabric.ports[p.port].name);
        CHECK(p.holders.empty());
        CHECK((p.use == PortUse::dark || p.use == PortUse::idle));
    }
}

// Was the launch of the dying rank that it had got to already started?
struct Seen {
    std::uint64_t waiting = 0, running = 0, between = 0;
    std::uint64_t recorded = 0, demanded = 0, granted = 0;  // of those that wait: not asked for, asked for, let go unheard
    void look(const World& world) {
        for (std::size_t l = 0; l < kRounds; ++l) {
            if (world.done(kDies, l)) continue;
            if (world.started(kDies, l))
                ++running;
            else if (l == 0 || world.done(kDies, l - 1))
                ++waiting, ++(world.granted(kDies, l) ? granted : world.asked(kDies, l) ? demanded : recorded);
            return;
        }
        ++between;
    }
};

void die_at(TimeNs at, std::uint64_t seed, CoreOptions options, Seen& seen) {
    CAPTURE(seed);
    CAPTURE(at);
    options.rest_ns = 0;
    World world({.nodes = 4, .ports = 1}, rivals(), seed, options);
    world.message_most_ns = 10 * kMs;
    world.at(at, [&] {
        seen.look(world);
        world.kill_rank(kDies);
    });
    world.run_until(5'000 * kMs);
    for (std::size_t l = 0; l < kRounds; ++l) {
        CAPTURE(l);
        CHECK(world.done(kPeer, kRounds + l));
        CHECK(world.done(kStranger, l));
        CHECK(world.done(kFourth, l));
    }
    for (const std::size_t r : {kPeer, kStranger, kFourth}) world.kill_rank(r);  // as launchers do
    world.run_until(10'000 * kMs);
    CHECK(clean(world));
    no_port_is_held(world);
    CHECK(world.core->groups().empty());
}

// Nobody hears of the rank.
void restart_and_kill(World& world, std::size_t rank) {
    world.at(500 * kMs, [&world, rank] {
        world.restart_controller();
        world.kill_rank(rank);
    });
}

}  // namespace

TEST_CASE("a rank that dies, waiting or in flight, holds up nobody who does not need it") {
    REQUIRE(ends_without_opus(rivals()));
    Seen seen;
    for (std::uint64_t seed = 1; seed <= 4; ++seed)
        for (TimeNs at = 1 * kMs; at < 700 * kMs; at += 11 * kMs) die_at(at, seed, {}, seen);
    CHECK(seen.waiting > 10);
    CHECK(seen.running > 10);
    CHECK(seen.recorded > 0);
    CHECK(seen.demanded > 10);
    CHECK(seen.granted > 0);
}

TEST_CASE("and so where launches start inside runs") {
    CoreOptions options;
    options.runs = true;
    Seen seen;
    for (std::uint64_t seed = 1; seed <= 4; ++seed)
        for (TimeNs at = 1 * kMs; at < 700 * kMs; at += 11 * kMs) die_at(at, seed, options, seen);
    CHECK(seen.waiting > 10);
    CHECK(seen.running > 10);
}

TEST_CASE("a rank that dies while its launch is suspended takes nothing with it") {
    // A3 of the scenarios: only a suspension ends it. Whoever of the three dies then, nothing stays held.
    for (std::size_t dies = 0; dies < 3; ++dies)
        for (TimeNs after = 0; after < 60 * kMs; after += 3 * kMs) {
            CAPTURE(dies);
            CAPTURE(after);
            Job job;
            job.comms = {{0, 1, 2}};
            job.ranks = {rank_on(0, {on(0, {send(0, 1)})}),
                         rank_on(1, {on(0, {send(0, 2)}), on(0, {recv(0, 0)}), on(0, {send(0, 2)})}),
                         rank_on(2, {on(0, {recv(0, 1), recv(0, 1)})})};
            REQUIRE(ends_without_opus(job));
            World world({.nodes = 3, .ports = 1}, job);
            world.run_until(0);
            while (world.core->counters().suspensions == 0 && world.now < 2'000 * kMs) world.run_until(world.now + kMs);
            REQUIRE(world.core->counters().suspensions > 0);
            world.run_until(world.now + after);
            world.kill_rank(dies);
            world.run_until(world.now + 3'000 * kMs);
            for (std::size_t r = 0; r < 3; ++r) world.kill_rank(r);
            world.run_until(world.now + 3'000 * kMs);
            CHECK(clean(world));
            no_port_is_held(world);
            CHECK(world.core->groups().empty());
        }
}

TEST_CASE("whoever dies of a random job, amid other faults, nothing is held once all of it is gone") {
    std::uint64_t dead_early = 0;
    for (std::uint64_t seed = 1; seed <= 1500; ++seed) {
        CAPTURE(seed);
        const RandomJob random = random_job(seed);
        CoreOptions options;
        options.runs = seed % 2 == 0;
        options.rest_ns = 0;
        World world(random.shape, random.job, seed, options);
        std::mt19937_64 dice(seed ^ 0xdead);
        const auto when = [&] { return static_cast<TimeNs>(dice() % 400) * kMs; };
        for (std::uint64_t i = 1 + dice() % 2; i > 0; --i)
            world.at(when(), [&, r = static_cast<std::size_t>(dice() % random.job.ranks.size())] {
                dead_early += !world.all_done();
                world.kill_rank(r);
            });
        if (dice() % 3 == 0)
            world.at(when(), [&world, n = static_cast<NodeIndex>(dice() % random.shape.nodes)] { world.drop_node(n); });
        if (dice() % 3 == 0) world.at(when(), [&world] { world.restart_controller(); });
        world.run_until(20'000 * kMs);
        for (std::size_t r = 0; r < random.job.ranks.size(); ++r) world.kill_rank(r);
        world.run_until(40'000 * kMs);
        CHECK(clean(world));
        no_port_is_held(world);
        CHECK(world.core->groups().empty());
    }
    CHECK(dead_early > 750);
}

TEST_CASE(
    "launches in flight whose communicator does not come together again after a restart are counted as suspended") {
    Job job;
    job.comms = {{0, 1, 2}};
    for (NodeIndex n = 0; n < 3; ++n) job.ranks.push_back(rank_on(n, {lasting(60'000 * kMs, on(0, {coll(0)}))}));
    World world({.nodes = 3, .ports = 2}, job);
    restart_and_kill(world, 2);
    world.run_until(2'000 * kMs);
    CHECK(world.core->counters().suspensions == 0);  // its third rank may be told of yet
    world.run_until(15'000 * kMs);
    CHECK(world.core->counters().suspensions == 2);
    CHECK(world.core->groups().front().verdict == Verdict::degraded);  // its managers say that it was held
    for (const PortStatus& p : world.core->ports())
        CHECK((p.holders.empty() ||
               world.fabric.gpus[world.fabric.ports[p.port].gpu].node != 2));  // who is left may hold what joins them
    CHECK(clean(world));
}

TEST_CASE("what waits for one who died before the controller came makes way for others") {
    Job job;
    job.comms = {{0, 1, 2}, {0, 3, 4}};
    job.ranks.push_back(rank_on(0, {lasting(60'000 * kMs, on(0, {coll(0)})), later(20'000 * kMs, on(1, {coll(1)}))}));
    for (NodeIndex n = 1; n < 3; ++n) job.ranks.push_back(rank_on(n, {lasting(60'000 * kMs, on(0, {coll(0)}))}));
    for (NodeIndex n = 3; n < 5; ++n) job.ranks.push_back(rank_on(n, {later(20'000 * kMs, on(0, {coll(1)}))}));
    World world({.nodes = 5, .ports = 2}, job);
    restart_and_kill(world, 2);
    world.run_until(30'000 * kMs);
    for (std::size_t r = 3; r < 5; ++r) CHECK((world.done(r, 0) && !world.passed(r, 0)));
    CHECK(clean(world));
}

TEST_CASE("what no ports can serve is told by name, at once, and passes for all its members") {
    Job job;
    job.comms = {{0, 1, 2}};
    for (NodeIndex n = 0; n < 3; ++n) job.ranks.push_back(rank_on(n, {later(n * 10 * kMs, on(0, {coll(0)}))}));
    World world({.nodes = 3, .ports = 1}, job);
    world.run_until(200 * kMs);  // far before any hold time
    for (std::size_t r = 0; r < 3; ++r) CHECK(world.passed(r, 0));
    CHECK(world.core->counters().passes == 3);
    CHECK(world.core->counters().unroutable == 1);
    std::string all;
    for (const auto& line : world.logs) all += line + "\n";
    CAPTURE(all);
    CHECK(all.find("n0.g0 needs 2 neighbours at a time and has 1") != std::string::npos);
    CHECK(clean(world));
}

TEST_CASE("what no ports can serve aborts where the policy says so") {
    Job job;
    job.comms = {{0, 1, 2}};
    for (NodeIndex n = 0; n < 3; ++n) job.ranks.push_back(rank_on(n, {on(0, {coll(0)})}));
    World world({.nodes = 3, .ports = 1}, job);
    world.policy = Policy::abort;
    world.run_until(200 * kMs);
    CHECK(world.core->counters().aborts == 3);
    CHECK(world.core->counters().passes == 0);
}

}  // namespace opus::controller::test
