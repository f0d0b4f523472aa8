// What people are told of why something waits.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include "test/controller/core/job_words.h"

namespace opus::controller::test {
namespace {

const Why* why_of(const std::vector<Why>& all, NodeIndex node, Why::State state) {
    for (const Why& w : all)
        if (w.launch.node == node && w.state == state) return &w;
    return nullptr;
}

}  // namespace

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

TEST_CASE("a receive that its manager withholds is named with what it waits for, and so it is to its sender") {
    Job job;
    job.comms = {{0, 1}};
    job.ranks = {rank_on(0, {on(0, {send(0, 1)})}), rank_on(1, {later(900 * kMs, on(0, {recv(0, 0)}))})};
    World world({}, job);
    world.run_until(500 * kMs);
    const wire::KeyRange keys{{{0x1000, 7}, KeyKind::p2p, 0, 1, 0}, 1};
    const auto beat = [&](std::vector<wire::Withheld> withheld) {
        world.feed(NodeMessage{1, world.session_of(1), wire::Heartbeat{1, {}, std::move(withheld)}});
    };
    CHECK(why_of(world.core->why(world.now), 0, Why::State::missing_member)->reasons.at(0).find("not ready") !=
          std::string::npos);
    CHECK(why_of(world.core->why(world.now), 1, Why::State::withheld) == nullptr);

    beat({{{1, 0}, keys, 4096, 300, 700}});
    const auto all = world.core->why(world.now);
    const Why* receive = why_of(all, 1, Why::State::withheld);
    REQUIRE(receive != nullptr);
    CHECK(receive->launch.seq == 0);
    CHECK(receive->op == OpKind::recv);
    CHECK(receive->bytes == 4096);
    CHECK(receive->since_ns == world.now - 300 * kMs);
    REQUIRE(receive->reasons.size() == 1);
    CHECK(receive->reasons[0].find("not asked for yet") == 0);
    CHECK(receive->reasons[0].find("for 700 ms more at most") != std::string::npos);
    CHECK(receive->reasons[0].find("transfer 0 from rank 0 to 1") != std::string::npos);
    const Why* sends = why_of(all, 0, Why::State::missing_member);
    REQUIRE(sends != nullptr);
    CHECK(sends->reasons.at(0).find("withheld by its manager") != std::string::npos);

    beat({});  // the next word replaces the last
    CHECK(why_of(world.core->why(world.now), 1, Why::State::withheld) == nullptr);
    beat({{{1, 0}, keys, 4096, 300, 700}});
    must_end(world);  // asked for in the end
    CHECK(world.core->why(world.now).empty());
    beat({{{9, 0}, keys, 4096, 300, 700}});  // of a rank that is not there
    CHECK(world.core->why(world.now).empty());
    beat(std::vector<wire::Withheld>(1000, {{1, 5}, keys, 4096, 300, 700}));  // no more than a node may tell of
    CHECK(world.core->why(world.now).size() <= 64);
}

}  // namespace opus::controller::test
