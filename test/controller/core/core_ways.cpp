// By which NICs NCCL sends, and what becomes of what no switch joins.
#include <set>

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
    CHECK(world.core->counters().passes > 0);
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

// --- NVLink domains: four hosts, two a domain ----------------------------------------------------------------------------

namespace {

constexpr Shape kDomains{.nodes = 4, .gpus = 2, .domain = 2};

// A collective of these GPUs, given as tens for the node and ones for the GPU.
Job collective(std::vector<unsigned> gpus, OpKind kind = OpKind::all_reduce) {
    Job job;
    job.comms.emplace_back();
    for (const unsigned gpu : gpus) {
        job.comms[0].push_back(job.ranks.size());
        job.ranks.push_back(rank_on(gpu / 10, {on(0, {coll(0, kind)})}, gpu % 10));
    }
    return job;
}

// The pairs of GPUs that have light after it, "n0.g0-n2.g0 ".
std::string light_after(const Job& job, const Shape& shape) {
    World world(shape, job);
    must_end(world);
    CHECK(world.core->counters().passes == 0);
    std::set<std::string> pairs;
    const auto gpu = [&](PortId p) { return world.fabric.gpus[world.fabric.ports[p].gpu].name; };
    for (const PortStatus& p : world.core->ports())
        if (p.peer != kNone && p.port < p.peer) pairs.insert(gpu(p.port) + "-" + gpu(p.peer));
    std::string all;
    for (const std::string& pair : pairs) all += pair + " ";
    return all;
}

}  // namespace

TEST_CASE("a collective inside an NVLink domain needs no circuit, be it over several hosts") {
    World world(kDomains, collective({0, 1, 10, 11}));
    must_end(world);
    CHECK(world.core->groups().front().verdict == Verdict::intra);
    CHECK(light_after(collective({0, 10}), kDomains) == "");
}

TEST_CASE("rings run over NVLink domains: from host to host of the next one, on each rail") {
    const Job whole = collective({0, 1, 10, 11, 20, 21, 30, 31});
    CHECK(light_after(whole, kDomains) == "n0.g0-n2.g0 n0.g1-n2.g1 n1.g0-n3.g0 n1.g1-n3.g1 ");
    // Where a host has no second GPU to leave from, rings come in and go out by the others; where none has, by the first and last.
    CHECK(light_after(collective({0, 10, 11, 20, 30, 31}), kDomains) == "n1.g0-n3.g0 n1.g1-n3.g1 ");
    CHECK(light_after(collective({0, 10, 20, 30}), kDomains) == "n0.g0-n3.g0 n1.g0-n2.g0 ");
    CHECK(light_after(collective({1, 21}), kDomains) == "n0.g1-n2.g1 ");
}

TEST_CASE("an all-to-all needs circuits between hosts of different domains only") {
    CHECK(light_after(collective({0, 10, 20, 30}, OpKind::all_to_all), kDomains) ==
          "n0.g0-n2.g0 n0.g0-n3.g0 n1.g0-n2.g0 n1.g0-n3.g0 ");
}

TEST_CASE("one member that counts hosts makes all of its communicator's nodes hosts") {
    Job job = collective({0, 10, 20, 30});
    const std::string hosts = "n0.g0-n1.g0 n0.g0-n3.g0 n1.g0-n2.g0 n2.g0-n3.g0 ";
    job.ranks[2].own_host = true;
    CHECK(light_after(job, kDomains) == hosts);
    CHECK(light_after(collective({0, 10, 20, 30}), {.nodes = 4, .gpus = 2}) == hosts);
}

TEST_CASE("transfers inside an NVLink domain need no circuit, between domains they go as between hosts") {
    Job job;
    job.comms = {{0, 1, 2}};
    job.ranks = {rank_on(0, {on(0, {send(0, 1)}), on(1, {send(0, 2)})}), rank_on(1, {on(0, {recv(0, 0)})}, 1),
                 rank_on(2, {on(0, {recv(0, 0)})})};
    CHECK(light_after(job, kDomains) == "n0.g0-n2.g0 ");
}

}  // namespace opus::controller::test
