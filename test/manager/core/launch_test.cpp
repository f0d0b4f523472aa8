// Readiness, keys, coalescing, tokens.
#include <set>

#include "test/manager/core/node.h"

using namespace opus;
using namespace opus::manager;
using namespace opus::manager::test;

TEST_CASE("a launch is asked for when its gate is reached, not when it is recorded") {
    Node n;
    n.serve(1);
    n.record(0, 0, {coll(0, 0)});
    n.flush();
    CHECK(n.said<wire::Demand>().empty());
    n.ready(0, 0);
    n.flush();
    const auto demands = n.said<wire::Demand>();
    REQUIRE(demands.size() == 1);
    REQUIRE(demands[0].launches.size() == 1);
    const wire::LaunchDemand& d = demands[0].launches[0];
    CHECK(d.launch == wire::LocalLaunch{0, 0});
    CHECK(d.keys == std::vector<wire::KeyRange>{{coll_key(kCommA, 0), 1}});
    CHECK(d.op == OpKind::all_reduce);
    CHECK(d.bytes == 4096);
    CHECK(!n.went(0, 0));
    n.grant(1, {{0, 0}});
    CHECK(n.went(0, 0));
}

TEST_CASE("a launch that holds up operations which are not recorded is demanded as such") {
    Node n;
    n.serve(1);
    n.record(0, 0, {coll(0, 0)}, ring::Gate::stream, ring::kLaunchMixed);
    n.ready(0, 0);
    n.flush();
    const auto demands = n.said<wire::Demand>();
    REQUIRE(demands.size() == 1);
    CHECK(demands[0].launches[0].mixed);
}

TEST_CASE("such a launch asks also before its turn: what is not recorded of it may be first, and a peer wait for that") {
    Node n;
    n.serve(1);
    n.launch(0, 0, {coll(0, 0)});
    n.flush();
    n.take();
    n.record(0, 1, {coll(0, 1)}, ring::Gate::stream, ring::kLaunchMixed);
    n.record(0, 2, {coll(0, 2)});
    n.ready(0, 1);
    n.ready(0, 2);
    n.flush();
    auto demands = n.said<wire::Demand>();
    REQUIRE(demands.size() == 1);
    REQUIRE(demands[0].launches.size() == 1);
    CHECK(demands[0].launches[0].launch == wire::LocalLaunch{0, 1});
    CHECK(demands[0].launches[0].behind);
    n.take();
    n.grant(1, {{0, 0}});
    n.grant(2, {{0, 1}});
    n.flush();
    CHECK(n.said<wire::Demand>().empty());  // the third comes after the first
    n.done(0, 0);
    n.flush();
    demands = n.said<wire::Demand>();
    REQUIRE(demands.size() == 1);
    CHECK(demands[0].launches[0].launch == wire::LocalLaunch{0, 2});
}

TEST_CASE("a launch whose communicator shares resources with one that is not held says so") {
    for (const Verdict other : {Verdict::intra, Verdict::passes, Verdict::degraded, Verdict::enforced})
        for (const std::uint32_t family : {7u, 8u}) {
            Node n;
            n.connect();
            n.rank(0);
            n.comm(0, 0, kCommA, 0, 2, 7);
            n.comm(0, 1, kCommB, 0, other == Verdict::intra ? 1 : 2, family);
            n.flush();
            n.enforce(kCommA);
            n.hear(wire::Verdicts{{{kCommB, other}}});
            n.take();
            n.launch(0, 0, {coll(0, 0)});
            n.flush();
            const auto demands = n.said<wire::Demand>();
            REQUIRE(demands.size() == 1);
            CHECK(demands[0].launches[0].behind == (family == 7 && other != Verdict::enforced));
        }
}

TEST_CASE("eight ranks ready at the same look make exactly one demand") {
    Node n;
    n.serve(8);
    for (RankId r = 0; r < 8; ++r) n.launch(r, 0, {coll(0, 0)});
    n.flush();
    const auto demands = n.said<wire::Demand>();
    REQUIRE(demands.size() == 1);
    CHECK(demands[0].launches.size() == 8);
    CHECK(n.frames.size() == 1);
    CHECK(n.core.counters().demand_messages == 1);
}

TEST_CASE("nobody waits for other local ranks") {
    Node n;
    n.serve(8);
    n.launch(0, 0, {coll(0, 0)});
    n.flush();
    CHECK(n.said<wire::Demand>().size() == 1);
}

TEST_CASE("the end of one launch and the demand for the next travel in one frame") {
    Node n;
    n.serve(1);
    n.launch(0, 0, {coll(0, 0)});
    n.launch(0, 1, {coll(0, 1)});
    n.flush();
    n.grant(1, {{0, 0}});
    n.take();
    n.done(0, 0);
    n.flush();
    REQUIRE(n.frames.size() == 1);
    REQUIRE(n.frames[0].size() == 2);
    REQUIRE(std::holds_alternative<wire::Done>(n.frames[0][0]));
    REQUIRE(std::holds_alternative<wire::Demand>(n.frames[0][1]));
    const auto done = n.said<wire::Done>()[0].launches;
    REQUIRE(done.size() == 1);
    CHECK(done[0].launch == wire::LocalLaunch{0, 0});
    CHECK(!done[0].ungated);
    CHECK(done[0].ready_ns != 0);
    CHECK(done[0].go_ns != 0);
    CHECK(done[0].done_ns != 0);
}

