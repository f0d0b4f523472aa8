// Windows, dark time and the file format, without any I/O.
#include <doctest/doctest.h>

#include "controller/recording/recording.h"

using namespace opus;
using namespace opus::controller;
using nlohmann::json;

namespace {

constexpr TimeNs kMs = 1'000'000;
constexpr CommId kPair{0, 1}, kAll{0, 2};

RecordedLaunch launch(CommId group, OpKind op, TimeNs ready_ms, TimeNs done_ms) {
    return {1, group, op, 100, ready_ms * kMs, ready_ms * kMs, done_ms * kMs, true};
}

const json& phase(const json& summary, const char* op) {
    for (const json& p : summary.at("jobs").at(0).at("phases"))
        if (p.at("op") == op) return p;
    FAIL("no such phase");
    return summary;
}

Profile with_rank() {
    Profile profile;
    profile.rank(1, "job");
    profile.group(kPair, 2);
    profile.group(kAll, 4);
    return profile;
}

}  // namespace

TEST_CASE("a window is what lies idle before a phase; inside a phase there is none") {
    Profile profile = with_rank();
    profile.launch(launch(kPair, OpKind::all_reduce, 10, 20));
    profile.launch(launch(kPair, OpKind::all_reduce, 25, 30));
    profile.launch(launch(kAll, OpKind::all_gather, 37, 40));
    profile.launch(launch(kPair, OpKind::all_reduce, 40, 41));
    const json summary = profile.summary();
    CHECK(summary["jobs"][0]["windows"] == 2);
    CHECK(phase(summary, "AllGather")["window_max_ms"] == 7.0);
    CHECK(phase(summary, "AllGather")["group_size"] == 4);
    CHECK(phase(summary, "AllReduce")["windows"] == 1);  // the first phase has nothing before it
    CHECK(phase(summary, "AllReduce")["window_max_ms"] == 0.0);
    CHECK(phase(summary, "AllReduce")["launches"] == 3);
    CHECK(summary["jobs"][0]["over_1ms_percent"] == 50.0);
}

TEST_CASE("transfers and collectives of one communicator are two phases") {
    Profile profile = with_rank();
    profile.launch(launch(kPair, OpKind::all_reduce, 10, 20));
    profile.launch(launch(kPair, OpKind::send, 24, 26));
    profile.launch(launch(kPair, OpKind::recv, 28, 30));
    CHECK(phase(profile.summary(), "Send")["window_max_ms"] == 4.0);
}

TEST_CASE("a launch that ends late was under way: what ran beside it had no idle ports before it") {
    Profile profile = with_rank();
    profile.launch(launch(kPair, OpKind::all_reduce, 1, 2));
    profile.launch(launch(kAll, OpKind::all_gather, 30, 40));  // told first, because it ended first
    profile.launch(launch(kPair, OpKind::recv, 10, 50));
    const json summary = profile.summary();
    CHECK(phase(summary, "Recv")["window_max_ms"] == 8.0);
    CHECK(phase(summary, "AllGather")["window_max_ms"] == 0.0);
}

TEST_CASE("dark time is exposed once, however many gangs waited through it, and hidden where nobody did") {
    Profile profile = with_rank();
    profile.change_set(100 * kMs, 125 * kMs, 2);  // two gangs wait: one all of it, one its end
    profile.gang(1, 125 * kMs, 25 * kMs);
    profile.gang(1, 125 * kMs, 5 * kMs);
    profile.change_set(200 * kMs, 225 * kMs, 1);  // nobody waits
    profile.gang(1, 230 * kMs, 0);
    profile.change_set(300 * kMs, 325 * kMs, 1);  // its last 10 ms
    profile.gang(1, 325 * kMs, 10 * kMs);
    const json fabric = profile.summary()["fabric"];
    CHECK(fabric["dark_ms"] == 75.0);
    CHECK(fabric["exposed_ms"] == 35.0);
    CHECK(fabric["hidden_ms"] == 40.0);
    CHECK(fabric["circuits_made"] == 4);
    const json job = profile.summary("job")["jobs"][0];
    CHECK(job["gangs"] == 4);
    CHECK(job["gangs_that_waited_for_light"] == 3);
    CHECK(job["waited_for_light_ms"] == 40.0);
}

