// By which NICs NCCL sends, and what becomes of what no switch joins.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include "test/controller/core/job_words.h"

namespace opus::controller::test {
namespace {

constexpr Shape kTwoRails{.nodes = 2, .gpus = 2};

// Told by name, at once, and passed on all of its members; no circuit is made.
void must_pass(const Job& job, const std::string& why) {
    World world(kTwoRails, job);
    world.run_until(200 * kMs);  // far before any hold time
    for (std::size_t r = 0; r < job.ranks.size(); ++r)
        for (std::size_t l = 0; l < job.ranks[r].program.size(); ++l) CHECK(world.passed(r, l));
    CHECK(world.core->counters().unroutable > 0);
    std::string all;
    for (const auto& line : world.logs) all += line + "\n";
    CAPTURE(all);
    CHECK(all.find(why) != std::string::npos);
    for (const PortStatus& p : world.core->ports()) CHECK(p.holders.empty());
    CHECK(clean(world));
}

// n0.g0 sends to n1.g1. There is a third member, or not.
Job across(std::vector<RankSpec> more = {}) {
    Job job;
    job.ranks = {rank_on(0, {on(0, {send(0, 1)})}), rank_on(1, {on(0, {recv(0, 0)})}, 1)};
    job.comms = {{0, 1}};
    for (RankSpec& rank : more) {
        job.comms[0].push_back(job.ranks.size());
        job.ranks.push_back(std::move(rank));
    }
    return job;
}

const char* const kAcross = "between n0.g0 on rail r0 and n1.g1 on rail r1, which no switch joins";

}  // namespace

TEST_CASE("a transfer leaves by the receiver's rail where its communicator has a rank there on the sender's node") {
    World world(kTwoRails, across({rank_on(0, {}, 1)}));
    must_end(world);
    CHECK(world.lit(world.port("n0.g1.p0"), world.port("n1.g1.p0")));
}

TEST_CASE("a transfer whose communicator has none there leaves by the sender's rail: no switch joins it, and that is said") {
    must_pass(across(), kAcross);
    must_pass(across({rank_on(1, {})}), kAcross);  // on the receiver's node it is of no use
}

TEST_CASE("a member that sends by its own NIC only is taken at its word") {
    Job job = across({rank_on(0, {}, 1)});
    job.ranks[0].own_nic = true;
    must_pass(job, kAcross);
}

TEST_CASE("an all-to-all needs what each transfer of it needs") {
    const auto all = on(0, {coll(0, OpKind::all_to_all)});
    Job whole;
    whole.comms = {{0, 1, 2, 3}};
    whole.ranks = {rank_on(0, {all}), rank_on(0, {all}, 1), rank_on(1, {all}), rank_on(1, {all}, 1)};
    World world(kTwoRails, whole);
    must_end(world);

    whole.ranks[2].own_nic = true;
    must_pass(whole, "between n0.g1 on rail r1 and n1.g0 on rail r0, which no switch joins");
    Job ragged;
    ragged.comms = {{0, 1, 2}};
    ragged.ranks = {rank_on(0, {all}), rank_on(0, {all}, 1), rank_on(1, {all}, 1)};
    must_pass(ragged, "between n0.g0 on rail r0 and n1.g1 on rail r1, which no switch joins");
}

}  // namespace opus::controller::test