TEST_CASE("A1: a group's launch has the keys of all its transfers, each way its own") {
    Node n;
    n.connect();
    n.rank(0);
    n.comm(0, 0, kCommA, 0, 3);
    n.flush();
    n.enforce(kCommA);
    n.take();
    n.launch(0, 0, {send(0, 1, 0), recv(0, 1, 0), recv(0, 2, 4)});
    n.flush();
    const auto demands = n.said<wire::Demand>();
    REQUIRE(demands.size() == 1);
    auto keys = demands[0].launches[0].keys;
    std::sort(keys.begin(), keys.end(), [](auto& a, auto& b) { return a.first < b.first; });
    CHECK(keys == std::vector<wire::KeyRange>{
                      {p2p_key(kCommA, 0, 1, 0), 1}, {p2p_key(kCommA, 1, 0, 0), 1}, {p2p_key(kCommA, 2, 0, 4), 1}});
}

TEST_CASE("like transfers to one peer are one range of keys") {
    Node n;
    n.serve(1);
    n.launch(0, 0, {send(0, 1, 5, 2), send(0, 1, 7), send(0, 1, 9)});
    n.flush();
    const auto demands = n.said<wire::Demand>();
    REQUIRE(demands.size() == 1);
    CHECK(demands[0].launches[0].keys ==
          std::vector<wire::KeyRange>{{p2p_key(kCommA, 0, 1, 5), 3}, {p2p_key(kCommA, 0, 1, 9), 1}});
}

TEST_CASE("a send to oneself has no key, and a launch without keys starts at once") {
    Node n;
    n.serve(1);
    n.launch(0, 0, {send(0, 0, 0), recv(0, 0, 0)});
    n.flush();
    CHECK(n.said<wire::Demand>().empty());
    CHECK(n.went(0, 0));
}

TEST_CASE("a collective that NCCL may spread over all pairs is reported as a mesh") {
    Node n;
    n.serve(1);
    n.launch(0, 0, {coll(0, 3, ring::kOpMesh)});
    n.flush();
    CHECK(n.said<wire::Demand>().at(0).launches.at(0).keys == std::vector<wire::KeyRange>{{coll_key(kCommA, 3), 1, true}});
}

TEST_CASE("a one-sided operation has its sender's key, a wait for a signal none") {
    Node n;
    n.serve(1);
    SUBCASE("a put") {
        ring::OpEntry put = send(0, 1, 5);
        put.kind = static_cast<std::uint8_t>(OpKind::put_signal);
        n.launch(0, 0, {put});
        n.flush();
        CHECK(n.said<wire::Demand>().at(0).launches.at(0).keys ==
              std::vector<wire::KeyRange>{{{kCommA, KeyKind::put, 0, 1, 5}, 1}});
    }
    SUBCASE("a wait") {
        ring::OpEntry wait = recv(0, 1, 0);
        wait.kind = static_cast<std::uint8_t>(OpKind::wait_signal);
        n.launch(0, 0, {wait});
        n.flush();
        CHECK(n.went(0, 0));
    }
}

TEST_CASE("launches of a communicator do not wait for one that lasts") {
    Node n;
    n.serve(1);
    n.record(0, 0, {coll(0, 0, ring::kOpConnects | ring::kOpMesh)}, ring::Gate::host, ring::kLaunchConn | ring::kLaunchLasts);
    n.ready(0, 0);
    n.launch(0, 1, {coll(0, 0)});
    n.flush();
    std::size_t asked = 0;
    for (const auto& demand : n.said<wire::Demand>()) asked += demand.launches.size();
    CHECK(asked == 2);
}

TEST_CASE("what keeps its circuits for a graph waits for no stream, and nobody waits for it") {
    Node n;
    n.serve(1);
    n.record(0, 0, {coll(0, pinned_key(3))}, ring::Gate::host, ring::kLaunchLasts | ring::kLaunchHostDone);
    n.ready(0, 0);
    n.launch(0, 1, {coll(0, 0)});
    n.flush();
    std::vector<wire::LaunchDemand> asked;
    for (const auto& demand : n.said<wire::Demand>()) asked.insert(asked.end(), demand.launches.begin(), demand.launches.end());
    REQUIRE(asked.size() == 2);
    CHECK(asked[0].keys == std::vector<wire::KeyRange>{{coll_key(kCommA, pinned_key(3)), 1}});
    CHECK(!asked[0].behind);
}

