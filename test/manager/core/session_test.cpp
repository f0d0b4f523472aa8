// Sessions, snapshots, verdicts, passing, recall, hold, restart.
#include "test/manager/core/node.h"

using namespace opus;
using namespace opus::manager;
using namespace opus::manager::test;

TEST_CASE("a session begins with hello, and welcome is answered by a snapshot") {
    Node n;
    n.look(ControllerUp{++n.session});
    const auto hellos = n.said<wire::Hello>();
    REQUIRE(hellos.size() == 1);
    CHECK(hellos[0].node == "n0");
    CHECK(hellos[0].session == n.session);
    CHECK(hellos[0].known_epoch == 0);
    n.take();
    n.hear(wire::Welcome{n.session, 7, 3, {}});
    CHECK(n.said<wire::Snapshot>().size() == 1);
    CHECK(n.taken<SetNode>().at(0).node == 3);
    n.take();
    n.look(ControllerDown{});
    n.look(ControllerUp{++n.session});
    CHECK(n.said<wire::Hello>().at(0).known_epoch == 7);
}

TEST_CASE("ranks and communicators that came at one look are reported in one message") {
    Node n;
    n.connect();
    n.take();
    for (RankId r = 0; r < 4; ++r) {
        n.rank(r);
        n.comm(r, 0, kCommA, r, 8);
    }
    n.flush();
    const auto registers = n.said<wire::Register>();
    REQUIRE(registers.size() == 1);
    CHECK(registers[0].comms.size() == 4);
    CHECK(n.frames.size() == 1);
}

TEST_CASE("frames of another session or epoch are dropped") {
    Node n;
    n.serve(1);
    n.launch(0, 0, {coll(0, 0)});
    n.flush();
    const auto before = n.core.counters().rejected;
    n.look(FromController{n.epoch, n.session + 1, wire::Grant{1, {{0, 0}}, {}, {}}});
    n.look(FromController{n.epoch + 1, n.session, wire::Grant{1, {{0, 0}}, {}, {}}});
    CHECK(!n.went(0, 0));
    CHECK(n.core.counters().rejected == before + 2);
}

TEST_CASE("a controller of an older epoch is not followed") {
    Node n;
    n.connect(7);
    n.look(ControllerDown{});
    n.take();
    n.epoch = 6;
    n.look(ControllerUp{++n.session});
    n.hear(wire::Welcome{n.session, 6, 0, {}});
    CHECK(n.said<wire::Snapshot>().empty());
    n.advance(3 * kSecond);
    CHECK(n.taken<EndSession>().size() == 1);
}

TEST_CASE("how long a controller may be silent is its own to say; one that does not is given three seconds") {
    for (const auto& [told_ms, lost_ms, beat_ms] :
         {std::tuple{0, 3'000, 1'000}, {6'000, 6'000, 1'000}, {1'500, 2'000, 500}, {1, 2'000, 100}}) {
        CAPTURE(told_ms);
        Node n;
        n.look(ControllerUp{++n.session});
        wire::Welcome welcome{n.session, n.epoch, 0, {{0, 2, "", "r0"}}};
        welcome.silence_ms = static_cast<std::uint32_t>(told_ms);
        n.hear(welcome);
        n.take();
        const TimeNs heard = n.now;
        CHECK(n.wake_at <= heard + beat_ms * kMs * 9 / 8);
        n.advance(beat_ms * kMs - 1);
        CHECK(n.said<wire::Heartbeat>().empty());
        n.advance(1);
        CHECK(n.said<wire::Heartbeat>().size() == 1);
        n.advance(heard + lost_ms * kMs - 1 - n.now);
        CHECK(n.taken<EndSession>().empty());
        n.advance(1);
        CHECK(n.taken<EndSession>().size() == 1);
    }
}

TEST_CASE("a refusal is shown once and tried again later") {
    Node n;
    int shown = 0;
    for (int i = 0; i < 3; ++i) {
        n.look(ControllerUp{++n.session});
        n.take();
        n.hear(wire::Refused{n.session, "node n0 is not in the fabric file"});
        for (const Log& log : n.taken<Log>()) shown += log.text.find("not in the fabric") != std::string::npos;
        CHECK(n.taken<EndSession>().empty());
        n.advance(2 * kSecond);
        CHECK(n.taken<EndSession>().size() == 1);
    }
    CHECK(shown == 1);
}

TEST_CASE("a silent controller is given up, and so is one that never answers hello") {
    Node n;
    n.look(ControllerUp{++n.session});
    n.advance(6 * kSecond);
    CHECK(n.taken<EndSession>().size() == 1);
    n.take();
    n.connect();
    n.advance(6 * kSecond);
    CHECK(n.taken<EndSession>().size() == 1);
}

TEST_CASE("heartbeats go once a second, together with the controller's where there are any") {
    Node n;
    n.connect();
    n.take();
    for (int i = 0; i < 10; ++i) {
        n.now += kSecond;
        n.hear(wire::Heartbeat{1});
        CHECK(n.wake_at > n.now + kSecond);  // the next one of the controller wakes us, not our own clock
    }
    CHECK(n.said<wire::Heartbeat>().size() == 10);
    n.take();
    n.now = n.wake_at;
    n.look(Tick{});
    CHECK(n.said<wire::Heartbeat>().size() == 1);
}

