// Recordings of several nodes, joined to one job.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tools/opus-sim/recordings.h"

using namespace opus::job;
using opus::replay::StepKind;

namespace {

constexpr std::int64_t kMs = 1'000'000;

// A node of one GPU: rank `place` of a group of `size` ranks, which does an all-reduce every ten milliseconds, for two.
struct Node {
    std::string name;
    std::uint32_t place = 0, size = 2;
    std::int64_t began_ns = 1'700'000'000'000'000'000;
    std::string group = "a";
    std::uint32_t number = 7;  // of the group, in this file
    std::string job = "j";

    std::string header() const {
        return R"({"format":"opus-recording","version":1,"fabric":"","program":"p","node":")" + name +
               R"(","began_ns":)" + std::to_string(began_ns) + "}\n" + R"({"rank":0,"name":")" + name +
               R"(.r0","gpu":")" + name + R"(.g0","job":")" + job + "\"}\n" + R"({"group":)" + std::to_string(number) +
               R"(,"id":")" + group + R"(","size":)" + std::to_string(size) + "}\n" + R"({"member":[0,)" +
               std::to_string(number) + "," + std::to_string(place) + "]}\n";
    }
    std::string launch(std::uint64_t n, std::int64_t late_ns = 0) const {
        const std::int64_t ready = static_cast<std::int64_t>(n + 1) * 10 * kMs + late_ns,
                           done = static_cast<std::int64_t>(n + 1) * 10 * kMs + 2 * kMs;
        return R"({"launch":[0,)" + std::to_string(n) + "," + std::to_string(number) + R"(,"AllReduce",4096,)" +
               std::to_string(ready) + ",null," + std::to_string(done) + ",0,[[" + std::to_string(number) + ",0," +
               std::to_string(n) + ",1]]," + std::to_string(ready) + "]}\n";
    }
    std::string end() const { return R"({"ended":")" + job + "\"}\n"; }
    std::string whole(std::uint64_t launches = 20) const {
        std::string text = header();
        for (std::uint64_t n = 0; n < launches; ++n) text += launch(n);
        return text + end();
    }
};

JobFile read(const std::vector<std::string>& texts, const ReadOptions& options = {}) {
    std::vector<NamedText> files;
    for (std::size_t i = 0; i < texts.size(); ++i) files.push_back({"f" + std::to_string(i), texts[i]});
    return read_recorded(files, options);
}

std::string refusal(const std::vector<std::string>& texts, const ReadOptions& options = {}) {
    try {
        read(texts, options);
    } catch (const BadFile& error) { return error.what(); }
    return "";
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }
bool tells(const JobFile& job, const std::string& part) {
    return std::any_of(job.assumed.begin(), job.assumed.end(), [&](const std::string& line) { return has(line, part); });
}

const Node kFirst{"n0", 0}, kSecond{"n1", 1};

}  // namespace

TEST_CASE("recordings of two nodes are one job, whatever they number its groups") {
    Node other = kSecond;
    other.number = 3;
    const JobFile job = read({kFirst.whole(), other.whole()});
    CHECK(job.workload.world() == 2);
    CHECK(job.workload.name == "j");
    CHECK(job.figures.files == 2);
    CHECK(job.figures.operations.at({StepKind::all_reduce, 2}).calls == 40);
    CHECK(job.figures.operations.at({StepKind::all_reduce, 2}).bytes == 40 * 4096);
    CHECK(job.figures.operations.at({StepKind::all_reduce, 2}).recorded_ms == doctest::Approx(80));
    CHECK(tells(
        job,
        "the clock of n1 is 0.000 ms ahead of that of n0, by the ends of 20 operations, half of them within 0.000 ms"));
}

TEST_CASE("clocks that differ are told, and change nothing else") {
    Node skewed = kSecond;
    skewed.began_ns -= 2500 * kMs;
    const JobFile job = read({kFirst.whole(), skewed.whole()});
    CHECK(tells(job, "the clock of n1 is 2500.000 ms behind that of n0"));
    CHECK(job.figures.operations.at({StepKind::all_reduce, 2}).recorded_ms == doctest::Approx(80));
}

TEST_CASE("of a late member nobody waits in an operation's time, and a single late end does not move a clock") {
    std::string late = kSecond.header();
    for (std::uint64_t n = 0; n < 20; ++n) late += kSecond.launch(n, kMs);
    late += kSecond.end();
    const JobFile job = read({kFirst.whole(), late});
    CHECK(job.figures.operations.at({StepKind::all_reduce, 2}).recorded_ms == doctest::Approx(40));
    CHECK(tells(job, "the clock of n1 is 0.000 ms ahead"));
}

TEST_CASE("clocks are aligned over a node that others have in common") {
    Node middle{"n1", 1, 2}, last{"n2", 1, 2};
    last.group = "b";
    last.began_ns += 40 * kMs;
    // n1 is in both groups.
    std::string text = middle.header() + R"({"group":8,"id":"b","size":2})" + "\n" + R"({"member":[0,8,0]})" + "\n";
    for (std::uint64_t n = 0; n < 20; ++n) {
        std::string of_b = middle.launch(n);
        of_b.replace(of_b.find(",7,\"All"), 3, ",8,");
        of_b.replace(of_b.find("[[7,"), 4, "[[8,");
        of_b.replace(of_b.find("[0," + std::to_string(n) + ","), 3 + std::to_string(n).size(),
                     "[0," + std::to_string(100 + n));
        text += middle.launch(n) + of_b;
    }
    const JobFile job = read({kFirst.whole(), text + middle.end(), last.whole()});
    CHECK(job.workload.world() == 3);
    CHECK(tells(job, "the clock of n2 is 40.000 ms ahead of that of n0"));
}

