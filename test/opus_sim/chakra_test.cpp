// Chakra traces: what is read of them, and what is said of bad ones.
#include <doctest/doctest.h>

#include "test/opus_sim/trace_bytes.h"
#include "tools/opus-sim/chakra.h"
#include "tools/opus-sim/fold_rails.h"
#include "tools/replay/dry_run.h"

using namespace opus;
using namespace opus::job;
using namespace opus::test;
using replay::StepKind;

namespace {

constexpr std::uint64_t kAllReduce = 0, kAllGather = 2;

// Each rank computes, gathers beside a second computation, and reduces what both gave.
std::string overlapped(std::uint64_t us) {
    return metadata() + compute(1, us) + collective(2, "gather", kAllGather, 4096, "1", {1}) + compute(3, 5000, {1}) +
           collective(4, "reduce", kAllReduce, 8192, "1", {2, 3});
}

JobTrace read(const std::vector<std::string>& files, const std::string& groups = R"({"1":[0,1]})") {
    ChakraReader reader(read_communicators({"groups.json", groups}), static_cast<std::uint32_t>(files.size()), {});
    for (std::size_t r = 0; r < files.size(); ++r) reader.read({"job." + std::to_string(r) + ".et", files[r]});
    return reader.trace();
}

replay::Workload played(JobTrace trace) {
    std::vector<std::string> assumed;
    check_trace(trace, false, assumed);
    order_trace(trace);
    return workload_of(trace, choose_places(trace, {.gpus_per_node = 1}, assumed));
}

// Two groups of eight, every other rank each, gather much, beside what a rank computes as long; neighbours reduce little.
std::string strided(std::uint32_t rank) {
    return metadata() + compute(1, 10) + collective(2, "gather", kAllGather, 1 << 20, rank % 2 == 0 ? "even" : "odd") +
           compute(3, 10) + collective(4, "reduce", kAllReduce, 4096, "pair" + std::to_string(rank / 2), {1, 3}) +
           compute(5, 10, {2, 4});
}

std::string refused(const std::vector<std::string>& files, const std::string& groups = R"({"1":[0,1]})") {
    try {
        played(read(files, groups));
    } catch (const BadFile& error) { return error.what(); }
    return "";
}

bool says(const std::string& what, std::initializer_list<const char*> words) {
    for (const char* word : words)
        if (what.find(word) == std::string::npos) return false;
    return true;
}

double lasts_ms(const replay::Workload& w) {
    replay::DryRunOptions o;
    o.latency_us = 1000;  // and next to nothing by bytes
    const replay::DryRun run = dry_run(w, o);
    REQUIRE(run.ended);
    return static_cast<double>(run.ends().back()) / 1e6;
}

}  // namespace

TEST_CASE("what a trace lets run side by side does, and what waits waits") {
    const replay::Workload w = played(read({overlapped(2000), overlapped(2000)}));
    CHECK(w.world() == 2);
    // 2 ms, then 5 ms beside 1 ms of gathering, then 1 ms of reducing.
    CHECK(lasts_ms(w) == doctest::Approx(8).epsilon(0.01));
}

TEST_CASE("ranks that are late are waited for") {
    CHECK(lasts_ms(played(read({overlapped(2000), overlapped(9000)}))) == doctest::Approx(15).epsilon(0.01));
}

TEST_CASE("figures are those of the files") {
    Figures f;
    count_trace(read({overlapped(2000), overlapped(2000)}), f);
    CHECK(f.ranks == 2);
    CHECK(f.operations.at({StepKind::all_gather, 2}).calls == 2);
    CHECK(f.operations.at({StepKind::all_gather, 2}).bytes == 8192);
    CHECK(f.operations.at({StepKind::all_reduce, 2}).bytes == 16384);
    CHECK(f.compute_ms == doctest::Approx(14));
    CHECK(f.groups.count("1 of 2") == 1);
}

