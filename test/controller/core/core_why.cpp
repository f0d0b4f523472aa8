// What people are told of why something waits.
#include "test/controller/core/job_words.h"

namespace opus::controller::test {

TEST_CASE("of many that hold a port the first are named, and all are counted") {
    constexpr NodeIndex kNodes = 12;
    Job job;
    job.comms.emplace_back();
    for (NodeIndex n = 0; n < kNodes; ++n) {
        job.comms[0].push_back(n);
        job.ranks.push_back(rank_on(n, {lasting(60'000 * kMs, on(0, {coll(0)}))}));
    }
    World world({.nodes = kNodes}, job);
    world.run_until(500 * kMs);
    const std::vector<PortStatus> ports = world.core->ports();
    REQUIRE(ports.size() == 2 * kNodes);
    for (const PortStatus& port : ports) {
        CHECK(port.holder_count == kNodes);
        REQUIRE(port.holders.size() == 8);
        for (NodeIndex n = 0; n < 8; ++n) CHECK(port.holders[n].node == n);
    }
    CHECK(world.core->ports(20, 3).size() == 3);
    CHECK(world.core->ports(20, 3).front().port == 20);
    CHECK(world.core->ports(2 * kNodes - 1, 3).size() == 1);
}

TEST_CASE("of many that wait those are told that are asked for, and all are counted") {
    constexpr NodeIndex kNodes = 12;
    Job job;
    job.comms.emplace_back();
    for (NodeIndex n = 0; n < kNodes; ++n) {
        job.comms[0].push_back(n);
        job.ranks.push_back(rank_on(n, {n == 5 ? later(60'000 * kMs, on(0, {coll(0)})) : on(0, {coll(0)})}));
    }
    World world({.nodes = kNodes}, job);
    world.run_until(500 * kMs);
    const std::vector<Why> all = world.core->why(world.now);
    REQUIRE(all.size() == kNodes - 1);
    for (const Why& w : all) {
        REQUIRE(w.reasons.size() == 1);
        CHECK(w.reasons[0].find("missing n5.g0") == 0);
    }
    const WhyPage page = world.core->why(world.now, {{}, 4, 3});
    CHECK(page.all == kNodes - 1);
    REQUIRE(page.waiting.size() == 3);
    CHECK(page.waiting[0].launch == all[4].launch);
    const WhyPage one = world.core->why(world.now, {[](NodeIndex n, RankId) { return n == 7; }});
    CHECK(one.all == 1);
    REQUIRE(one.waiting.size() == 1);
    CHECK(one.waiting[0].launch.node == 7);
}

}  // namespace opus::controller::test