TEST_CASE("a job that ended is another than one of the same name that comes after it") {
    Profile profile = with_rank();
    profile.launch(launch(kPair, OpKind::all_reduce, 1, 2));
    profile.job_ended("job");
    profile.launch(launch(kPair, OpKind::all_reduce, 3, 4));  // of nobody
    profile.rank(1, "job");
    const json jobs = profile.summary()["jobs"];
    REQUIRE(jobs.size() == 2);
    CHECK(jobs[0]["launches"] == 1);
    CHECK(jobs[0]["ended"] == true);
    CHECK(jobs[1]["launches"] == 0);
}

TEST_CASE("what is written is read back to the same summary") {
    std::string text;
    RecordingWriter writer(text, "fabric", "test", 4 * kMs);
    Profile profile = with_rank(), read;
    writer.name_rank(1, "n0.r1", "n0.g0", "job");
    writer.name_group(kPair, "pair", 2);
    writer.name_group(kAll, "all", 4);
    for (const RecordedLaunch& l : {launch(kPair, OpKind::all_reduce, 5, 20), launch(kAll, OpKind::send, 30, 40)}) {
        profile.launch(l);
        writer.launch(l, 7);
    }
    profile.change_set(20 * kMs, 30 * kMs, 1);
    writer.change_set("ocs", 20 * kMs, 21 * kMs, 30 * kMs, 1, "");
    profile.gang(1, 30 * kMs, 10 * kMs);
    writer.gang({3, 1, 19 * kMs, 30 * kMs, 0, 10 * kMs});
    profile.job_ended("job");
    writer.job_ended("job");
    writer.event(40 * kMs, "passed", "n0.r1#7");

    RecordingReader reader;
    std::size_t from = 0;
    for (std::size_t end; (end = text.find('\n', from)) != std::string::npos; from = end + 1)
        CHECK(reader.read(std::string_view(text).substr(from, end - from), read) == "");
    CHECK(read.summary() == profile.summary());
}

TEST_CASE("a launch says of what it consists, and a rank where it is in a group") {
    std::string text;
    RecordingWriter writer(text, "fabric", "test", 0);
    writer.name_rank(1, "n0.r1", "n0.g0", "job");
    writer.name_group(kPair, "pair", 2);
    writer.member(1, kPair, 1);
    writer.member(2, kPair, 0);  // a rank that has no number
    writer.launch(
        launch(kPair, OpKind::send, 5, 20), 7,
        {{{kPair, KeyKind::p2p, 1, 0, 4}, 2}, {{kPair, KeyKind::coll, 0, 0, 9}}, {{kAll, KeyKind::coll, 0, 0, 1}}});
    CHECK(text.find("{\"member\":[0,0,1]}\n") != std::string::npos);
    CHECK(text.find("[0,0,0]") == std::string::npos);
    CHECK(text.find(",1,[[0,1,4,2,1,0],[0,0,9,1]]]}") != std::string::npos);
}

TEST_CASE("a reader names what is wrong, and lets pass what it does not know") {
    Profile profile;
    RecordingReader reader;
    CHECK(reader.read("{\"launch\":[]}", profile).find("no recording") != std::string::npos);
    CHECK(reader.read("{\"format\":\"opus-recording\",\"version\":9}", profile).find("version 9") != std::string::npos);
    CHECK(reader.read("{\"format\":\"opus-recording\",\"version\":1}", profile) == "");
    CHECK(reader.read("{\"weather\":\"fine\"}", profile) == "");
    CHECK(reader.read("{\"launch\":[1,2]}", profile) == "a launch of fewer than 9 members");
    CHECK(reader.read("{\"launch\":[1,2,3,\"Send\",\"x\",1,1,1,1]}", profile) != "");
    CHECK(reader.read("{\"rank\":-1", profile) != "");
    CHECK(reader.read("[]", profile) == "not a JSON object");
}