TEST_CASE("connections have keys of their own") {
    Node n;
    n.serve(1);
    SUBCASE("a launch that only connects") {
        n.record(0, 0, {coll(0, 0, ring::kOpFirstUse), send(0, 1, 0)}, ring::Gate::host, ring::kLaunchConn);
        n.ready(0, 0);
        n.flush();
        const auto keys = n.said<wire::Demand>().at(0).launches.at(0).keys;
        CHECK(keys == std::vector<wire::KeyRange>{{{kCommA, KeyKind::conn, 0, 0, 0}, 1},
                                                  {{kCommA, KeyKind::conn_p2p, 0, 1, 0}, 1}});
    }
    SUBCASE("a first use behind a host gate brings both") {
        n.record(0, 0, {coll(0, 0, ring::kOpFirstUse)}, ring::Gate::host);
        n.ready(0, 0);
        n.flush();
        const auto keys = n.said<wire::Demand>().at(0).launches.at(0).keys;
        CHECK(keys == std::vector<wire::KeyRange>{{coll_key(kCommA, 0), 1}, {{kCommA, KeyKind::conn, 0, 0, 0}, 1}});
    }
    SUBCASE("a pair that an all-to-all connects brings no more than that") {
        ring::OpEntry pair = send(0, 1, 0);
        pair.flags = ring::kOpConnects;
        n.record(0, 0, {coll(0, 3), pair}, ring::Gate::host);
        n.ready(0, 0);
        n.flush();
        const auto keys = n.said<wire::Demand>().at(0).launches.at(0).keys;
        CHECK(keys == std::vector<wire::KeyRange>{{coll_key(kCommA, 3), 1}, {{kCommA, KeyKind::conn_p2p, 0, 1, 0}, 1}});
    }
    SUBCASE("each with each, again and again") {
        ring::OpEntry mesh = coll(0, 7, ring::kOpConnects | ring::kOpMesh);
        n.record(0, 0, {mesh}, ring::Gate::host, ring::kLaunchConn | ring::kLaunchLasts);
        n.ready(0, 0);
        n.flush();
        const auto keys = n.said<wire::Demand>().at(0).launches.at(0).keys;
        CHECK(keys == std::vector<wire::KeyRange>{{{kCommA, KeyKind::conn_mesh, 0, 0, 7}, 1, true}});
    }
    SUBCASE("a first use behind a stream gate is connected before") {
        n.record(0, 0, {coll(0, 0, ring::kOpFirstUse)}, ring::Gate::stream);
        n.ready(0, 0);
        n.flush();
        CHECK(n.said<wire::Demand>().at(0).launches.at(0).keys == std::vector<wire::KeyRange>{{coll_key(kCommA, 0), 1}});
    }
}

TEST_CASE("G1, G1c: the first launch is asked for when its connections have their light, for its call may return no sooner") {
    Node n;
    n.serve(1);
    n.record(0, 0, {coll(0, 0, ring::kOpFirstUse)}, ring::Gate::host, ring::kLaunchConn);
    n.ready(0, 0);
    n.record(0, 1, {coll(0, 0)});
    n.ready(0, 1);
    n.flush();
    CHECK(n.said<wire::Demand>().at(0).launches.size() == 1);
    n.take();
    n.grant(1, {{0, 0}});
    n.flush();
    REQUIRE(n.said<wire::Demand>().size() == 1);
    CHECK(n.said<wire::Demand>().at(0).launches.at(0).launch == wire::LocalLaunch{0, 1});
    CHECK(n.said<wire::Demand>().at(0).launches.at(0).behind);  // its kernel comes when the call returns
    n.take();
    n.done(0, 0);  // the real call has returned
    n.flush();
    CHECK(n.said<wire::Demand>().empty());
}

TEST_CASE("a first use behind a host gate does not wait for an earlier receive of its communicator") {
    Node n;
    n.serve(1);
    n.launch(0, 0, {recv(0, 1, 5)});
    n.grant(1, {{0, 0}});  // it runs; its sender is in a group that this rank's next call connects
    n.flush();
    n.take();
    ring::OpEntry first = send(0, 1, 0);
    first.flags = ring::kOpFirstUse;
    n.record(0, 1, {first}, ring::Gate::host);
    n.ready(0, 1);
    n.record(0, 2, {send(0, 1, 1)}, ring::Gate::host);
    n.ready(0, 2);
    n.flush();
    REQUIRE(n.said<wire::Demand>().size() == 1);
    REQUIRE(n.said<wire::Demand>().at(0).launches.size() == 1);
    CHECK(n.said<wire::Demand>().at(0).launches.at(0).launch == wire::LocalLaunch{0, 1});
}

TEST_CASE("a first use is connected while an earlier receive of its communicator waits for its sender") {
    Node n;
    n.serve(1);
    n.launch(0, 0, {recv(0, 1, 5)});
    n.grant(1, {{0, 0}});  // it runs, and its sender may be waiting for what this rank posts next
    n.flush();
    n.take();
    n.record(0, 1, {send(0, 1, 0)}, ring::Gate::host, ring::kLaunchConn);
    n.ready(0, 1);
    n.launch(0, 2, {send(0, 1, 0)});
    n.flush();
    REQUIRE(n.said<wire::Demand>().size() == 1);
    CHECK(n.said<wire::Demand>().at(0).launches.size() == 1);
    CHECK(n.said<wire::Demand>().at(0).launches.at(0).launch == wire::LocalLaunch{0, 1});
    n.grant(2, {{0, 1}});
    n.take();
    n.done(0, 1);
    n.flush();
    CHECK(n.said<wire::Demand>().empty());  // kernels keep their order
    n.done(0, 0);
    n.flush();
    REQUIRE(n.said<wire::Demand>().size() == 1);
    CHECK(n.said<wire::Demand>().at(0).launches.at(0).launch == wire::LocalLaunch{0, 2});
}

