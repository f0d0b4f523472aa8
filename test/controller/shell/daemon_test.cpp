// opus-controller as a process: what it says to managers, good and bad, and how it begins and ends.
// OPUS_TEST_CONTROLLER names the program: the daemon around a scripted core, or the real one; the suite
// "by rote" needs the former.
#include <doctest/doctest.h>

#include <chrono>
#include <fstream>
#include <msgpack.hpp>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <thread>

#include "controller_fixture.h"
#include "played_manager.h"

namespace opus::test {
namespace {

wire::LaunchDemand demand(std::uint64_t seq, std::uint64_t n) {
    return {{7, seq}, {{{{1, 2}, KeyKind::coll, 0, 0, n}, 1}}, OpKind::all_reduce, 1 << 20, 1};
}
wire::CommMember member() {
    wire::CommMember m;
    m.comm = {1, 2};
    m.size = 2;
    m.rank = 7;
    m.gpu = 0;
    return m;
}
wire::RankInfo rank_info() { return {7, 4242, 0, 30'000, Policy::proceed, "train"}; }

nlohmann::json ask(PlayedManager& ctl, const std::string& command) {
    ctl.say({wire::CtlRequest{5, command, "{}"}});
    const auto reply = ctl.next<wire::CtlReply>();
    REQUIRE(reply);
    REQUIRE_MESSAGE(reply->ok, reply->body);
    return nlohmann::json::parse(reply->body);
}

}  // namespace

TEST_CASE("a manager is welcomed with its number, its GPUs and the epoch") {
    Controller controller;
    PlayedManager manager(controller.address);
    const auto welcome = manager.greet("n1");
    REQUIRE(welcome);
    CHECK(welcome->node == 1);
    CHECK(welcome->session == 77);
    CHECK(welcome->epoch > 1'600'000'000'000);
    REQUIRE(welcome->gpus.size() == 2);
    CHECK(welcome->gpus[1].local == 1);
    CHECK(welcome->gpus[1].ports == 2);
    CHECK(welcome->gpus[1].rail == "r1");
    CHECK(manager.last_frame.sequence == 1);
    CHECK(manager.last_frame.session == 77);
}

TEST_CASE("a node that is not in the fabric file is refused by name, with the nearest") {
    Controller controller;
    PlayedManager manager(controller.address);
    manager.say({wire::Hello{"m1", 77, 0, "test"}});
    const auto refused = manager.next<wire::Refused>();
    REQUIRE(refused);
    CHECK(refused->session == 77);
    CHECK(refused->reason.find("node 'm1' is not in the fabric file; ") == 0);
}

TEST_CASE("another major version is refused with both versions named") {
    Controller controller;
    PlayedManager manager(controller.address);
    std::stringstream bytes;
    msgpack::packer<std::stringstream> pack(bytes);
    pack.pack_array(3).pack(wire::kMagic).pack(2).pack(7);
    manager.raw(bytes.str());
    const auto refused = manager.next<wire::Refused>();
    REQUIRE(refused);
    CHECK(refused->reason.find("protocol 2.7, this program " + std::to_string(wire::kMajor) + "." +
                               std::to_string(wire::kMinor)) != std::string::npos);
}

TEST_CASE("a manager that has seen a later epoch raises it, one from the far future is refused") {
    Controller controller;
    PlayedManager first(controller.address, 1);
    const auto before = first.greet("n0");
    REQUIRE(before);
    PlayedManager second(controller.address, 2);
    const auto raised = second.greet("n1", before->epoch + 1'000);
    REQUIRE(raised);
    CHECK(raised->epoch == before->epoch + 1'001);
    CHECK(first.next<wire::Resync>());  // its epoch is over
    PlayedManager third(controller.address, 3);
    third.say({wire::Hello{"n0", 3, ~0ull, "test"}});
    CHECK(third.next<wire::Refused>());
}

TEST_CASE("frames of another epoch or session are dropped, the session goes on") {
    Controller controller;
    PlayedManager manager(controller.address);
    REQUIRE(manager.greet("n0"));
    manager.epoch += 1;
    manager.sequence = 1;
    manager.say({wire::Heartbeat{1}});  // sequence 2, wrong epoch
    manager.epoch -= 1;
    manager.sequence = 1;
    manager.say({wire::Heartbeat{1}});  // the true frame 2: no gap
    PlayedManager ctl(controller.address);
    CHECK(ask(ctl, "status")["nodes"][0]["session"] == true);
    CHECK(manager.next<wire::Heartbeat>());  // and it is still spoken to
}

TEST_CASE("a gap in the sequence ends the session, and the manager may begin another") {
    Controller controller;
    PlayedManager manager(controller.address);
    REQUIRE(manager.greet("n0"));
    manager.sequence += 1;
    manager.say({wire::Heartbeat{1}});
    const auto resync = manager.next<wire::Resync>();
    REQUIRE(resync);
    CHECK(resync->reason == "frame 3 came after frame 1");
    PlayedManager again(controller.address, 78);
    CHECK(again.greet("n0"));
}

TEST_CASE("a frame said twice is taken once") {
    Controller controller;
    PlayedManager manager(controller.address);
    REQUIRE(manager.greet("n0"));
    manager.say({wire::Heartbeat{1}});
    manager.sequence -= 1;
    manager.say({wire::Heartbeat{1}});
    manager.say({wire::Heartbeat{1}});
    CHECK(manager.next<wire::Heartbeat>());
    PlayedManager ctl(controller.address);
    CHECK(ask(ctl, "status")["nodes"][0]["session"] == true);
}

TEST_CASE("one who never said hello is told to") {
    Controller controller;
    PlayedManager manager(controller.address);
    manager.epoch = 5;
    manager.say({wire::Heartbeat{1}});
    const auto resync = manager.next<wire::Resync>();
    REQUIRE(resync);
    CHECK(manager.last_frame.epoch == 5);
    CHECK(manager.last_frame.session == 77);
}

TEST_CASE("a manager of which nothing is heard loses its session") {
    Controller controller({"--node-silence-ms", "1500"});
    PlayedManager manager(controller.address);
    REQUIRE(manager.greet("n0"));
    const auto resync = manager.next<wire::Resync>();
    REQUIRE(resync);
    // The daemon's or the core's words: both keep watch.
    const bool told = resync->reason == "nothing was heard of it" || resync->reason.rfind("silent for", 0) == 0;
    CHECK_MESSAGE(told, resync->reason);
}

TEST_CASE("a GPU that the node lacks ends the session with the reason") {
    Controller controller;
    PlayedManager manager(controller.address);
    REQUIRE(manager.greet("n0"));
    auto info = rank_info();
    info.gpu = 5;
    manager.say({wire::Snapshot{{info}, {}, {}, {}}});
    const auto resync = manager.next<wire::Resync>();
    REQUIRE(resync);
    CHECK(resync->reason ==
          "n0.r7 says it is on GPU 5, the fabric file gives n0 2 GPUs: correct the file, or set OPUS_GPU");
}

TEST_CASE("a manager that speaks like a controller loses its session") {
    Controller controller;
    PlayedManager manager(controller.address);
    REQUIRE(manager.greet("n0"));
    manager.say({wire::Grant{1, {}, {}, {}}});
    const auto resync = manager.next<wire::Resync>();
    REQUIRE(resync);
    CHECK(resync->reason == "a manager does not say Grant");
}

TEST_CASE("hostile bytes are survived, counted and logged once a peer") {
    Controller controller;
    std::mt19937_64 random(7);
    PlayedManager enemy(controller.address);
    std::string whole;
    wire::encode({1, 2, 3, {wire::Demand{{demand(1, 2)}}, wire::Hello{"n0", 77, 0, "x"}}}, whole);
    std::uint64_t bad = 0;
    for (int i = 0; i < 2'000; ++i) {
        std::string bytes = i % 2 == 0 ? std::string(random() % 200, '\0') : whole;
        if (i % 2 == 0)
            for (char& c : bytes) c = static_cast<char>(random());
        else
            bytes[random() % bytes.size()] = static_cast<char>(random());
        bad += std::holds_alternative<wire::DecodeError>(wire::decode(bytes));
        enemy.raw(bytes);
    }
    enemy.parts({"a", "b", "c"});
    enemy.parts({"", whole});
    // Its frames come in order, but beside those of others, and some of them greet as n0 too: wait for the last.
    enemy.say({wire::CtlRequest{9, "status", "{}"}});
    REQUIRE(enemy.next<wire::CtlReply>());
    PlayedManager manager(controller.address);
    REQUIRE(manager.greet("n0"));
    PlayedManager ctl(controller.address);
    CHECK(ask(ctl, "status")["wire"]["rejected"] == bad + 2);
    controller.child.terminate();
    const auto ended = controller.child.wait();
    CHECK(ended.code == 0);
    const auto first = ended.err.find("cannot be used");
    CHECK(first != std::string::npos);
    CHECK(ended.err.find("cannot be used", first + 1) == std::string::npos);
}

TEST_CASE("a second controller on the same address says which and what to do") {
    Controller controller;
    const auto ended = run({program("OPUS_TEST_CONTROLLER"), "--fabric", controller.scratch.file("fabric.toml"),
                            "--bind", controller.address});
    CHECK(ended.code == 1);
    CHECK(ended.err == "opus-controller: cannot bind " + controller.address +
                           ": Address already in use; another controller serves there: end it, or choose another "
                           "address with --bind\n");
}

TEST_CASE("a broken fabric file stops the start with all its mistakes") {
    Scratch scratch;
    std::ofstream(scratch.file("f.toml")) << "version = 2\ncolour = 1\n";
    const auto ended = run({program("OPUS_TEST_CONTROLLER"), "--fabric", scratch.file("f.toml")});
    CHECK(ended.code == 1);
    CHECK(ended.err.find("f.toml:1: version must be 1") != std::string::npos);
    CHECK(ended.err.find("f.toml:2: the file: unknown key 'colour'") != std::string::npos);
    CHECK(run({program("OPUS_TEST_CONTROLLER")}).code == 2);
}

TEST_CASE("a grace time in which managers need not have let go of their runs is refused, with what to give") {
    Scratch scratch;
    Child child(Controller::command(scratch, {"--node-silence-ms", "2000", "--node-grace-ms", "7000"}));
    const auto ended = child.wait();
    CHECK(ended.code == 2);
    CHECK(ended.err.find("opus-controller: --node-grace-ms 7000: less than four times --node-silence-ms 2000") == 0);
    CHECK(ended.err.find("give --node-grace-ms 8000 or more, or --node-silence-ms 1750 or less") != std::string::npos);
    Controller enough({"--node-silence-ms", "2000", "--node-grace-ms", "8000"});
    CHECK(!enough.address.empty());
}

TEST_CASE("it ends cleanly when told to, at once, with a manager connected") {
    Controller controller;
    PlayedManager manager(controller.address);
    REQUIRE(manager.greet("n0"));
    controller.child.terminate();
    CHECK(controller.child.wait().code == 0);
}

TEST_CASE("it serves on a Unix socket as well") {
    Scratch scratch;
    const std::string address = "ipc://" + scratch.file("c.sock");
    Child child({program("OPUS_TEST_CONTROLLER"), "--fabric", write_fabric(scratch.file("f.toml")), "--bind", address});
    CHECK(child.ready("controller") == address);
    PlayedManager manager(address);
    CHECK(manager.greet("n0"));
}

TEST_SUITE("by rote") {
    TEST_CASE("what is said to a node in one look is one frame, and the sequence counts") {
        Controller controller;
        PlayedManager manager(controller.address);
        REQUIRE(manager.greet("n0"));
        manager.say({wire::Snapshot{{rank_info()}, {member()}, {}, {}}, wire::Demand{{demand(1, 0), demand(2, 1)}},
                     wire::Demand{{demand(3, 2)}}});
        REQUIRE(manager.next<wire::Verdicts>());
        CHECK(manager.last_frame.sequence == 2);
        CHECK(manager.last_frame.messages.size() == 4);
        CHECK(manager.next<wire::Grant>()->firm.at(0).seq == 1);
        CHECK(manager.next<wire::Grant>()->firm.at(0).seq == 2);
        CHECK(manager.next<wire::Grant>()->firm.at(0).seq == 3);
        PlayedManager ctl(controller.address);
        const auto plane = ask(ctl, "status")["control_plane"];
        CHECK(plane["gangs"] == 3);
        CHECK(plane["median_us"] > 0);
    }

    TEST_CASE("what cannot be ends the controller, with the condition, its place and all that it knew") {
        Controller controller;
        PlayedManager manager(controller.address);
        REQUIRE(manager.greet("n0"));
        manager.say({wire::Snapshot{{rank_info()}, {member()}, {}, {}}, wire::Demand{{demand(1, 999)}},
                     wire::Demand{{demand(2, 666)}}});
        const Child::Ended ended = controller.child.wait();
        CHECK(ended.code == -SIGABRT);
        for (const char* said : {"cannot be: not key.n != 666", "scripted_core.cpp", "critical: status: {",
                                 "critical: groups: {", "critical: ports: {", "critical: why: {", "missing n1.g0"})
            CHECK_MESSAGE(ended.err.find(said) != std::string::npos, said << " in " << ended.err);
    }

    TEST_CASE("a trace is whole JSON when the controller has ended") {
        Controller controller({"--trace", "/dev/null"});
        const std::string path = controller.scratch.file("trace.json");
        Child traced(Controller::command(controller.scratch, {"--trace", path}));
        const std::string address = traced.ready("controller");
        PlayedManager manager(address);
        REQUIRE(manager.greet("n0"));
        manager.say({wire::Snapshot{{rank_info()}, {member()}, {}, {}}, wire::Demand{{demand(1, 0)}}});
        REQUIRE(manager.next<wire::Grant>());
        manager.say({wire::Done{{{{7, 1}, 1'000'000'000, 1'002'000'000, 1'005'000'000, false}}}});
        PlayedManager ctl(address);
        ctl.say({wire::CtlRequest{1, "connect", R"({"a":"n0.g1.p0","b":"n1.g1.p0"})"}});
        REQUIRE(ctl.next<wire::CtlReply>());
        // Two peers: what one says later may be heard first.
        const auto done = [&ctl] { return ask(ctl, "status")["counters"]["launches_done"] == 1; };
        for (int i = 0; i < 500 && !done(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
        CHECK(done());
        traced.terminate();
        REQUIRE(traced.wait().code == 0);
        std::ifstream file(path);
        const auto trace = nlohmann::json::parse(file);
        std::map<std::string, int> seen;
        for (const auto& event : trace.at("traceEvents"))
            if (event.at("ph") != "M")
                ++seen[std::to_string(event.at("pid").get<int>()) + " " + event.at("name").get<std::string>()];
        CHECK(seen["1 hold"] == 1);
        CHECK(seen["1 AllReduce"] == 1);
        CHECK(seen["2 n0.g1.p0"] == 1);  // the circuit, still up at the end, on both of its ports' rows
        CHECK(seen["2 n1.g1.p0"] == 1);
        CHECK(seen["4 complete"] == 2);
    }

    TEST_CASE("a trace that cannot be written is said at the start") {
        Scratch scratch;
        const auto ended = run(Controller::command(scratch, {"--trace", scratch.file("no/such/folder/t.json")}));
        CHECK(ended.code == 1);
        CHECK(ended.err.find("cannot write the trace") != std::string::npos);
    }
}

}  // namespace opus::test