TEST_CASE("a communicator that stays inside an NVLink domain, as only the controller knows, never asks") {
    Node n;
    n.connect();
    n.rank(0);
    n.comm(0, 0, kCommA, 0, 2);
    n.flush();
    CHECK(n.verdicts.count({0, 0}) == 0);
    n.hear(wire::Verdicts{{{kCommA, Verdict::intra}}});
    CHECK(n.verdicts.at({0, 0}) == Verdict::intra);
    n.take();
    n.launch(0, 0, {coll(0, 0)});
    n.flush();
    CHECK(n.went(0, 0));
    CHECK(n.said<wire::Demand>().empty());
}

TEST_CASE("a communicator whose members are all here never asks, whatever the controller says") {
    Node n;
    n.connect();
    for (RankId r = 0; r < 3; ++r) {
        n.rank(r);
        n.comm(r, 0, kCommA, r, 3);
    }
    n.flush();
    for (RankId r = 0; r < 3; ++r) CHECK(n.verdicts.at({r, 0}) == Verdict::intra);
    n.hear(wire::Verdicts{{{kCommA, Verdict::enforced}}});
    CHECK(n.verdicts.at({0, 0}) == Verdict::intra);
    n.take();
    n.launch(0, 0, {coll(0, 0)});
    n.flush();
    CHECK(n.went(0, 0));
    n.done(0, 0);
    n.flush();
    CHECK(n.frames.empty());
}

TEST_CASE("two entries of the same member do not make a communicator whole") {
    Node n;
    n.connect();
    n.rank(0);
    n.rank(1);
    n.comm(0, 0, kCommA, 0, 2);
    n.comm(1, 0, kCommA, 0, 2);
    n.flush();
    CHECK(n.verdicts.empty());
}

TEST_CASE("launches that were ready without a verdict wait for it") {
    Node n;
    n.connect();
    n.rank(0);
    n.comm(0, 0, kCommA, 0, 2);
    n.flush();
    n.take();
    n.launch(0, 0, {coll(0, 0)});
    n.flush();
    CHECK(n.frames.empty());
    CHECK(!n.went(0, 0));
    SUBCASE("enforced: asked for") {
        n.enforce(kCommA);
        CHECK(n.said<wire::Demand>().size() == 1);
        CHECK(n.verdicts.at({0, 0}) == Verdict::enforced);
    }
    SUBCASE("passes: let go") {
        n.hear(wire::Verdicts{{{kCommA, Verdict::passes}}});
        CHECK(n.went(0, 0));
        CHECK(n.said<wire::Demand>().empty());
    }
}

TEST_CASE("a degraded communicator's waiting launches go at once and end as ungated") {
    Node n;
    n.serve(1);
    n.launch(0, 0, {coll(0, 0)});
    n.flush();
    n.take();
    n.hear(wire::Verdicts{{{kCommA, Verdict::degraded}}});
    CHECK(n.went(0, 0));
    CHECK(n.go.at({0, 0}) == false);
    CHECK(n.verdicts.at({0, 0}) == Verdict::degraded);
    n.done(0, 0);
    n.flush();
    CHECK(n.said<wire::Done>().at(0).launches.at(0).ungated);
}

TEST_CASE("lost launches degrade their communicator by the controller's word, reported again to a new one") {
    Node n;
    n.serve(1);
    n.look(CommLost{0, 0});
    REQUIRE(n.said<wire::Retire>().size() == 1);
    CHECK(n.said<wire::Retire>()[0].degraded.at(0).comm == kCommA);
    n.look(ControllerDown{});
    n.take();
    n.connect(8);
    n.flush();
    REQUIRE(n.said<wire::Retire>().size() == 1);
    CHECK(n.said<wire::Retire>()[0].degraded.at(0).comm == kCommA);
    n.hear(wire::Verdicts{{{kCommA, Verdict::degraded}}});
    n.take();
    n.look(CommLost{0, 0});
    CHECK(n.frames.empty());
}

TEST_CASE("pass lets a launch go, abort makes it fail") {
    Node n;
    n.serve(2);
    n.launch(0, 0, {coll(0, 0)});
    n.launch(1, 0, {coll(0, 0)});
    n.flush();
    n.hear(wire::Pass{{{0, 0}}, Policy::proceed, "port n0.g0.p0 is fenced"});
    n.hear(wire::Pass{{{1, 0}}, Policy::abort, "port n0.g0.p0 is fenced"});
    CHECK(n.go.at({0, 0}) == false);
    CHECK(n.go.at({1, 0}) == true);
    n.take();
    n.done(0, 0);
    n.done(1, 0);
    n.flush();
    const auto dones = n.said<wire::Done>();
    REQUIRE(dones.size() == 1);
    CHECK(dones[0].launches.size() == 2);
    for (const auto& done : dones[0].launches) CHECK(done.ungated);
}