TEST_CASE("G2: of one communicator on two streams, only the first in order is asked for") {
    Node n;
    n.connect();
    n.rank(0);
    n.comm(0, 0, kCommA, 0, 2);
    n.comm(0, 1, kCommB, 0, 2);
    n.flush();
    n.enforce(kCommA);
    n.enforce(kCommB);
    n.take();
    n.record(0, 0, {coll(1, 0)});  // D, of another communicator, in the first stream
    n.record(0, 1, {coll(0, 0)});  // a: behind it
    n.record(0, 2, {coll(0, 1)});  // b: on the second stream, ready first
    n.ready(0, 2);
    n.flush();
    CHECK(n.said<wire::Demand>().empty());
    n.ready(0, 0);
    n.flush();
    CHECK(n.said<wire::Demand>().at(0).launches.at(0).launch == wire::LocalLaunch{0, 0});
    n.grant(1, {{0, 0}});
    n.done(0, 0);
    n.ready(0, 1);
    n.take();
    n.flush();
    CHECK(n.said<wire::Demand>().at(0).launches.at(0).launch == wire::LocalLaunch{0, 1});
    n.grant(2, {{0, 1}});
    n.take();
    n.done(0, 1);
    n.flush();
    CHECK(n.said<wire::Demand>().at(0).launches.at(0).launch == wire::LocalLaunch{0, 2});
}

TEST_CASE("communicators that share resources take turns; others do not wait for them") {
    Node n;
    n.connect();
    n.rank(0);
    n.comm(0, 0, kCommA, 0, 2, 9);
    n.comm(0, 1, kCommB, 0, 2, 9);
    n.comm(0, 2, kCommC, 0, 2, 10);
    n.flush();
    for (const CommId comm : {kCommA, kCommB, kCommC}) n.enforce(comm);
    n.take();
    n.record(0, 0, {coll(0, 0)});
    n.launch(0, 1, {coll(1, 0)});
    n.launch(0, 2, {coll(2, 0)});
    n.flush();
    CHECK(n.said<wire::Demand>().at(0).launches.size() == 1);
    CHECK(n.said<wire::Demand>().at(0).launches.at(0).launch == wire::LocalLaunch{0, 2});
    n.ready(0, 0);
    n.flush();
    n.grant(1, {{0, 0}, {0, 2}});
    n.take();
    n.done(0, 0);
    n.flush();
    CHECK(n.said<wire::Demand>().at(0).launches.at(0).launch == wire::LocalLaunch{0, 1});
}

// One rank, communicators A and B, launches of both: an earlier one of each, then one gate before both.
static void put_one_gate(Node& n) {
    n.connect();
    n.rank(0);
    n.comm(0, 0, kCommA, 0, 2);
    n.comm(0, 1, kCommB, 0, 2);
    n.flush();
    n.enforce(kCommA);
    n.enforce(kCommB);
    n.take();
    n.launch(0, 0, {coll(0, 0)});
    n.launch(0, 1, {coll(1, 0)});
    n.launch(0, 2, {coll(0, 1), coll(1, 1), coll(0, 2)});
    n.flush();
    n.grant(1, {{0, 0}, {0, 1}});
    n.take();
}

TEST_CASE("a gate before two communicators is asked for when one has its turn, as behind others until both have") {
    Node n;
    put_one_gate(n);
    n.flush();
    CHECK(n.said<wire::Demand>().empty());
    n.done(0, 0);
    n.flush();
    const auto demand = n.said<wire::Demand>().at(0).launches.at(0);
    CHECK(demand.keys == std::vector<wire::KeyRange>{{coll_key(kCommA, 1), 2}, {coll_key(kCommB, 1), 1}});
    CHECK(demand.behind);
    n.done(0, 1);
    n.flush();
    CHECK(n.said<wire::Demand>().size() == 1);
    n.take();
    n.connect(8);
    n.enforce(kCommA);
    n.enforce(kCommB);
    const auto snapshots = n.said<wire::Snapshot>();
    REQUIRE(snapshots.size() == 1);
    REQUIRE(snapshots[0].launches.size() == 1);
    CHECK(!snapshots[0].launches[0].demand.behind);
}

// The controller counts on it: a demand that has crossed the grant of such a run does not take it back.
TEST_CASE("a gate before two communicators goes by a run that covers all of it, when one has its turn") {
    Node n;
    put_one_gate(n);
    n.grant(2, {}, {{coll_key(kCommA, 1), 10}, {coll_key(kCommB, 1), 10}});
    CHECK(!n.went(0, 2));
    n.done(0, 0);
    n.flush();
    CHECK(n.went(0, 2));
    CHECK(n.said<wire::Demand>().empty());
}

TEST_CASE("behind an open gate of two communicators the next launch of one is asked for, and those after it are not") {
    Node n;
    put_one_gate(n);
    n.launch(0, 5, {coll(1, 2)});
    n.launch(0, 6, {coll(1, 3)});
    n.done(0, 0);
    n.done(0, 1);
    n.flush();
    n.take();
    n.grant(2, {{0, 2}});
    n.flush();
    const auto demands = n.said<wire::Demand>();
    REQUIRE(demands.size() == 1);
    REQUIRE(demands[0].launches.size() == 1);
    CHECK(demands[0].launches[0].launch == wire::LocalLaunch{0, 5});
    CHECK(demands[0].launches[0].behind);
    n.grant(3, {{0, 5}});
    n.take();
    n.done(0, 5);  // before the one that was let go first
    n.flush();
    CHECK(n.said<wire::Demand>().at(0).launches.at(0).launch == wire::LocalLaunch{0, 6});
}