TEST_CASE("a node that is missing is an error; --fill lets its ranks do what the others do") {
    const Node of_four{"n0", 0, 4}, second{"n1", 1, 4};
    const std::string error = refusal({of_four.whole(), second.whole()});
    CHECK(has(error, "f0: group a has 4 ranks, and 2 of them are in no file given (2 to 3)"));
    CHECK(has(error, "--fill"));
    ReadOptions fill;
    fill.fill = true;
    const JobFile job = read({of_four.whole(), second.whole()}, fill);
    CHECK(job.workload.world() == 4);
    CHECK(job.figures.operations.at({StepKind::all_reduce, 4}).calls == 80);
    CHECK(tells(job, "2 ranks that are in no file do what the others do"));
}

TEST_CASE("what not all members have ended is left out, and told") {
    std::string cut = kSecond.header();
    for (std::uint64_t n = 0; n < 12; ++n) cut += kSecond.launch(n);
    cut += kSecond.launch(12).substr(0, 40);
    const JobFile job = read({kFirst.whole(), cut});
    CHECK(job.figures.operations.at({StepKind::all_reduce, 2}).calls == 24);
    CHECK(tells(job, "left out: 8 operations"));
    CHECK(tells(job, "f1 breaks off in the middle of a line"));
    std::string lost = kSecond.header() + "{\"lost\":[0,2,3]}\n{\"gone\":[0,500,1]}\n";
    for (std::uint64_t n = 0; n < 20; ++n)
        if (n != 4 && n != 5) lost += kSecond.launch(n);
    const JobFile less = read({kFirst.whole(), lost + kSecond.end()});
    CHECK(less.figures.operations.at({StepKind::all_reduce, 2}).calls == 36);
    CHECK(tells(less, "2 launches of rank n1.r0 not recorded"));
    CHECK(tells(less, "3 calls of 1 rank not recorded: captured into CUDA graphs"));
    CHECK(tells(less, "rank n1.r0 ended with 1 launch under way"));
}

TEST_CASE("recordings that do not belong together are refused, with what to do") {
    Node other = kSecond;
    other.group = "z", other.size = 1, other.place = 0;
    CHECK(has(refusal({kFirst.whole(), kSecond.whole(), kFirst.whole()}), "f2: it is the same recording as f0"));
    Node three{"n2", 0, 2};
    three.group = "c";
    Node four{"n3", 1, 2};
    four.group = "c";
    CHECK(has(refusal({kFirst.whole(), kSecond.whole(), three.whole(), four.whole()}),
              "share no communicator with those of"));
    Node same = kSecond;
    same.name = "n0", same.began_ns += 5;
    CHECK(has(refusal({kFirst.whole(), same.whole()}),
              "has a rank on GPU 0 of node n0, too: give each node a name of its own"));
    Node twin = kFirst;
    twin.name = "n1", twin.began_ns += 5;
    CHECK(has(refusal({kFirst.whole(), twin.whole()}), "rank 0 of group a is in f0, too"));
    Node larger = kSecond;
    larger.size = 3;
    CHECK(has(refusal({kFirst.whole(), larger.whole()}), "group a has 3 members here, and 2 elsewhere"));
    CHECK(has(refusal({kFirst.header() + kFirst.end()}), "there is no launch in it"));
    CHECK(has(refusal({R"({"format":"opus-recording","version":2})"
                       "\n"}),
              "f0: line 1: version 2 of the format"));
    CHECK(has(refusal({kFirst.header() + "{\"launch\":[0,1]}\n"}), "f0: line 5: "));
}

TEST_CASE("operations of one launch have each their own bytes, and a reduce-scatter those of the whole") {
    std::vector<std::string> texts;
    for (const Node& n : {kFirst, kSecond}) {
        const std::string mine = std::to_string(n.place), to = std::to_string(1 - n.place);
        texts.push_back(n.header() +
                        R"({"launch":[0,0,7,"ReduceScatter",130,1000000,null,2000000,0,[[7,0,0,1],[7,0,1,1],[7,1,0,1,)" +
                        mine + "," + to + R"(],[7,1,0,1,)" + to + "," + mine +
                        R"(]],900000,[["ReduceScatter",10],["AllReduce",100],["Send",9],["Recv",11]]]})" + "\n" + n.end());
    }
    const JobFile job = read(texts);
    const auto& of = job.figures.operations;
    CHECK(of.at({StepKind::reduce_scatter, 2}).bytes == 2 * 20);
    CHECK(of.at({StepKind::all_reduce, 2}).bytes == 2 * 100);
    CHECK(of.at({StepKind::send, 2}).bytes == 2 * 9);
    CHECK(of.at({StepKind::recv, 2}).bytes == 2 * 9);  // as the sender says
}

TEST_CASE("processes that followed each other on a GPU are one rank; a grown communicator is one, by either id") {
    std::vector<std::string> texts;
    for (const Node& n : {kFirst, kSecond}) {
        std::string again = R"({"rank":1,"name":")" + n.name + R"(.r1","gpu":")" + n.name + R"(.g0","job":"j"})" +
                            "\n" + R"({"group":9,"id":")" + (n.place == 0 ? R"(old","also":"new")" : "new\"") +
                            R"(,"size":2})" + "\n" + R"({"member":[1,9,)" + std::to_string(n.place) + "]}\n" +
                            R"({"launch":[1,0,9,"AllReduce",64,900000000,null,910000000,0,[[9,0,0,1]]]})" + "\n";
        texts.push_back(n.whole() + again);
    }
    const JobFile job = read(texts);
    CHECK(job.workload.world() == 2);
    CHECK(job.figures.operations.at({StepKind::all_reduce, 2}).calls == 42);
    CHECK(tells(job, "processes that followed each other on one GPU are one rank (2 times)"));
}