TEST_CASE("a revocation takes runs back, says how far they were started, and tells what nobody had heard of") {
    Node n;
    n.serve(2);
    n.grant(4, {}, {{coll_key(kCommA, 0), 8}});
    n.launch(0, 0, {coll(0, 0)});
    n.done(0, 0);
    n.launch(0, 1, {coll(0, 1)});
    n.launch(1, 0, {coll(0, 0)});
    n.flush();
    n.take();
    n.hear(wire::Revoke{5, {}, {4}});
    const auto answers = n.said<wire::Returned>();
    REQUIRE(answers.size() == 1);
    CHECK(answers[0].started == std::vector<wire::LocalLaunch>{{0, 1}, {1, 0}});
    CHECK(answers[0].started_upto == std::vector<wire::KeyRange>{{coll_key(kCommA, 0), 2}});
    REQUIRE(answers[0].running.size() == 2);
    CHECK(answers[0].running[0].keys == std::vector<wire::KeyRange>{{coll_key(kCommA, 1), 1}});
    REQUIRE(n.said<wire::Done>().size() == 1);  // and before it, what has ended
    CHECK(n.said<wire::Done>()[0].ran.size() == 1);
    CHECK(std::holds_alternative<wire::Done>(n.frames[0][0]));
    n.take();
    n.done(1, 0);
    n.launch(1, 1, {coll(0, 1)});
    n.flush();
    CHECK(!n.went(1, 1));
    CHECK(n.said<wire::Demand>().size() == 1);
    CHECK(n.said<wire::Done>().at(0).launches.at(0).launch == wire::LocalLaunch{1, 0});  // known by now
}

TEST_CASE("a revocation leaves other runs alone") {
    Node n;
    n.serve(1);
    n.grant(4, {}, {{coll_key(kCommA, 0), 1}});
    n.grant(5, {}, {{coll_key(kCommA, 1), 1}});
    n.hear(wire::Revoke{4, {}, {5}});
    n.launch(0, 0, {coll(0, 0)});
    n.done(0, 0);
    n.launch(0, 1, {coll(0, 1)});
    n.flush();
    CHECK(n.went(0, 0));
    CHECK(!n.went(0, 1));
}

TEST_CASE("C1: a launch that was asked for and then started under a run is reported as started") {
    Node n;
    n.serve(1);
    n.launch(0, 0, {coll(0, 0)});
    n.flush();  // asked
    n.grant(4, {}, {{coll_key(kCommA, 0), 8}});
    CHECK(n.went(0, 0));
    n.hear(wire::Revoke{4, {}, {4}});
    CHECK(n.said<wire::Returned>().at(0).running.size() == 1);
}

TEST_CASE("what ran while there was no controller is reported to the next one") {
    Node n;
    n.serve(1);
    n.grant(4, {}, {{coll_key(kCommA, 0), 8}});
    n.look(ControllerDown{});
    n.launch(0, 0, {coll(0, 0)});
    n.done(0, 0);
    n.flush();
    n.take();
    n.connect(8);
    n.launch(0, 1, {coll(0, 1), send(0, 1, 0)});
    n.flush();
    CHECK(n.said<wire::Snapshot>().at(0).tokens.at(0).soft.at(0).count == 8);
    CHECK(n.said<wire::Done>().at(0).ran.size() == 1);
}

TEST_CASE("a snapshot is complete") {
    Node n;
    n.serve(4);
    const auto state_of = [](const wire::Snapshot& s, wire::LocalLaunch id) {
        for (const auto& l : s.launches)
            if (l.demand.launch == id) return static_cast<int>(l.state);
        return -1;
    };
    n.launch(0, 0, {coll(0, 0)});  // ready
    n.launch(1, 0, {coll(0, 0)});  // in flight
    n.launch(2, 0, {coll(0, 0)});  // suspended
    n.launch(3, 0, {coll(0, 0)});  // passed
    n.record(0, 1, {coll(0, 1)});  // not ready
    n.flush();
    n.grant(11, {{1, 0}, {2, 0}}, {{coll_key(kCommA, 40), 4}});
    n.hear(wire::Suspended{{{2, 0}}, false});
    n.hear(wire::Pass{{{3, 0}}, Policy::proceed, "because"});
    n.look(ControllerDown{});
    n.take();
    n.connect(8);
    REQUIRE(n.said<wire::Snapshot>().size() == 1);
    const wire::Snapshot s = n.said<wire::Snapshot>()[0];
    CHECK(s.ranks.size() == 4);
    CHECK(s.comms.size() == 4);
    CHECK(s.launches.size() == 4);
    CHECK(state_of(s, {0, 0}) == static_cast<int>(wire::LaunchState::ready));
    CHECK(state_of(s, {1, 0}) == static_cast<int>(wire::LaunchState::in_flight));
    CHECK(state_of(s, {2, 0}) == static_cast<int>(wire::LaunchState::suspended));
    CHECK(state_of(s, {3, 0}) == static_cast<int>(wire::LaunchState::passed));
    for (const auto& l : s.launches) CHECK(l.demand.keys.size() == 1);
    REQUIRE(s.tokens.size() == 1);
    CHECK(s.tokens[0].grant == 11);
    CHECK(s.tokens[0].firm == std::vector<wire::LocalLaunch>{{1, 0}, {2, 0}});
    CHECK(s.tokens[0].soft == std::vector<wire::KeyRange>{{coll_key(kCommA, 40), 4}});
    n.take();
    n.flush();
    CHECK(n.said<wire::Demand>().empty());  // the snapshot has asked already
    n.grant(12, {{0, 0}});
    CHECK(n.went(0, 0));
}