TEST_CASE("behind a host gate a launch over two communicators waits for both their turns") {
    Node n;
    n.connect();
    n.rank(0);
    n.comm(0, 0, kCommA, 0, 2);
    n.comm(0, 1, kCommB, 0, 2);
    n.flush();
    n.enforce(kCommA);
    n.enforce(kCommB);
    n.take();
    n.record(0, 0, {coll(1, 0)}, ring::Gate::host);  // another thread waits there: it posts its kernel before this one does
    n.ready(0, 0);
    n.record(0, 1, {coll(0, 0), coll(1, 1)}, ring::Gate::host);
    n.ready(0, 1);
    n.flush();
    CHECK(n.said<wire::Demand>().at(0).launches.size() == 1);
    n.take();
    n.grant(1, {{0, 0}});
    n.flush();
    CHECK(n.said<wire::Demand>().at(0).launches.at(0).launch == wire::LocalLaunch{0, 1});
}

TEST_CASE("D1: a launch over two sequences does not start when a run covers only one") {
    Node n;
    n.connect();
    n.rank(0);
    n.comm(0, 0, kCommA, 0, 2);
    n.comm(0, 1, kCommB, 0, 2);
    n.flush();
    n.enforce(kCommA);
    n.enforce(kCommB);
    n.take();
    n.grant(1, {}, {{coll_key(kCommA, 0), 10}});
    n.launch(0, 0, {coll(0, 0), coll(1, 0)});
    n.flush();
    CHECK(!n.went(0, 0));
    CHECK(n.said<wire::Demand>().size() == 1);
    n.grant(2, {}, {{coll_key(kCommB, 0), 10}});
    CHECK(n.went(0, 0));
}

TEST_CASE("launches under a run start and end without a message; the run's end tells all") {
    Node n;
    n.serve(1);
    n.grant(1, {}, {{coll_key(kCommA, 0), 2}});
    n.take();
    for (std::uint64_t i = 0; i < 3; ++i) n.launch(0, i, {coll(0, i)});
    n.flush();
    CHECK(n.went(0, 0));
    n.done(0, 0);
    n.flush();
    CHECK(n.went(0, 1));
    CHECK(n.frames.empty());
    n.done(0, 1);
    n.flush();
    CHECK(!n.went(0, 2));  // beyond the run
    REQUIRE(n.frames.size() == 1);
    const auto done = n.said<wire::Done>().at(0);
    CHECK(done.ended == std::vector<std::uint64_t>{1});
    REQUIRE(done.ran.size() == 2);
    CHECK(done.launches.empty());
    CHECK(done.ran[1].demand.keys == std::vector<wire::KeyRange>{{coll_key(kCommA, 1), 1}});
    CHECK(done.ran[1].done.launch == wire::LocalLaunch{0, 1});
    CHECK(n.said<wire::Demand>().at(0).launches.at(0).launch == wire::LocalLaunch{0, 2});
}

TEST_CASE("the end of a granted launch waits for the run that goes on, not for ever") {
    Node n;
    n.serve(1);
    n.launch(0, 0, {coll(0, 0)});
    n.flush();
    n.grant(1, {{0, 0}}, {{coll_key(kCommA, 1), 2}});
    n.take();
    n.done(0, 0);
    n.flush();
    CHECK(n.frames.empty());
    n.advance(2 * kSecond);  // with the heartbeat
    REQUIRE(n.said<wire::Done>().size() == 1);
    CHECK(n.said<wire::Done>()[0].launches.size() == 1);
    n.take();
    // A launch of the grant with a part that the run does not cover holds more than the run does: reported at once.
    n.launch(0, 1, {coll(0, 1), send(0, 1, 0)});
    n.flush();
    n.grant(2, {{0, 1}}, {{coll_key(kCommA, 2), 2}});
    n.take();
    n.done(0, 1);
    n.flush();
    CHECK(n.said<wire::Done>().size() == 1);
}

TEST_CASE("a run is used up when all members of the node have finished it, or are gone") {
    Node n;
    n.serve(3);
    n.grant(9, {}, {{coll_key(kCommA, 0), 1}});
    n.take();
    for (RankId r = 0; r < 2; ++r) {
        n.launch(r, 0, {coll(0, 0)});
        n.done(r, 0);
    }
    n.flush();
    CHECK(n.frames.empty());
    n.look(RankDown{2});
    REQUIRE(n.said<wire::Done>().size() == 1);
    CHECK(n.said<wire::Done>()[0].ended == std::vector<std::uint64_t>{9});
    CHECK(n.said<wire::Done>()[0].ran.size() == 2);
}

TEST_CASE("a run over a ring's circuits does not let an all-to-all start") {
    Node n;
    n.serve(1);
    n.grant(1, {}, {{coll_key(kCommA, 0), 2}});
    auto op = coll(0, 0);
    op.kind = static_cast<std::uint8_t>(OpKind::all_to_all);
    n.launch(0, 0, {op});
    n.flush();
    CHECK(!n.went(0, 0));
}