TEST_CASE("transfers meet by their tags, whatever their order") {
    const std::string sender =
        metadata() + compute(1, 1000) + transfer(2, true, 1, 64, 7, {1}) + transfer(3, true, 1, 128, 8, {2});
    const std::string receiver =
        metadata() + transfer(1, false, 0, 128, 8) + transfer(2, false, 0, 64, 7) + compute(3, 1000, {1, 2});
    const replay::Workload w = played(read({sender, receiver}, "{}"));
    CHECK(lasts_ms(w) == doctest::Approx(4).epsilon(0.01));
    std::vector<replay::WorkloadError> errors;
    check_agreement(w, errors);
    CHECK(errors.empty());
}

TEST_CASE("ranks that could call collectives in any order call them in one that all can keep") {
    // Rank 0 lists one first, rank 1 the other; neither needs the other.
    const std::string a =
        metadata() + collective(1, "x", kAllReduce, 64, "1") + collective(2, "y", kAllReduce, 128, "1");
    const std::string b =
        metadata() + collective(1, "y", kAllReduce, 128, "1") + collective(2, "x", kAllReduce, 64, "1");
    CHECK(lasts_ms(played(read({a, b}))) == doctest::Approx(2).epsilon(0.01));
}

TEST_CASE("comments in a file of communicators are let pass") {
    const auto groups = read_communicators({"g", "{\n \"0\" : [0, 1], // both\n \"tp\" : [1]\n}\n"});
    REQUIRE(groups.size() == 2);
    CHECK(groups[0].second == std::vector<std::uint32_t>{0, 1});
    CHECK(groups[1].first == "tp");
}

TEST_CASE("a trace that is cut short is refused with its byte") {
    const std::string whole = overlapped(2000);
    for (std::size_t size = metadata().size() + 1; size < whole.size(); ++size) {
        const std::string what = refused({whole, whole.substr(0, size)});
        CAPTURE(size);
        CHECK(what.find("job.") == 0);
    }
    CHECK(says(refused({whole, whole.substr(0, whole.size() - 1)}), {"job.1.et", "byte", "cut short"}));
}

TEST_CASE("a rank whose file is missing is named") {
    const std::string groups = R"({"1":[0,1,2]})";
    CHECK(says(refused({overlapped(1), overlapped(1)}, groups), {"2 of 3", "missing", "--fill"}));
}

TEST_CASE("a collective that one rank never joins is named, with the rank") {
    const std::string less = metadata() + compute(1, 2000) + collective(2, "gather", kAllGather, 4096, "1", {1});
    CHECK(says(refused({overlapped(1), less}), {"job.0.et", "entry 3", "rank 1 never joins", "all_reduce", "group 1"}));
}

TEST_CASE("ranks that disagree on a collective are named, with both places") {
    const std::string other = metadata() + compute(1, 1) + collective(2, "gather", kAllGather, 4096, "1") +
                              compute(3, 1) + collective(4, "reduce", kAllReduce, 1, "1");
    CHECK(says(refused({overlapped(1), other}), {"job.1.et", "entry 3", "1 bytes", "8192 bytes"}));
}

TEST_CASE("nodes that wait for each other in a circle are refused") {
    const std::string round = metadata() + compute(1, 1, {2}) + compute(2, 1, {1});
    CHECK(says(refused({round}, "{}"), {"job.0.et", "entry 0", "go round"}));
    // Each is ready for one that the other comes to only afterwards.
    const std::string a =
        metadata() + collective(1, "x", kAllReduce, 64, "1") + collective(2, "y", kAllReduce, 64, "1", {1});
    const std::string b =
        metadata() + collective(1, "y", kAllReduce, 64, "1") + collective(2, "x", kAllReduce, 64, "1", {1});
    CHECK(says(refused({a, b}), {"entry 0", "circle"}));
}

