// Early release: what is let go before it is ready, and how it is retracted.
#include "test/manager/core/node.h"

namespace opus::manager::test {
namespace {

// Rank 0 with launches 0 to `count` - 1 of communicator A recorded, none of them ready.
void record_fenced(Node& n, std::uint64_t count, std::uint64_t first = 0) {
    for (std::uint64_t i = first; i < first + count; ++i)
        n.record(0, i, {coll(0, i)}, ring::Gate::stream, ring::kLaunchFenced);
    n.flush();
}

// The number-th collective of A, on a stream.
void record_on(Node& n, std::uint64_t seq, std::uint64_t stream, std::uint64_t number) {
    n.on(Recorded{0, seq, ring::kLaunchFenced, ring::Gate::stream, stream, {coll(0, number)}, 1, false});
}
void record_on(Node& n, std::uint64_t seq, std::uint64_t stream) { record_on(n, seq, stream, seq); }

std::vector<wire::LocalLaunch> of_rank_0(std::initializer_list<std::uint64_t> seqs) {
    std::vector<wire::LocalLaunch> launches;
    for (const std::uint64_t seq : seqs) launches.push_back({0, seq});
    return launches;
}

// What rank 0 says of it is all that has been said since.
void reach(Node& n, std::uint64_t seq) {
    n.take();
    n.ready(0, seq);
    n.flush();
}

std::vector<std::uint64_t> released_early(Node& n) {
    std::vector<std::uint64_t> seqs;
    for (const ReleaseEarly& offer : n.taken<ReleaseEarly>()) seqs.push_back(offer.seq);
    return seqs;
}

}  // namespace

TEST_CASE("what a run covers is let go before it is ready, and starts without a word") {
    Node n;
    n.serve(1);
    record_fenced(n, 5);
    CHECK(released_early(n).empty());
    n.grant(1, {}, {{coll_key(kCommA, 1), 3}});
    CHECK(released_early(n) == std::vector<std::uint64_t>{1, 2, 3});
    reach(n, 0);
    CHECK(n.said<wire::Demand>().size() == 1);
    n.grant(2, of_rank_0({0}));
    n.done(0, 0);
    reach(n, 1);
    CHECK(n.went(0, 1));  // the word that a manager after this one reads
    CHECK(n.said<wire::Demand>().empty());
}

TEST_CASE("a shim without the fence is never released early, nor is a host gate") {
    Node n;
    n.serve(1);
    n.record(0, 0, {coll(0, 0)});
    n.record(0, 1, {coll(0, 1)}, ring::Gate::host);
    n.grant(1, {}, {{coll_key(kCommA, 0), 2}});
    CHECK(released_early(n).empty());
}

TEST_CASE("a run is returned only when it is known which of its launches have gone") {
    Node n;
    n.serve(1);
    record_fenced(n, 3);
    n.grant(1, {}, {{coll_key(kCommA, 0), 3}});
    n.take();
    n.hear(wire::Revoke{7, {}, {1}});
    REQUIRE(n.taken<Retract>().size() == 1);
    CHECK(n.taken<Retract>()[0].launches == of_rank_0({0, 1, 2}));
    CHECK(n.said<wire::Returned>().empty());
    SUBCASE("the first had reached its gate") {
        n.look(Retracted{of_rank_0({0, 1, 2}), of_rank_0({0})});
        CHECK(n.went(0, 0));
        CHECK_FALSE(n.went(0, 1));
        REQUIRE(n.said<wire::Returned>().size() == 1);
        const wire::Returned answer = n.said<wire::Returned>()[0];
        CHECK(answer.started == of_rank_0({0}));
        REQUIRE(answer.running.size() == 1);
        CHECK(answer.running[0].launch.seq == 0);
    }
    SUBCASE("none had") {
        n.look(Retracted{of_rank_0({0, 1, 2}), {}});
        REQUIRE(n.said<wire::Returned>().size() == 1);
        CHECK(n.said<wire::Returned>()[0].started.empty());
        reach(n, 0);
        CHECK_FALSE(n.went(0, 0));
        CHECK(n.said<wire::Demand>().size() == 1);  // as any other
    }
    SUBCASE("one is seen to be ready before the answer") {
        n.ready(0, 0);
        n.flush();
        CHECK(n.said<wire::Returned>().empty());
        n.look(Retracted{of_rank_0({0, 1, 2}), of_rank_0({0})});
        CHECK(n.said<wire::Returned>().at(0).started == of_rank_0({0}));
    }
    SUBCASE("the session ends before the answer: the next snapshot tells that the run is kept") {
        n.look(ControllerDown{});
        n.look(Retracted{of_rank_0({0, 1, 2}), {}});
        CHECK(n.said<wire::Returned>().empty());
        CHECK(released_early(n) == std::vector<std::uint64_t>{0, 1, 2});
        n.take();
        n.connect();
        CHECK(n.said<wire::Snapshot>().at(0).tokens.at(0).grant == 1);
    }
}

TEST_CASE("what another run covers too is not retracted") {
    Node n;
    n.serve(1);
    record_fenced(n, 3);
    n.grant(1, {}, {{coll_key(kCommA, 0), 2}});
    n.grant(2, {}, {{coll_key(kCommA, 1), 2}});
    n.take();
    n.hear(wire::Revoke{7, {}, {1}});
    REQUIRE(n.taken<Retract>().size() == 1);
    CHECK(n.taken<Retract>()[0].launches == of_rank_0({0}));
}

TEST_CASE("runs that lapse are retracted first") {
    CoreOptions options;
    options.controller_silence_ns = 100 * kSecond;
    Node n(options);
    n.look(ControllerUp{++n.session});
    wire::Welcome welcome{n.session, n.epoch, 0, {{0, 2, "", "r0"}}};
    welcome.grace_ms = 4'000;
    n.hear(welcome);
    n.rank(0);
    n.comm(0, 0, kCommA, 0, 2);
    n.flush();
    n.enforce(kCommA);
    record_fenced(n, 2);
    n.grant(1, {}, {{coll_key(kCommA, 0), 2}});
    n.take();
    n.advance(3 * kSecond);
    CHECK(n.taken<Retract>().size() == 1);
    CHECK(n.taken<EndSession>().empty());
    n.look(Retracted{of_rank_0({0, 1}), {}});
    CHECK(n.taken<EndSession>().size() == 1);  // the next snapshot tells of no run
    reach(n, 0);
    CHECK_FALSE(n.went(0, 0));
}

TEST_CASE("only so many are released early: a dead manager cannot retract them") {
    Node n;
    n.serve(1);
    record_fenced(n, 100);
    n.grant(1, {}, {{coll_key(kCommA, 0), 100}});
    CHECK(released_early(n).size() == 32);
    n.take();
    n.ready(0, 0);
    n.done(0, 0);
    n.flush();
    CHECK(released_early(n) == std::vector<std::uint64_t>{32});
}

TEST_CASE("what stands in another stream is let go once all that is ahead of it in its communicator has been") {
    Node n;
    n.serve(1);
    record_on(n, 0, 1);
    record_on(n, 1, 2);
    SUBCASE("with it, by its run") {
        n.grant(1, {}, {{coll_key(kCommA, 0), 5000}});
        CHECK(released_early(n) == std::vector<std::uint64_t>{0, 1});
    }
    SUBCASE("what is ahead has started by a grant of its own") {
        reach(n, 0);
        n.grant(1, of_rank_0({0}), {{coll_key(kCommA, 1), 5000}});
        CHECK(n.went(0, 0));
        CHECK(released_early(n) == std::vector<std::uint64_t>{1});
    }
    SUBCASE("not in a run by a plan: others want its ports soon") {
        n.grant(1, {}, {{coll_key(kCommA, 0), 4096}});
        CHECK(released_early(n) == std::vector<std::uint64_t>{0});
    }
    SUBCASE("not before that") {
        n.grant(1, {}, {{coll_key(kCommA, 1), 5000}});
        CHECK(released_early(n).empty());
        n.take();
        n.ready(0, 1);
        n.flush();
        CHECK_FALSE(n.went(0, 1));
        reach(n, 0);
        n.grant(2, of_rank_0({0}));
        CHECK(released_early(n) ==
              std::vector<std::uint64_t>{1});  // its gate has been reached, and is not opened by its end alone
    }
    SUBCASE("a group of two communicators ahead of it may wait for more than NCCL's order") {
        n.comm(0, 1, kCommB, 0, 2);
        n.flush();
        n.enforce(kCommB);
        n.on(Recorded{0, 2, ring::kLaunchFenced, ring::Gate::stream, 1, {coll(0, 2), coll(1, 0)}, 2, false});
        record_on(n, 4, 2, 3);
        n.grant(1, {}, {{coll_key(kCommA, 0), 5000}, {coll_key(kCommB, 0), 5000}});
        CHECK(released_early(n) == std::vector<std::uint64_t>{0, 1});
    }
}

TEST_CASE("what has started of a sequence has no holes") {
    Node n;
    n.serve(1);
    record_on(n, 0, 1);
    record_on(n, 1, 2);
    record_on(n, 2, 1);
    n.grant(1, {}, {{coll_key(kCommA, 0), 5000}});
    n.take();
    SUBCASE("the run is returned when the second has been reached, in its stream, and the first has not") {
        n.hear(wire::Revoke{7, {}, {1}});
        CHECK(n.taken<Retract>().at(0).launches == of_rank_0({0, 1, 2}));
        n.look(Retracted{of_rank_0({0, 1, 2}), of_rank_0({1})});
        CHECK(n.went(0, 0));
        CHECK(n.went(0, 1));
        CHECK_FALSE(n.went(0, 2));
        const wire::Returned answer = n.said<wire::Returned>().at(0);
        CHECK(answer.started == of_rank_0({0, 1}));
        REQUIRE(answer.running.size() == 2);
        CHECK(answer.running[0].behind);  // its stream has not come to it, and may wait for anything
        CHECK(answer.running[1].behind);
        REQUIRE(answer.started_upto.size() == 1);
        CHECK(answer.started_upto[0].count == 2);
        reach(n, 0);
        CHECK(n.said<wire::Demand>().empty());
    }
    SUBCASE("a part of the run is returned: what is behind that in another stream is retracted with it") {
        n.grant(2, {}, {{coll_key(kCommA, 1), 5000}});
        n.take();
        n.hear(wire::Revoke{7, {}, {1}});
        CHECK(n.taken<Retract>().at(0).launches == of_rank_0({0, 1, 2}));
        n.look(Retracted{of_rank_0({0, 1, 2}), {}});
        CHECK(n.said<wire::Returned>().at(0).started.empty());
        CHECK(released_early(n).empty());
        reach(n, 0);
        n.grant(3, of_rank_0({0}));
        CHECK(released_early(n) == std::vector<std::uint64_t>{1, 2});
    }
}

TEST_CASE("a manager that comes after another lets go what is ahead of what has started in another stream") {
    Node n;
    n.serve(1);
    n.on(Recorded{0, 0, ring::kLaunchFenced, ring::Gate::stream, 1, {coll(0, 0)}, 1, false});
    n.on(Recorded{0, 1, ring::kLaunchFenced, ring::Gate::stream, 2, {coll(0, 1)}, 1, true});
    n.flush();
    CHECK(n.went(0, 0));
    n.look(ControllerDown{});
    n.take();
    n.connect();
    const wire::Snapshot told = n.said<wire::Snapshot>().at(0);
    REQUIRE(told.launches.size() == 2);
    CHECK(told.launches[0].state == wire::LaunchState::in_flight);
    CHECK(told.launches[0].demand.behind);
}

TEST_CASE("nobody waits for the end of what is followed by what its run has let go") {
    Node n;
    n.serve(1);
    record_on(n, 0, 1);
    CHECK(n.core.awaits_end({0, 0}));
    n.grant(1, {}, {{coll_key(kCommA, 0), 5000}});
    reach(n, 0);
    CHECK_FALSE(n.core.awaits_end({0, 0}));  // what comes next will be let go when it is recorded
    record_on(n, 1, 2);
    n.flush();
    CHECK_FALSE(n.core.awaits_end({0, 0}));
    SUBCASE("another waits for its turn") {
        n.on(Recorded{0, 2, ring::kLaunchFenced, ring::Gate::host, 2, {coll(0, 2)}, 1, false});
        n.flush();
        CHECK_FALSE(n.core.awaits_end({0, 0}));
        CHECK(n.core.awaits_end({0, 1}));
    }
    SUBCASE("the run ends with it") {
        n.on(Recorded{0, 2, ring::kLaunchFenced, ring::Gate::stream, 1, {coll(0, 4999)}, 1, false});
        n.flush();
        CHECK(n.core.awaits_end({0, 2}));
    }
    SUBCASE("the run is wanted back") {
        n.hear(wire::Revoke{7, {}, {1}});
        n.look(Retracted{of_rank_0({1}), {}});
        CHECK(n.core.awaits_end({0, 0}));
    }
}

TEST_CASE("what was released early and is done before anybody looked has started under its run") {
    Node n;
    n.serve(1);
    record_fenced(n, 3);
    n.grant(1, {}, {{coll_key(kCommA, 0), 3}});
    n.done(0, 0);
    n.flush();
    CHECK(n.went(0, 0));
    CHECK(n.core.counters().passed == 0);
    SUBCASE("and the run is returned") {
        n.take();
        n.hear(wire::Revoke{7, {}, {1}});
        n.look(Retracted{of_rank_0({1, 2}), {}});
    }
    SUBCASE("and was being retracted") {
        n.take();
        n.hear(wire::Revoke{7, {}, {1}});
        n.done(0, 1);
        n.look(Retracted{of_rank_0({1, 2}), of_rank_0({1})});
        CHECK(n.went(0, 1));
    }
    REQUIRE(n.said<wire::Returned>().size() == 1);
    CHECK(n.said<wire::Returned>()[0].started.empty());
    REQUIRE(n.said<wire::Done>().size() == 1);  // before the answer
    const wire::Done reported = n.said<wire::Done>()[0];
    for (const auto& ran : reported.ran) CHECK_FALSE(ran.done.ungated);
}

TEST_CASE("what is let go before it has come to its gate has gone when it came there") {
    Node n;
    n.serve(1);
    record_on(n, 0, 1);
    record_on(n, 1, 2);
    n.grant(1, {}, {{coll_key(kCommA, 0), 5000}});
    n.done(0, 1);  // so what stands ahead of it in the other stream has been let go, too
    n.flush();
    REQUIRE(n.went(0, 0));
    n.advance(kSecond);
    SUBCASE("and that was seen") {
        n.ready(0, 0);
        n.advance(kSecond);
    }
    SUBCASE("and no look has found it there") {}
    n.take();
    n.done(0, 0);
    n.hear(wire::Revoke{7, {}, {1}});  // then what has ended in the run is told
    REQUIRE(n.said<wire::Done>().size() == 1);
    const auto ran = n.said<wire::Done>()[0].ran;
    REQUIRE(ran.size() == 1);
    for (const auto& [demand, done] : ran) {
        CHECK(done.ready_ns > 0);
        CHECK(done.go_ns >= done.ready_ns);
        CHECK(done.done_ns >= done.go_ns);
    }
}

TEST_CASE("nothing is released early of which it is not known whether it is held") {
    Node n;
    n.serve(1);
    n.comm(0, 1, kCommB, 0, 2);
    n.record(0, 0, {coll(0, 0), coll(1, 0)}, ring::Gate::stream, ring::kLaunchFenced);
    n.grant(1, {}, {{coll_key(kCommA, 0), 1}});
    CHECK(released_early(n).empty());
    n.take();
    SUBCASE("it is, and no run covers that part") {
        n.enforce(kCommB);
        CHECK(released_early(n).empty());
    }
    SUBCASE("it is not") {
        n.hear(wire::Verdicts{{{kCommB, Verdict::passes}}});
        CHECK(released_early(n) == std::vector<std::uint64_t>{0});
    }
}

TEST_CASE("what was released early is retracted when its communicator is judged anew") {
    Node n;
    n.serve(1);
    n.comm(0, 1, kCommB, 0, 2);
    n.hear(wire::Verdicts{{{kCommB, Verdict::passes}}});
    n.record(0, 0, {coll(0, 0), coll(1, 0)}, ring::Gate::stream, ring::kLaunchFenced);
    n.grant(1, {}, {{coll_key(kCommA, 0), 1}});
    REQUIRE(released_early(n) == std::vector<std::uint64_t>{0});
    n.take();
    SUBCASE("it is held now, and no run covers that part") {
        n.enforce(kCommB);
        REQUIRE(n.taken<Retract>().size() == 1);
        n.look(Retracted{of_rank_0({0}), {}});
        n.ready(0, 0);
        n.flush();
        CHECK_FALSE(n.went(0, 0));
        CHECK(n.said<wire::Demand>().size() == 1);
    }
    SUBCASE("none of it is held any more: it passes") {
        n.hear(wire::Verdicts{{{kCommA, Verdict::degraded}}});
        REQUIRE(n.taken<Retract>().size() == 1);
        n.look(Retracted{of_rank_0({0}), {}});
        n.ready(0, 0);
        n.flush();
        CHECK(n.core.counters().passed == 1);
    }
}

TEST_CASE("last words name ranks, communicators, and launches that are not done") {
    Node n;
    n.serve(1);
    record_fenced(n, 3);
    n.grant(1, {}, {{coll_key(kCommA, 0), 2}});
    n.done(0, 0);
    std::string all;
    for (const std::string& line : n.core.describe()) all += line + "\n";
    for (const char* said :
         {"rank 0 (pid ", "communicator 0: rank 0 of ", "launch 1: recorded", "released early", "launch 2: recorded"})
        CHECK_MESSAGE(all.find(said) != std::string::npos, said << " in\n" << all);
    CHECK(all.find("launch 0:") == std::string::npos);
}

// --- ahead of what is recorded ----------------------------------------------------------------------

namespace {

constexpr std::uint16_t kByComm = ring::kLaunchFenced | ring::kLaunchCommGo;

void record_by_comm(Node& n, std::uint64_t seq, std::uint64_t stream = 1) {
    n.on(Recorded{0, seq, kByComm, ring::Gate::stream, stream, {coll(0, seq)}, 1, false});
}

std::vector<std::uint64_t> released_ahead(Node& n) {
    std::vector<std::uint64_t> words;
    for (const ReleaseAhead& word : n.taken<ReleaseAhead>()) words.push_back(word.go.upto);
    return words;
}

}  // namespace

TEST_CASE("in a run without end the go word of a communicator lies ahead of what is recorded") {
    Node n;
    n.serve(1);
    record_by_comm(n, 0);
    n.flush();
    n.grant(1, {}, {{coll_key(kCommA, 0), 1'000'000}});
    REQUIRE(released_ahead(n).size() == 1);
    const std::uint64_t upto = released_ahead(n)[0];
    CHECK(upto > 8);
    n.take();
    SUBCASE("what is recorded below it has been let go, and nobody says so again") {
        record_by_comm(n, 1);
        n.flush();
        CHECK(released_early(n).empty());
        n.done(0, 0);
        reach(n, 1);
        CHECK(n.went(0, 1));
        CHECK(n.said<wire::Demand>().empty());
    }
    SUBCASE("it is moved on before it is reached") {
        for (std::uint64_t seq = 1; seq + ring::kLeftToRing < upto; ++seq) {
            record_by_comm(n, seq);
            n.done(0, seq - 1);
        }
        n.flush();
        REQUIRE_FALSE(released_ahead(n).empty());
        CHECK(released_ahead(n).back() > upto);
    }
    SUBCASE("the run is returned when it is known what went by the word, seen or not") {
        n.hear(wire::Revoke{7, {}, {1}});
        REQUIRE(n.taken<Retract>().size() == 1);
        const Retract back = n.taken<Retract>()[0];
        CHECK(back.launches == of_rank_0({0}));
        REQUIRE(back.comms.size() == 1);
        CHECK(back.comms[0].upto == 0);
        CHECK(n.said<wire::Returned>().empty());
        n.take();
        record_by_comm(n, 1);
        record_by_comm(n, 2);
        n.on(Ready{0, 1});
        n.on(Retracted{back.launches, of_rank_0({0}), back.comms});
        n.flush();
        REQUIRE(n.said<wire::Returned>().size() == 1);
        CHECK(n.said<wire::Returned>()[0].started == of_rank_0({0, 1}));
        CHECK_FALSE(n.went(0, 2));
        CHECK(released_ahead(n).empty());
        n.done(0, 0);
        n.done(0, 1);
        reach(n, 2);
        CHECK(n.said<wire::Demand>().size() == 1);
    }
}

namespace {

// A collective of A that is captured, and its first replay, which is not launched yet.
constexpr std::uint16_t kCapturedFlags = ring::kLaunchReplayed | ring::kLaunchFenced | ring::kLaunchKeepsCounts;
constexpr std::uint64_t kReplay0 = replay_launch(0, 0);

void record_replay(Node& n, std::uint64_t replay, std::uint16_t flags = kCapturedFlags) {
    n.on(Recorded{0, replay_launch(0, replay), flags, ring::Gate::stream, 1, {coll(0, replayed_key(0, replay))}, 0, false});
    n.flush();
}
void capture(Node& n, std::uint16_t flags = kCapturedFlags) {
    n.record(0, 0, {coll(0, 0)}, ring::Gate::stream, flags);
    record_replay(n, 0, flags);
}
wire::KeyRange replays(std::uint32_t count) { return {coll_key(kCommA, replayed_key(0, 0)), count}; }

}  // namespace

TEST_CASE("in a run without end the next replay of a graph is let go before its gate is reached") {
    Node n;
    n.serve(1);
    capture(n);
    CHECK(released_early(n).empty());
    n.grant(1, {}, {replays(1'000'000)});
    CHECK(released_early(n) == std::vector<std::uint64_t>{kReplay0});
    SUBCASE("and the one after it when it is done") {
        n.take();
        n.ready(0, kReplay0);
        n.done(0, kReplay0);
        record_replay(n, 1);
        CHECK(released_early(n) == std::vector<std::uint64_t>{replay_launch(0, 1)});
        CHECK(n.said<wire::Demand>().empty());
    }
    SUBCASE("the run is returned when it is known whether it has gone") {
        n.take();
        n.hear(wire::Revoke{7, {}, {1}});
        REQUIRE(n.taken<Retract>().size() == 1);
        CHECK(n.taken<Retract>()[0].launches == of_rank_0({kReplay0}));
        CHECK(n.said<wire::Returned>().empty());
        SUBCASE("it had") {
            n.look(Retracted{of_rank_0({kReplay0}), of_rank_0({kReplay0})});
            CHECK(n.said<wire::Returned>().at(0).started == of_rank_0({kReplay0}));
            CHECK(n.went(0, kReplay0));
        }
        SUBCASE("it had not") {
            n.look(Retracted{of_rank_0({kReplay0}), {}});
            CHECK(n.said<wire::Returned>().at(0).started.empty());
            reach(n, kReplay0);
            CHECK_FALSE(n.went(0, kReplay0));
            CHECK(n.said<wire::Demand>().size() == 1);
        }
    }
    SUBCASE("it never comes, for the graph is gone: nothing is told of it, and nothing left") {
        n.take();
        n.done(0, 0);
        n.flush();
        CHECK(n.said<wire::Done>().empty());
        CHECK_FALSE(n.core.pending());
        n.hear(wire::Revoke{7, {}, {1}});
        CHECK(n.taken<Retract>().empty());
        CHECK(n.said<wire::Returned>().at(0).started.empty());
    }
}

TEST_CASE("what shares resources with a communicator that has captured says that it may wait for a replay") {
    for (const std::uint32_t family : {1u, 7u}) {  // A's, or its own
        CAPTURE(family);
        Node n;
        n.serve(1);
        n.comm(0, 1, kCommB, 0, 2, family);
        n.enforce(kCommB);
        capture(n);
        n.take();
        n.launch(0, 1, {coll(1, 0)});
        n.flush();
        CHECK(n.said<wire::Demand>().at(0).launches.at(0).behind == (family == 1));
    }
}

TEST_CASE("a replay is not let go early under a run that ends, nor one of several communicators, nor an older shim's") {
    Node n;
    n.serve(1);
    SUBCASE("a run that ends") {
        capture(n);
        n.grant(1, {}, {replays(5)});
    }
    SUBCASE("a shim that forgets counts with the graph: it might never be told of") {
        capture(n, kCapturedFlags & ~ring::kLaunchKeepsCounts);
        n.grant(1, {}, {replays(1'000'000)});
    }
    SUBCASE("several communicators: what comes before it nobody sees") {
        capture(n, kCapturedFlags | ring::kLaunchMixed);
        n.grant(1, {}, {replays(1'000'000)});
    }
    n.flush();
    CHECK(released_early(n).empty());
    reach(n, kReplay0);
    CHECK(n.went(0, kReplay0));
}

TEST_CASE("no go word lies ahead where something of its communicator waits, or may come first") {
    Node n;
    n.serve(1);
    SUBCASE("a run that ends") {
        record_by_comm(n, 0);
        n.grant(1, {}, {{coll_key(kCommA, 0), 5}});
    }
    SUBCASE("a launch that the run does not cover") {
        const ring::OpEntry send{std::uint8_t(OpKind::send), 0, 0, 1, 0, 1, 0, 8};
        n.on(Recorded{0, 0, ring::kLaunchFenced, ring::Gate::stream, 1, {send}, 1, false});
        record_by_comm(n, 1, 2);
        n.grant(1, {}, {{coll_key(kCommA, 0), 1'000'000}});
    }
    SUBCASE("gates that look at the go words of their slots") {
        record_fenced(n, 1);
        n.grant(1, {}, {{coll_key(kCommA, 0), 1'000'000}});
    }
    n.flush();
    CHECK(released_ahead(n).empty());
}

TEST_CASE("where launches share a go word none is let go before those ahead of it") {
    Node n;
    n.serve(1);
    record_by_comm(n, 0);
    record_by_comm(n, 1, 2);
    n.grant(1, {}, {{coll_key(kCommA, 1), 1'000'000}});  // not the first
    CHECK(released_early(n).empty());
    CHECK(released_ahead(n).empty());
}

TEST_CASE("a go word lies ahead only as long as the run goes on, whatever word its launches look at") {
    Node n;
    n.serve(1);
    record_by_comm(n, 0);
    n.grant(1, {}, {{coll_key(kCommA, 0), wire::kMostKeysPlanned + 100}});
    REQUIRE_FALSE(released_ahead(n).empty());
    n.take();
    for (std::uint64_t seq = 1; seq < 200; ++seq) {
        n.done(0, seq - 1);
        n.record(0, seq, {coll(0, seq)}, ring::Gate::stream, ring::kLaunchFenced);
        reach(n, seq);
        if (seq > 100) CHECK(released_ahead(n).empty());
    }
}

}  // namespace opus::manager::test