TEST_CASE("H: a snapshot tells which keys a member has finished") {
    Node n;
    n.serve(1);
    n.launch(0, 0, {coll(0, 0), send(0, 1, 0, 3)});
    n.flush();
    n.grant(1, {{0, 0}});
    n.look(ControllerDown{});
    n.done(0, 0);
    n.flush();
    n.take();
    n.connect(8);
    const auto comms = n.said<wire::Snapshot>().at(0).comms;
    REQUIRE(comms.size() == 1);
    auto done = comms[0].done;
    std::sort(done.begin(), done.end(), [](auto& a, auto& b) { return a.first < b.first; });
    CHECK(done == std::vector<wire::KeyRange>{{coll_key(kCommA, 0), 1}, {p2p_key(kCommA, 0, 1, 2), 1}});
}

TEST_CASE("tokens go on serving while there is no controller") {
    Node n;
    n.serve(1);
    n.grant(1, {}, {{coll_key(kCommA, 0), 4}});
    n.look(ControllerDown{});
    n.launch(0, 0, {coll(0, 0)});
    n.flush();
    CHECK(n.went(0, 0));
}

TEST_CASE("runs are let go before a controller that hears nothing of this node takes them for over") {
    for (const std::uint32_t grace_ms : {12'000u, 2'000u, 0u}) {  // 2 s: before its silence is noticed; 0: not told
        CAPTURE(grace_ms);
        Node n;
        n.serve(1);
        n.look(ControllerUp{++n.session});
        wire::Welcome welcome{n.session, n.epoch, 0, {{0, 2, "", "r0"}}};
        welcome.grace_ms = grace_ms;
        n.hear(welcome);
        n.grant(9, {}, {{coll_key(kCommA, 0), 8}});
        const TimeNs heard = n.now, end = TimeNs(grace_ms) * 3 / 4 * kMs;
        n.advance(end == 0 ? 9 * kSecond : end - 1 * kMs);
        n.launch(0, 0, {coll(0, 0)});
        n.flush();
        CHECK(n.went(0, 0));  // still under the run
        n.look(ControllerDown{});
        if (grace_ms != 0) CHECK(n.wake_at <= heard + end);
        n.now = heard + (end == 0 ? 100 * kSecond : end);
        n.take();
        n.done(0, 0);
        n.launch(0, 1, {coll(0, 1)});
        n.flush();
        CHECK(n.went(0, 1) == (grace_ms == 0));
        n.look(Tick{});
        n.look(ControllerUp{++n.session});
        n.hear(wire::Welcome{n.session, n.epoch, 0, {{0, 2, "", "r0"}}});
        const auto reported = n.said<wire::Snapshot>();
        REQUIRE(reported.size() == 1);
        CHECK(reported[0].tokens.empty() == (grace_ms != 0));
        CHECK(reported[0].launches.at(0).demand.launch.seq == 1);
        CHECK((reported[0].launches[0].state == wire::LaunchState::ready) == (grace_ms != 0));
    }
}

TEST_CASE("what is ready while there is no controller is asked for by the next snapshot") {
    Node n;
    n.serve(1);
    n.look(ControllerDown{});
    n.take();
    n.launch(0, 0, {coll(0, 0)});
    n.flush();
    CHECK(n.frames.empty());
    n.connect(8);
    CHECK(n.said<wire::Snapshot>().at(0).launches.size() == 1);
}

TEST_CASE("the hold runs only while there is no controller") {
    Node n;
    n.serve(1);  // hold 1 s
    n.launch(0, 0, {coll(0, 0)});
    n.flush();
    for (int i = 0; i < 100; ++i) {  // a late peer: a minute and more
        n.now += kSecond;
        n.hear(wire::Heartbeat{1});
    }
    CHECK(!n.went(0, 0));
    n.look(ControllerDown{});
    n.advance(900 * kMs);
    CHECK(!n.went(0, 0));
    CHECK(n.wake_at == n.now + 100 * kMs);
    n.advance(100 * kMs);
    CHECK(n.went(0, 0));
    CHECK(n.go.at({0, 0}) == false);
    CHECK(n.verdicts.at({0, 0}) == Verdict::degraded);
    CHECK(n.core.counters().expired == 1);

    n.take();
    n.connect(8);
    n.flush();
    CHECK(n.said<wire::Expired>().at(0).launches == std::vector<wire::LocalLaunch>{{0, 0}});
    const auto snapshot = n.said<wire::Snapshot>().at(0);
    REQUIRE(snapshot.launches.size() == 1);
    CHECK(snapshot.launches[0].state == wire::LaunchState::passed);
    CHECK(n.said<wire::Retire>().at(0).degraded.at(0).comm == kCommA);
}