TEST_CASE("a range of keys is covered by runs that join, and not by runs with a hole") {
    Node n;
    n.serve(1);
    n.launch(0, 0, {send(0, 1, 0, 4)});
    n.flush();
    n.grant(1, {}, {{p2p_key(kCommA, 0, 1, 2), 2}});
    CHECK(!n.went(0, 0));
    n.grant(2, {}, {{p2p_key(kCommA, 0, 1, 0), 1}});
    CHECK(!n.went(0, 0));
    n.grant(3, {}, {{p2p_key(kCommA, 0, 1, 1), 1}});
    CHECK(n.went(0, 0));
}

TEST_CASE("a grant that comes before its launch is ready waits for it") {
    Node n;
    n.serve(1);
    n.record(0, 0, {coll(0, 0)});
    n.grant(1, {{0, 0}});
    CHECK(!n.went(0, 0));
    n.take();
    n.ready(0, 0);
    n.flush();
    CHECK(n.went(0, 0));
    CHECK(n.said<wire::Demand>().empty());
}

TEST_CASE("slots become free in ring order, while there are enough") {
    Node n;
    n.connect();
    n.rank(0);
    n.comm(0, 0, kCommA, 0, 2);
    n.comm(0, 1, kCommB, 0, 2);
    n.flush();
    n.record(0, 0, {coll(0, 0), coll(0, 1), coll(0, 2)});  // two slots
    n.record(0, 2, {coll(1, 0)});
    n.done(0, 2);
    n.flush();
    CHECK(!n.retired.contains(0));
    CHECK(n.core.pending());
    n.done(0, 0);
    n.flush();
    CHECK(n.retired[0] == 3);
    CHECK(!n.core.pending());
}