TEST_CASE("a communicator that no file knows, a node that is not there and a strange type are named") {
    CHECK(says(refused({metadata() + collective(1, "x", kAllReduce, 64, "9")}, "{}"),
               {"node 0", "communicator 9", "JSON"}));
    CHECK(says(refused({metadata() + compute(1, 1, {77})}, "{}"), {"node 0", "node 77", "not in the file"}));
    CHECK(says(refused({metadata() + record(number(1, 1) + number(3, 12))}, "{}"), {"node 0", "type 12"}));
}

TEST_CASE("traces made of PyTorch's: the host works beside the GPU, and who called whom is no order") {
    // 4 ms of the host, then a call of 1 ms that launches a sum; the GPU computes 5 ms meanwhile. Callers are absent, or go round.
    const std::string job = metadata() + on_host(1, 4000, 4, {}, 99) + compute(2, 5000) + on_host(3, 1000, 7, {1}, 4) +
                            collective(4, "ncclKernel_AllReduce", kAllReduce, 64, "1", {2, 3}) + on_host(5, 1, 4, {4}, 3);
    CHECK(refused({job, job}).empty());
    JobTrace trace = read({job, job});
    Figures f;
    count_trace(trace, f);
    CHECK(f.operations.at({StepKind::all_reduce, 2}).calls == 2);
    CHECK(f.operations.size() == 1);
    CHECK(f.compute_ms == doctest::Approx(10));  // of the GPUs
    CHECK(lasts_ms(played(std::move(trace))) == doctest::Approx(6).epsilon(0.01));
}

TEST_CASE("a collective that does not say which is told from one whose number is none") {
    const std::string untold = metadata() + record(number(1, 1) + text(2, "x") + number(3, 7));
    CHECK(says(refused({untold}, "{}"), {"node 0", "no comm_type"}));
    CHECK(says(refused({metadata() + collective(1, "x", 12, 64, "1")}), {"node 0", "comm_type 12 is no collective"}));
}

TEST_CASE("ranks are told by the names of files") {
    CHECK(chakra_rank("a/b.c/workload.12.et") == 12);
    CHECK(chakra_rank("traces.tar/workload.3.et.zst") == 3);
    CHECK_THROWS_AS(chakra_rank("workload.et"), BadFile);
    CHECK_THROWS_AS(chakra_rank("1.x/workload"), BadFile);
}

TEST_CASE("a node has the groups that carry most, and its ranks get the same order: one rail stands for all") {
    std::vector<std::string> files;
    std::string groups = R"({"even":[0,2,4,6,8,10,12,14],"odd":[1,3,5,7,9,11,13,15])";
    for (std::uint32_t r = 0; r < 16; ++r) files.push_back(strided(r));
    for (int r = 0; r < 16; r += 2)
        groups += ",\"pair" + std::to_string(r / 2) + "\":[" + std::to_string(r) + "," + std::to_string(r + 1) + "]";
    JobTrace trace = read(files, groups + "}");
    std::vector<std::string> assumed;
    check_trace(trace, false, assumed);
    order_trace(trace);
    const std::vector<replay::Place> places = choose_places(trace, {}, assumed);
    for (std::uint32_t r = 0; r < 16; ++r) {
        CHECK(places[r].node == r % 2);
        CHECK(places[r].gpu == r / 2);
    }
    REQUIRE(!assumed.empty());
    CHECK(assumed.back().find("groups of 8") != std::string::npos);
    const replay::Workload w = workload_of(trace, places);
    CHECK(w.roles.size() == 1);
    replay::DryRunOptions times;
    times.rings = true;
    const auto one = one_rail(w, times);
    REQUIRE(one);
    CHECK(one->world() == 2);
    // As launchers number ranks, neighbours share a node.
    trace.neighbours_share_nodes = true;
    CHECK(choose_places(trace, {}, assumed)[1].node == 0);
    trace.neighbours_share_nodes = false;
    CHECK(choose_places(trace, {.gpus_per_node = 8}, assumed)[1].node == 0);
}