TEST_CASE("what was held, passed after the hold and is done is reported: a peer may wait for it yet") {
    Node n;
    n.serve(1);  // hold 1 s
    n.launch(0, 0, {coll(0, 0)});
    n.flush();
    n.look(ControllerDown{});
    n.advance(kSecond);
    REQUIRE(n.verdicts.at({0, 0}) == Verdict::degraded);
    n.done(0, 0);
    n.flush();
    n.take();
    n.connect(8);
    n.flush();
    const auto comms = n.said<wire::Snapshot>().at(0).comms;
    REQUIRE(comms.size() == 1);
    CHECK(comms[0].done == std::vector<wire::KeyRange>{{coll_key(kCommA, 0), 1}});
}

TEST_CASE("a rank that prefers to abort is told to when the hold is over") {
    Node n;
    n.connect();
    n.rank(0, Mode::enforce, 500, Policy::abort);
    n.comm(0, 0, kCommA, 0, 2);
    n.flush();
    n.enforce(kCommA);
    n.launch(0, 0, {coll(0, 0)});
    n.flush();
    n.look(ControllerDown{});
    n.advance(500 * kMs);
    CHECK(n.go.at({0, 0}) == true);
    CHECK(n.verdicts.at({0, 0}) == Verdict::enforced);
}

TEST_CASE("a communicator that nobody can judge is not waited for longer than the hold") {
    Node n;
    n.look(Tick{});
    n.rank(0);
    n.comm(0, 0, kCommA, 0, 2);
    n.flush();
    CHECK(n.wake_at == n.now + kSecond);
    n.advance(kSecond);
    CHECK(n.verdicts.at({0, 0}) == Verdict::degraded);
}

TEST_CASE("while no controller comes, only the first communicator is waited for") {
    Node n;
    n.look(Tick{});
    n.rank(0);
    n.rank(1);
    n.comm(0, 0, kCommA, 0, 2);
    n.advance(kSecond);
    REQUIRE(n.verdicts.at({0, 0}) == Verdict::degraded);
    n.comm(0, 1, kCommB, 0, 2);
    n.comm(1, 1, CommId{7, 7}, 0, 2);
    n.flush();
    CHECK(n.wake_at <= n.now);
    n.look(Tick{});
    CHECK(n.verdicts.at({0, 1}) == Verdict::degraded);
    CHECK(n.verdicts.at({1, 1}) == Verdict::degraded);

    n.connect(8);  // one that came and went may come again
    n.look(ControllerDown{});
    n.comm(0, 2, CommId{8, 8}, 0, 2);
    n.advance(900 * kMs);
    CHECK(!n.verdicts.contains({0, 2}));
    n.advance(100 * kMs);
    CHECK(n.verdicts.at({0, 2}) == Verdict::degraded);
}

TEST_CASE("while no controller comes, a rank that gave its communicator up has waited for all of its node") {
    Node n;
    n.look(Tick{});
    n.rank(0);
    n.comm(0, 0, kCommA, 0, 2);
    n.advance(900 * kMs);
    n.look(CommLost{0, 0});
    n.comm(0, 1, kCommB, 0, 2);
    n.flush();
    n.look(Tick{});
    CHECK(n.verdicts.at({0, 1}) == Verdict::degraded);
}

TEST_CASE("gates that opened by themselves are reported as expired") {
    Node n;
    n.serve(1);
    n.launch(0, 0, {coll(0, 0)});
    n.flush();
    n.take();
    n.look(GaveUp{0});
    CHECK(n.said<wire::Expired>().at(0).launches == std::vector<wire::LocalLaunch>{{0, 0}});
    n.done(0, 0);
    n.flush();
    CHECK(n.said<wire::Done>().at(0).launches.at(0).ungated);
}