namespace {

// Launch 0 is a receive that nobody serves; of the launches after it all but those in `open` end at once.
struct Overtaken : Node {
    explicit Overtaken(std::uint16_t flags = ring::kLaunchSkips) : flags_(flags) {
        connect();
        on(RankUp{{0, 100, kNone, 1'000, Policy::proceed, "job"}, Mode::enforce, false, 64});
        comm(0, 0, kCommA, 0, 2);
        comm(0, 1, kCommB, 0, 2);
        flush();
        enforce(kCommA);
        enforce(kCommB);
        record(0, 0, {coll(1, 0)}, ring::Gate::stream, flags);
    }
    void play(std::uint64_t begin, std::uint64_t end, std::set<std::uint64_t> open = {}) {
        for (std::uint64_t seq = begin; seq < end; ++seq) {
            record(0, seq, {coll(0, seq)}, ring::Gate::host, flags_);
            ready(0, seq);
            flush();
            grant(seq + 1, {{0, seq}});
            if (!open.contains(seq)) done(0, seq);
            flush();
        }
    }

private:
    std::uint16_t flags_;
};

}  // namespace

TEST_CASE("a launch that does not end is passed over before the ring is full") {
    Overtaken n;
    n.play(1, 20);
    CHECK(!n.retired.contains(0));
    n.play(20, 64);
    CHECK(n.retired.at(0) > 30);
    std::vector<Slots> occupied;
    for (const Retired& r : n.taken<Retired>()) {
        CHECK(r.freed.empty());
        occupied.insert(occupied.end(), r.occupied.begin(), r.occupied.end());
    }
    CHECK(occupied == std::vector<Slots>{{0, 1}});
    // Its slot goes round empty. It can still be let go, and ends as any other.
    n.play(65, 128);
    CHECK(n.retired.at(0) > 90);
    n.take();
    n.ready(0, 0);
    n.flush();
    CHECK(n.said<wire::Demand>().at(0).launches.at(0).launch == wire::LocalLaunch{0, 0});
    n.grant(999, {{0, 0}});
    CHECK(n.went(0, 0));
    n.done(0, 0);
    n.flush();
    CHECK(n.taken<Retired>().at(0).freed == std::vector<Slots>{{0, 1}});
    CHECK(n.retired.at(0) == 128);
    CHECK(!n.core.pending());
}

TEST_CASE("slots that were skipped behind a launch that does not end are free again before the ring is full") {
    Overtaken n;
    // What lay in them was done, and it had not been reported.
    n.record(0, 20, {coll(0, 1)}, ring::Gate::host, ring::kLaunchSkips);
    CHECK(!n.retired.contains(0));
    n.record(0, 50, {coll(0, 2)}, ring::Gate::host, ring::kLaunchSkips);
    n.flush();
    CHECK(n.retired.at(0) == 50);
    std::vector<Slots> occupied;
    for (const Retired& r : n.taken<Retired>()) occupied.insert(occupied.end(), r.occupied.begin(), r.occupied.end());
    CHECK(occupied == std::vector<Slots>{{0, 1}, {20, 1}});
    CHECK(n.core.check() == "");
}

TEST_CASE("nothing is passed over for a shim that knows of no occupied slots") {
    Overtaken n(0);
    n.play(1, 64);
    CHECK(!n.retired.contains(0));
    n.done(0, 0);
    n.flush();
    CHECK(n.retired.at(0) == 64);
    for (const Retired& r : n.taken<Retired>()) CHECK(r.occupied.empty());
}

TEST_CASE("the entry of a communicator is not freed while a launch that was passed over names it") {
    Overtaken n;
    n.play(1, 64);
    n.grant(999, {}, {{coll_key(kCommB, 0), 1'000}});
    n.on(Ready{0, 0});
    n.on(DoneSeen{0, 0});  // it has not been reported: the ring keeps it
    n.on(CommDown{0, 1});
    CHECK(n.taken<FreeComm>().empty());
    n.flush();
    REQUIRE(n.taken<FreeComm>().size() == 1);
    CHECK(n.taken<FreeComm>()[0].index == 1);
}

TEST_CASE("entries of communicators that come and go are freed behind a launch that does not end") {
    Overtaken n;
    n.on(RankUp{{1, 100, kNone, 1'000, Policy::proceed, "job"}, Mode::enforce, false, 4096});
    n.comm(1, 0, kCommA, 1, 2);
    n.record(1, 0, {coll(0, 0)}, ring::Gate::stream, ring::kLaunchSkips);
    for (std::uint64_t i = 1; i < 200; ++i) {
        n.comm(1, 1, CommId{9, i}, 0, 2);
        n.record(1, i, {coll(1, 0)}, ring::Gate::host, ring::kLaunchSkips);
        n.on(CommDown{1, 1});
        n.done(1, i);
        n.flush();
    }
    CHECK(n.taken<FreeComm>().size() > 100);
}

TEST_CASE("what ended under a run is reported before the ring is short of slots, and then its slots are free") {
    Overtaken n;
    n.grant(1, {}, {{coll_key(kCommA, 0), 1'000}});
    for (std::uint64_t i = 1; i < 64; ++i) {
        n.record(0, i, {coll(0, i)}, ring::Gate::host, ring::kLaunchSkips);
        n.ready(0, i);
        n.done(0, i);
    }
    n.flush();
    CHECK(n.said<wire::Done>().size() > 0);
    CHECK(n.retired.at(0) > 30);
}

TEST_CASE("what ended under a run between slots that were passed over is reported soon: a row of free slots may need its own") {
    Overtaken n;
    n.play(1, 64);  // one is passed over
    n.grant(999, {}, {{coll_key(kCommA, 65), 1'000}});
    n.record(0, 65, {coll(0, 65)}, ring::Gate::host, ring::kLaunchSkips);
    n.ready(0, 65);
    n.flush();
    n.take();
    n.done(0, 65);
    n.flush();
    CHECK(n.said<wire::Done>().size() == 1);
    CHECK(n.retired.at(0) == 66);
}

TEST_CASE("a ring keeps what ended under a run until it is reported, but not many slots") {
    Node n;
    n.serve(1);
    n.grant(1, {}, {{coll_key(kCommA, 0), 1'000}});
    for (std::uint64_t i = 0; i < 20; ++i) {
        n.launch(0, i, {coll(0, i)});
        n.done(0, i);
    }
    n.flush();
    CHECK(n.retired.count(0) == 0);
    n.advance(2 * kSecond);  // reported with the heartbeat
    CHECK(n.retired.at(0) == 20);
    n.take();
    for (std::uint64_t i = 20; i < 160; ++i) {
        n.launch(0, i, {coll(0, i)});
        n.done(0, i);
        n.flush();
    }
    CHECK(n.said<wire::Done>().size() == 1);
    CHECK(n.retired.at(0) > 140);
    n.look(ControllerDown{});  // to nobody: nothing is kept
    n.launch(0, 160, {coll(0, 160)});
    n.done(0, 160);
    n.flush();
    CHECK(n.retired.at(0) == 161);
}

TEST_CASE("launches of an observing rank are never asked for and their end is reported") {
    Node n;
    n.connect();
    n.rank(0, Mode::observe);
    n.comm(0, 0, kCommA, 0, 2);
    n.flush();
    n.hear(wire::Verdicts{{{kCommA, Verdict::passes}}});
    n.take();
    n.record(0, 0, {coll(0, 0)}, ring::Gate::none, ring::kLaunchUngated);
    n.flush();
    CHECK(n.frames.empty());
    CHECK(!n.went(0, 0));
    n.done(0, 0);
    n.flush();
    CHECK(n.said<wire::Demand>().empty());
    const wire::Done reported = n.said<wire::Done>().at(0);
    CHECK(reported.launches.empty());
    CHECK(reported.seen.at(0).done.ungated);
    CHECK(reported.seen.at(0).comm == kCommA);
    CHECK(reported.seen.at(0).op == OpKind::all_reduce);
}

TEST_CASE("with gates switched off launches are asked for in stream order, without being reached") {
    Node n;
    n.connect();
    n.rank(0);
    n.comm(0, 0, kCommA, 0, 2);
    n.comm(0, 1, kCommB, 0, 2);
    n.flush();
    n.enforce(kCommA);
    n.enforce(kCommB);
    n.take();
    n.record(0, 0, {coll(0, 0)}, ring::Gate::none);
    n.record(0, 1, {coll(1, 0)}, ring::Gate::none);  // the same stream
    n.flush();
    REQUIRE(n.said<wire::Demand>().size() == 1);
    CHECK(n.said<wire::Demand>()[0].launches.size() == 1);
    n.take();
    n.done(0, 0);
    n.flush();
    REQUIRE(n.said<wire::Demand>().size() == 1);
    CHECK(n.said<wire::Demand>()[0].launches.at(0).launch == wire::LocalLaunch{0, 1});
}

TEST_CASE("the memory kept for a rank ends with its launches and with the rank") {
    Node n;
    n.serve(2);
    for (std::uint64_t seq = 0; seq < 10'000; ++seq) {
        n.launch(0, seq, {coll(0, seq)});
        n.flush();
        n.grant(seq + 1, {{0, seq}});
        n.done(0, seq);
        n.flush();
        n.take();
    }
    CHECK(n.retired[0] == 10'000);
    n.hear(wire::Resync{"tell all"});
    n.connect();
    const auto snapshot = n.said<wire::Snapshot>().at(0);
    CHECK(snapshot.launches.empty());
    CHECK(snapshot.tokens.empty());
    CHECK(snapshot.comms.at(0).done.size() == 1);  // one a sequence, however long
    n.on(RankDown{0});
    n.on(RankDown{1});
    n.flush();
    CHECK(!n.core.pending());
    CHECK(n.core.check() == "");
}

TEST_CASE("events for ranks and launches that do not exist are counted and change nothing") {
    Node n;
    n.serve(1);
    n.on(Ready{0, 17});
    n.on(DoneSeen{0, 17});
    n.on(RankDown{5});
    n.on(CommUp{5, 0, 1, {}, Verdict::unknown});
    n.on(CommDown{0, 9});
    n.on(CommUp{0, 300, 1, {}, Verdict::unknown});
    n.grant(1, {{0, 17}, {4, 2}});
    n.hear(wire::Pass{{{4, 2}}, Policy::abort, "?"});
    CHECK(n.core.counters().rejected >= 4);
    CHECK(n.go.empty());
}

TEST_CASE(
    "a launch behind a host gate is reported as behind others: its streams may not have come to it; a connection is "
    "not") {
    Node n;
    n.serve(1);
    n.record(0, 0, {coll(0, 0)}, ring::Gate::host);
    n.ready(0, 0);
    n.flush();
    REQUIRE(n.said<wire::Demand>().size() == 1);
    CHECK(n.said<wire::Demand>().at(0).launches.at(0).behind);
    n.grant(1, {{0, 0}});
    n.done(0, 0);
    n.take();
    n.record(0, 1, {send(0, 1, 0)}, ring::Gate::host, ring::kLaunchConn);
    n.ready(0, 1);
    n.flush();
    REQUIRE(n.said<wire::Demand>().size() == 1);
    CHECK(!n.said<wire::Demand>().at(0).launches.at(0).behind);
}

TEST_CASE("behind a host gate a launch waits until those before it in its communicator have been let go, not until they are done") {
    Node n;
    n.serve(1);
    n.launch(0, 0, {recv(0, 1, 0)});
    n.record(0, 1, {send(0, 1, 0)}, ring::Gate::host);
    n.ready(0, 1);
    n.record(0, 2, {send(0, 1, 1)});  // behind a gate in a stream
    n.ready(0, 2);
    n.flush();
    REQUIRE(n.said<wire::Demand>().size() == 1);
    CHECK(n.said<wire::Demand>().at(0).launches.size() == 1);
    CHECK(n.said<wire::Demand>().at(0).launches.at(0).launch == wire::LocalLaunch{0, 0});
    n.take();
    n.grant(1, {{0, 0}});
    n.flush();
    REQUIRE(n.said<wire::Demand>().size() == 1);
    CHECK(n.said<wire::Demand>().at(0).launches.size() == 1);
    CHECK(n.said<wire::Demand>().at(0).launches.at(0).launch == wire::LocalLaunch{0, 1});
    n.take();
    n.grant(2, {{0, 1}});
    n.flush();
    CHECK(n.said<wire::Demand>().empty());
    n.done(0, 0);
    n.done(0, 1);
    n.flush();
    REQUIRE(n.said<wire::Demand>().size() == 1);
    CHECK(n.said<wire::Demand>().at(0).launches.at(0).launch == wire::LocalLaunch{0, 2});
}

TEST_CASE("a launch is reported as behind others while its own call still connects, for its kernel comes after that") {
    Node n;
    n.connect();
    n.rank(0);
    n.comm(0, 0, kCommA, 0, 2, 7);
    n.comm(0, 1, kCommB, 0, 2, 8);
    n.flush();
    n.enforce(kCommA);
    n.enforce(kCommB);
    n.take();
    n.record(0, 0, {coll(0, 0, ring::kOpFirstUse)}, ring::Gate::host, ring::kLaunchConn);
    n.ready(0, 0);
    n.launch(0, 1, {coll(1, 3)});  // of the same call, on a communicator that is connected
    n.flush();
    std::map<std::uint64_t, bool> behind;
    for (const wire::Demand& demand : n.said<wire::Demand>())
        for (const wire::LaunchDemand& launch : demand.launches) behind[launch.launch.seq] = launch.behind;
    CHECK(behind == std::map<std::uint64_t, bool>{{0, false}, {1, true}});
    n.grant(1, {{0, 0}, {0, 1}});
    n.flush();
    n.take();
    n.done(0, 0);
    n.done(0, 1);
    n.launch(0, 2, {coll(1, 4)});
    n.flush();
    REQUIRE(n.said<wire::Demand>().size() == 1);
    CHECK(!n.said<wire::Demand>().at(0).launches.at(0).behind);
}
