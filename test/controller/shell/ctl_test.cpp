// opus-ctl as a process, against a controller around a scripted core: what it prints and how it ends.
#include <doctest/doctest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "controller_fixture.h"
#include "played_manager.h"

namespace opus::test {
namespace {

using nlohmann::json;

std::vector<std::string> words(const Controller& controller, std::vector<std::string> more) {
    std::vector<std::string> all = {program("OPUS_TEST_CTL"), "--controller", controller.address};
    all.insert(all.end(), more.begin(), more.end());
    return all;
}
Child::Ended ctl(const Controller& controller, std::vector<std::string> more) {
    return run(words(controller, std::move(more)));
}
json ctl_json(const Controller& controller, std::vector<std::string> more) {
    more.push_back("--json");
    const auto ended = ctl(controller, std::move(more));
    REQUIRE_MESSAGE(ended.code == 0, ended.err);
    return json::parse(ended.out);
}
bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// A rank of n0 that waits for a peer that never comes.
void wait_for_ever(PlayedManager& manager) {
    REQUIRE(manager.greet("n0"));
    manager.say({wire::Snapshot{{{7, 4242, 1, 30'000, Policy::proceed, "train"}}, {}, {}, {}},
                 wire::Demand{{{{7, 41}, {{{{1, 2}, KeyKind::coll, 0, 0, 999}, 1}}, OpKind::all_reduce, 1 << 20, 1},
                               {{7, 42}, {{{{1, 2}, KeyKind::coll, 0, 0, 1}, 1}}, OpKind::all_reduce, 1 << 20, 1}}}});
    REQUIRE(manager.next<wire::Grant>());
}

}  // namespace

TEST_CASE("status tells of nodes, switches and counters") {
    Controller controller;
    PlayedManager manager(controller.address);
    REQUIRE(manager.greet("n0"));
    const json status = ctl_json(controller, {"status"});
    CHECK(status["controller"]["address"] == controller.address);
    CHECK(status["nodes"][0]["session"] == true);
    CHECK(status["nodes"][1]["session"] == false);
    CHECK(status["switches"][1]["switch"] == "ocs-r1");
    CHECK(status["counters"].contains("reconfigurations"));
    const auto text = ctl(controller, {"status"});
    CHECK(text.code == 0);
    CHECK(has(text.out, "n0    connect"));
    CHECK(has(text.out, "n1    absent"));
    CHECK(has(text.out, "control plane, dark time apart: median"));
}

TEST_CASE("ports, circuits, groups and jobs are named as in the fabric file") {
    Controller controller;
    PlayedManager manager(controller.address);
    wait_for_ever(manager);
    CHECK(ctl_json(controller, {"ports"})["ports"].size() == 8);
    CHECK(ctl_json(controller, {"ports"})["ports"][5]["switch_port"] == "ocs-r0:4");
    CHECK(ctl(controller, {"circuits"}).out == "no circuits\n");
    CHECK(ctl_json(controller, {"groups"})["groups"][0]["group"] == "00000000000000010000000000000002");
    CHECK(has(ctl(controller, {"groups"}).out, "1 of 2  waiting for members  n0.g0"));
    const json jobs = ctl_json(controller, {"jobs"});
    CHECK(jobs["jobs"][0]["job"] == "train");
    CHECK(jobs["jobs"][0]["nodes"] == json({"n0"}));
    CHECK(has(ctl(controller, {"jobs"}).out, "train  1      n0"));
}

TEST_CASE("a list that is longer than a reply comes in parts, and whole") {
    Controller controller({}, 300);
    const json ports = ctl_json(controller, {"ports"});
    REQUIRE(ports["ports"].size() == 1200);
    CHECK_FALSE(ports.contains("next"));
    std::set<std::string> names;
    for (const json& port : ports["ports"]) names.insert(port["port"].get<std::string>());
    CHECK(names.size() == 1200);
    CHECK(has(ctl(controller, {"ports"}).out, "n299.g1.p1"));
}

TEST_CASE("why names the launch, what it misses and since when") {
    Controller controller;
    PlayedManager manager(controller.address);
    wait_for_ever(manager);
    for (const char* who : {"n0.r7", "n0.g1", "n0", ""}) {
        const auto text = *who ? ctl(controller, {"why", who}) : ctl(controller, {"why"});
        CHECK(text.code == 0);
        CHECK(has(text.out, "n0.r7 (n0.g1)  launch n0.r7#41  AllReduce 1 MiB of group 00000000  missing member for "));
        CHECK(has(text.out, "\n    missing n1.g0 (rank 1 of 2): not ready\n"));
    }
    CHECK(has(ctl(controller, {"why", "n1"}).out, "nothing waits"));
    CHECK(ctl_json(controller, {"why", "n0.r7"})["waiting"][0]["launch"] == "n0.r7#41");
    const auto unknown = ctl(controller, {"why", "n0.r8"});
    CHECK(unknown.code == 1);
    CHECK(unknown.err == "opus-ctl: no rank, GPU or node is called 'n0.r8'; did you mean 'n0.r7'?\n");
}

TEST_CASE("connect and disconnect move circuits, and are refused where a launch holds the port") {
    Controller controller;
    const auto joined = ctl(controller, {"connect", "n0.g1.p0", "n1.g1.p1"});
    CHECK(joined.code == 0);
    CHECK(joined.out == "joined\n");
    CHECK(ctl_json(controller, {"circuits"})["circuits"][0]["a"] == "n0.g1.p0");
    CHECK(ctl_json(controller, {"circuits"})["circuits"][0]["b"] == "n1.g1.p1");
    CHECK(ctl(controller, {"disconnect", "ocs-r1:4"}).code == 0);
    CHECK(ctl_json(controller, {"circuits"})["circuits"].empty());
    const auto dark = ctl(controller, {"disconnect", "n0.g1.p0"});
    CHECK(dark.code == 1);
    CHECK(dark.err == "opus-ctl: n0.g1.p0 is dark\n");
    const auto held = ctl(controller, {"connect", "n0.g0.p0", "n1.g0.p0"});
    CHECK(held.code == 1);
    CHECK(has(held.err, "n0.g0.p0 is held by a launch"));
    CHECK(ctl(controller, {"connect", "n0.g0.p0", "n1.g0.p0", "--force"}).code == 0);
    const auto unknown = ctl(controller, {"connect", "n0.g0.p9", "n1.g0.p0"});
    CHECK(unknown.code == 1);
    CHECK(has(unknown.err, "no port is called 'n0.g0.p9'; did you mean 'n0.g0.p0'?"));
}

TEST_CASE("watch prints what happens, as it happens") {
    Controller controller;
    Child watching(words(controller, {"watch", "--count", "3", "--json"}));
    CHECK(json::parse(watching.line())["event"] == "watching");
    PlayedManager manager(controller.address);
    wait_for_ever(manager);
    const json complete = json::parse(watching.line()), granted = json::parse(watching.line());
    CHECK(complete["event"] == "gang complete");
    CHECK(granted["event"] == "gang granted");
    CHECK(granted["launch"] == "n0.r7#42");
    CHECK(watching.wait().code == 0);
}

TEST_CASE("watch ends with 3 when the controller goes away") {
    Controller controller;
    Child watching(words(controller, {"watch"}));
    CHECK(has(watching.line(), "watching"));
    controller.child.terminate();
    CHECK(controller.child.wait().code == 0);
    const auto ended = watching.wait();
    CHECK(ended.code == 3);
    CHECK(has(ended.err, "has gone away"));
}

TEST_CASE("no controller is exit code 3 with the address") {
    const auto ended =
        run({program("OPUS_TEST_CTL"), "--controller", "tcp://127.0.0.1:1", "--timeout", "300", "status"});
    CHECK(ended.code == 3);
    CHECK(has(ended.err, "opus-ctl: no controller answers at tcp://127.0.0.1:1 within 300 ms"));
}

TEST_CASE("wrong use is exit code 2") {
    CHECK(run({program("OPUS_TEST_CTL")}).code == 2);
    CHECK(run({program("OPUS_TEST_CTL"), "destroy"}).code == 2);
    CHECK(run({program("OPUS_TEST_CTL"), "connect", "n0.g0.p0"}).code == 2);
    CHECK(run({program("OPUS_TEST_CTL"), "fabric", "make", "--nodes", "1"}).code == 2);
    CHECK(run({program("OPUS_TEST_CTL"), "--help"}).code == 0);
    CHECK(run({program("OPUS_TEST_CTL"), "connect", "--help"}).code == 0);
    CHECK(run({program("OPUS_TEST_CTL"), "--controller", "here", "status"}).code == 1);
}

TEST_CASE("fabric make writes what fabric check finds good, and check names every mistake") {
    Scratch scratch;
    const std::string path = scratch.file("fabric.toml");
    REQUIRE(run({program("OPUS_TEST_CTL"), "fabric", "make", "--nodes", "4", "--gpus", "4", "--ports", "2", "-o", path}).code ==
            0);
    const auto good = run({program("OPUS_TEST_CTL"), "fabric", "check", path});
    CHECK(good.code == 0);
    CHECK(has(good.out, "good: 4 nodes, 16 GPUs, 32 ports, 4 rails, 4 switches"));
    std::ofstream(path, std::ios::app)
        << "[[node]]\nname = \"n0\"\n[[node.gpu]]\nrail = \"r9\"\nports = [\"ocs-r0:1\"]\n";
    const auto bad = run({program("OPUS_TEST_CTL"), "fabric", "check", path});
    CHECK(bad.code == 1);
    CHECK(has(bad.out, "the name 'n0' is taken already"));
    CHECK(has(bad.out, "unknown rail 'r9'"));
    CHECK(has(bad.out, "port 1 of ocs-r0 is cabled twice (n0.g0.p0 and n0.g0.p0)"));
    CHECK(has(bad.out, "3 mistakes\n"));
    const auto as_json = run({program("OPUS_TEST_CTL"), "--json", "fabric", "check", path});
    CHECK(as_json.code == 1);
    CHECK(json::parse(as_json.out)["errors"].size() == 3);
    CHECK(run({program("OPUS_TEST_CTL"), "fabric", "check", scratch.file("none")}).code == 1);
}

}  // namespace opus::test