TEST_CASE("a manager that is refused because of another ends once that one has been heard of meanwhile") {
    const auto refused_for = [](Node& n, TimeNs ns) {
        for (const TimeNs until = n.now + ns; n.now < until; n.advance(kSecond)) {
            if (!n.taken<EndSession>().empty()) n.look(ControllerUp{++n.session});
            n.take();
            n.hear(wire::Refused{n.session, "node n0 has a manager already", 3'000});
            if (!n.taken<End>().empty()) return true;
        }
        return false;
    };
    Node second;
    second.look(ControllerUp{++second.session});
    CHECK_FALSE(refused_for(second, 3 * kSecond));
    CHECK(refused_for(second, 3 * kSecond));

    Node late;  // the other one falls silent
    late.look(ControllerUp{++late.session});
    CHECK_FALSE(refused_for(late, 2 * kSecond));
    late.connect();
    CHECK_FALSE(refused_for(late, 10 * kSecond));  // it has served: its ranks have no other
}

TEST_CASE("a rank that ends is retired, its segment forgotten, the others go on") {
    Node n;
    n.serve(2);
    n.launch(0, 0, {coll(0, 0)});
    n.launch(1, 0, {coll(0, 0)});
    n.flush();
    n.take();
    n.look(RankDown{0});
    CHECK(n.said<wire::Retire>().at(0).ranks == std::vector<RankId>{0});
    CHECK(n.taken<ForgetRank>().at(0).rank == 0);
    n.grant(1, {{0, 0}, {1, 0}});
    CHECK(n.went(1, 0));
    CHECK(!n.went(0, 0));
}

TEST_CASE("a communicator that a rank had destroyed before it ended is reported as gone, not as lost") {
    Node n;
    n.serve(1);
    n.launch(0, 0, {coll(0, 0)});
    n.on(CommDown{0, 0});
    n.look(RankDown{0});
    const auto retires = n.said<wire::Retire>();
    REQUIRE(retires.size() == 1);
    CHECK(retires[0].ranks == std::vector<RankId>{0});
    REQUIRE(retires[0].comms.size() == 1);
    CHECK(retires[0].comms[0].comm == kCommA);
}

TEST_CASE("a communicator's entry is not freed while records that are not retired name it") {
    // Another manager would read them, and find the entry free, or another communicator's.
    Node n;
    n.serve(1);
    n.comm(0, 1, kCommB, 0, 2);
    n.flush();
    n.enforce(kCommB);
    n.launch(0, 0, {coll(0, 0)});
    n.launch(0, 1, {coll(1, 0)});
    n.flush();
    n.grant(1, {{0, 0}, {0, 1}});
    n.done(0, 1);
    n.look(CommDown{0, 1});
    n.flush();
    CHECK(n.taken<FreeComm>().empty());
    n.done(0, 0);
    n.flush();
    REQUIRE(n.taken<FreeComm>().size() == 1);
    CHECK(n.taken<FreeComm>()[0].index == 1);
}

TEST_CASE("a communicator's entry is freed when its launches are done, not before") {
    Node n;
    n.serve(1);
    n.launch(0, 0, {coll(0, 0)});
    n.flush();
    n.grant(1, {{0, 0}});
    n.look(CommDown{0, 0});
    CHECK(n.taken<FreeComm>().empty());
    n.take();
    n.done(0, 0);
    n.flush();
    REQUIRE(n.taken<FreeComm>().size() == 1);
    CHECK(n.taken<FreeComm>()[0].generation == 1);
    CHECK(n.said<wire::Retire>().at(0).comms.at(0).comm == kCommA);
    n.comm(0, 0, kCommB, 0, 2);
    n.flush();
    CHECK(n.said<wire::Register>().at(0).comms.at(0).comm == kCommB);
}

TEST_CASE("steering is told before any launch of its grant goes") {
    Node n;
    n.serve(1);
    n.launch(0, 0, {coll(0, 0)});
    n.flush();
    n.take();
    n.hear(wire::Grant{1, {{0, 0}}, {}, {{0, 0, 1, 0, 1}}});
    std::size_t steered = 99, went = 99;
    for (std::size_t i = 0; i < n.actions.size(); ++i) {
        if (std::holds_alternative<Steer>(n.actions[i])) steered = i;
        if (std::holds_alternative<SetGo>(n.actions[i])) went = i;
    }
    CHECK(steered < went);
    CHECK(went != 99);
}

TEST_CASE("a restarted manager goes on in the middle of a launch") {
    Node n;
    n.look(Tick{});
    n.on(RankUp{{5, 100, 0, 1'000, Policy::proceed, "job"}, Mode::enforce, true});
    wire::CommMember member{kCommA, {}, 0, 2, 5, 0, Mode::enforce, 1, {}};
    n.on(CommUp{5, 0, 1, member, Verdict::enforced});
    n.on(Recorded{5, 40, 0, ring::Gate::stream, 1, {coll(0, 20)}, 1, true});  // went before
    n.on(Recorded{5, 41, 0, ring::Gate::stream, 1, {coll(0, 21)}, 1, false});
    n.on(Ready{5, 40});
    n.on(Ready{5, 41});
    n.flush();
    CHECK(n.go.empty());
    CHECK(n.verdicts.at({5, 0}) == Verdict::enforced);
    n.connect(9);
    const auto s = n.said<wire::Snapshot>().at(0);
    REQUIRE(s.launches.size() == 1);
    CHECK(s.launches[0].demand.launch == wire::LocalLaunch{5, 40});
    CHECK(s.launches[0].state == wire::LaunchState::in_flight);
    n.take();
    n.done(5, 40);
    n.flush();
    CHECK(n.said<wire::Done>().size() == 1);
    CHECK(n.said<wire::Demand>().at(0).launches.at(0).launch == wire::LocalLaunch{5, 41});
    n.grant(1, {{5, 41}});
    CHECK(n.went(5, 41));
}

TEST_CASE("a restarted manager knows that what came before the launches in its ring is finished") {
    Node n;
    n.on(RankUp{{5, 100, 0, 1'000, Policy::proceed, "job"}, Mode::enforce, true});
    wire::CommMember member{kCommA, {}, 0, 2, 5, 0, Mode::enforce, 1, {}};
    n.on(CommUp{5, 0, 1, member, Verdict::enforced});
    n.on(Recorded{5, 40, 0, ring::Gate::stream, 1, {coll(0, 20), send(0, 1, 7)}, 1, true});
    n.on(Recorded{5, 41, 0, ring::Gate::stream, 1, {coll(0, 21), recv(0, 1, 0)}, 1, false});
    n.flush();
    n.connect(9);
    auto done = n.said<wire::Snapshot>().at(0).comms.at(0).done;
    std::sort(done.begin(), done.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    CHECK(done == std::vector<wire::KeyRange>{{coll_key(kCommA, 19), 1}, {p2p_key(kCommA, 0, 1, 6), 1}});
}

TEST_CASE("a rank is on the GPU that the fabric file knows by its PCI address, or its UUID, whatever its ordinal") {
    const PciAddress first = 0x170000, second = 0x2a0000, third = 0x3b0000, fourth = 0x9d0000;
    const GpuUuid uuid{{1, 2, 3}};
    CoreOptions options;
    options.host_gpus = {first, second, third, fourth};
    const auto placed = [&](std::vector<wire::GpuAssignment> gpus, GpuIdentity gpu, bool before) {
        Node n(options);
        if (!before) n.welcome(gpus);
        n.rank(0);
        wire::CommMember member{kCommA, {}, 0, 2, 0, 0, Mode::enforce, 1, {}};  // ordinal 0
        n.on(CommUp{0, 0, 1, member, Verdict::unknown, Reason::none, kNone, gpu});
        n.flush();
        if (before) n.welcome(gpus);
        const auto whole = n.said<wire::Snapshot>();
        const auto more = n.said<wire::Register>();
        const auto& comms = before ? whole.at(0).comms : more.at(0).comms;
        const auto& ranks = before ? whole.at(0).ranks : more.back().ranks;
        CHECK(ranks.back().gpu == comms.at(0).gpu);
        return comms.at(0).gpu;
    };
    const std::vector<wire::GpuAssignment> unnamed = {
        {0, 2, "", "r0"}, {1, 2, "", "r1"}, {2, 2, "", "r2"}, {3, 2, "", "r3"}};
    auto by_pci = unnamed, by_uuid = unnamed, partly = unnamed;
    by_pci[3].pci = "0000:17:00.0";  // the file's order is its own
    by_pci[0].pci = "0000:2a:00.0";
    by_uuid[2].uuid = "GPU-01020300-0000-0000-0000-000000000000";
    partly[1].pci = "0000:ff:00.0";
    for (const bool before : {false, true}) {  // was the rank there before the controller
        CHECK(placed(by_pci, {first, {}}, before) == 3);
        CHECK(placed(by_pci, {second, {}}, before) == 0);
        CHECK(placed(by_uuid, {0, uuid}, before) == 2);
        CHECK(placed(unnamed, {third, uuid}, before) == 2);     // its place among the host's
        CHECK(placed(unnamed, {0xff0000, uuid}, before) == 0);  // not of this host, as in emulation: the ordinal
        CHECK(placed(unnamed, {}, before) == 0);                // an older shim, or OPUS_GPU
        CHECK(placed(partly, {second, {}}, before) == kNone);   // the file has another GPU there
        CHECK(placed(partly, {third, {}}, before) == 2);
    }
}

TEST_CASE(
    "who is inside NCCL's creation is reported, then its place, then that it has returned while it is not judged") {
    Node n;
    n.connect();
    n.rank(0);
    n.flush();
    n.take();
    n.look(CommEntering{0, 3, kCommB});
    REQUIRE(n.said<wire::Register>().size() == 1);
    CHECK(n.said<wire::Register>()[0].entering.at(0).comm == kCommB);
    n.take();
    SUBCASE("it gets its place") {
        wire::CommMember member{
            kCommB, {}, 1, 3, 0, 0, Mode::enforce, 1, {}, Verdict::unknown, CreationState::returned};
        n.look(CommUp{0, 3, 4, member});
        CHECK(n.said<wire::Register>().at(0).comms.at(0).creation == CreationState::returned);
        n.take();
        n.connect(8);
        CHECK(n.said<wire::Snapshot>().at(0).entering.empty());
    }
    SUBCASE("its creation fails") {
        n.look(CommDown{0, 3});
        CHECK(n.said<wire::Retire>().at(0).failed.at(0).comm == kCommB);
        n.take();
        n.connect(8);
        CHECK(n.said<wire::Snapshot>().at(0).entering.empty());
    }
    SUBCASE("a new controller is told") {
        n.connect(8);
        CHECK(n.said<wire::Snapshot>().at(0).entering.at(0).comm == kCommB);
    }
}

TEST_CASE("that NCCL's creation has returned is reported while somebody may be missing, and not once it is judged") {
    Node n;
    n.connect();
    n.rank(0);
    wire::CommMember member{kCommA, {}, 0, 2, 0, 0, Mode::enforce, 1, {}, Verdict::unknown, CreationState::entered};
    n.look(CommUp{0, 0, 1, member});
    n.take();
    SUBCASE("not judged") {
        n.look(CommCreated{0, 0});
        CHECK(n.said<wire::Register>().at(0).comms.at(0).creation == CreationState::returned);
    }
    SUBCASE("judged") {
        n.enforce(kCommA);
        n.look(CommCreated{0, 0});
        CHECK(n.said<wire::Register>().empty());
    }
}

TEST_CASE("without a controller nobody is given up who is still inside NCCL's creation: he waits for no verdict") {
    Node n;
    n.rank(0);
    wire::CommMember member{kCommA, {}, 0, 2, 0, 0, Mode::enforce, 1, {}, Verdict::unknown, CreationState::entered};
    n.look(CommUp{0, 0, 1, member});
    n.advance(600 * kSecond);
    CHECK(!n.verdicts.contains({0, 0}));
    n.look(CommCreated{0, 0});
    n.advance(900 * kMs);
    CHECK(!n.verdicts.contains({0, 0}));
    n.advance(100 * kMs);
    CHECK(n.verdicts.at({0, 0}) == Verdict::degraded);
}

TEST_CASE("why a communicator is not held goes where its rank sees it") {
    Node n;
    n.connect();
    n.rank(0);
    n.comm(0, 0, kCommA, 0, 4);
    n.flush();
    n.take();
    n.hear(wire::Verdicts{{{kCommA, Verdict::passes, {}, Reason::missing, 3, "rank 3 of 4 did not register"}}});
    const auto set = n.taken<SetVerdict>();
    REQUIRE(set.size() == 1);
    CHECK(set[0].reason == Reason::missing);
    CHECK(set[0].reason_rank == 3);
}

namespace {

// Of a communicator that has grown to three. `also`: it was given the unique id, too.
void grown(Node& n, RankId id, CommId comm, std::uint32_t rank, CommId also = {}) {
    n.rank(id);
    wire::CommMember member{comm, {}, rank, 3, id, id, Mode::enforce, 1, {}};
    member.also = also;
    n.look(CommUp{id, 0, 1, member, Verdict::unknown});
}

}  // namespace

TEST_CASE("members that know a grown communicator by two ids are joined here by the one that knows both") {
    for (const std::vector<RankId>& order : std::vector<std::vector<RankId>>{{0, 1, 2}, {2, 1, 0}, {1, 2, 0}}) {
        Node n;
        for (const RankId id : order) grown(n, id, id == 2 ? kCommB : kCommA, id, id == 0 ? kCommB : CommId{});
        for (RankId id = 0; id < 3; ++id) CHECK(n.verdicts.at({id, 0}) == Verdict::intra);
        for (const SetVerdict& set : n.taken<SetVerdict>()) CHECK(set.known_as == (set.rank == 2 ? kCommA : CommId{}));
    }
}

TEST_CASE("the controller says what a member's communicator is known as: it registers anew, and its keys are that one's") {
    Node n;
    n.connect();
    grown(n, 0, kCommB, 2);
    n.take();
    n.hear(wire::Verdicts{{{kCommB, Verdict::unknown, {}, Reason::none, kNone, "", kCommA}}});
    REQUIRE(n.said<wire::Register>().size() == 1);
    CHECK(n.said<wire::Register>()[0].comms.at(0).comm == kCommA);
    n.enforce(kCommA);
    REQUIRE(n.taken<SetVerdict>().size() == 1);
    CHECK(n.taken<SetVerdict>()[0].known_as == kCommA);
    n.launch(0, 0, {coll(0, 0)});
    n.flush();
    CHECK(n.said<wire::Demand>().at(0).launches.at(0).keys.at(0).first == coll_key(kCommA, 0));
    grown(n, 1, kCommB, 1);  // which comes later
    CHECK(n.verdicts.at({1, 0}) == Verdict::enforced);
}

TEST_CASE("a manager that finds a joined member's launches in flight tells them anew, by their communicator's name") {
    Node n;
    n.connect();
    n.rank(0);
    wire::CommMember member{kCommB, {}, 2, 3, 0, 0, Mode::enforce, 1, {}};
    n.look(CommUp{0, 0, 1, member, Verdict::enforced});
    n.launch(0, 0, {coll(0, 5)});
    n.flush();
    n.take();
    n.hear(wire::Verdicts{{{kCommB, Verdict::unknown, {}, Reason::none, kNone, "", kCommA}}});
    CHECK(n.taken<EndSession>().size() == 1);
    n.take();
    n.connect();
    const auto snapshot = n.said<wire::Snapshot>().at(0);
    CHECK(snapshot.comms.at(0).comm == kCommA);
    CHECK(snapshot.launches.at(0).demand.keys.at(0).first == coll_key(kCommA, 5));
}
