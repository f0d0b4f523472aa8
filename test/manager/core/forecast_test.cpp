// What a rank says it will want next: when, and at which keys.
#include "manager/core/forecast.h"
#include "manager/core/rank.h"
#include "test/manager/core/node.h"

namespace opus::manager::test {
namespace {

// A rank between two groups: a ring (A) and a peer of its pipeline (B, of which it is rank 0 of 2).
class Program {
public:
    Program() {
        node.connect();
        node.rank(0);
        node.comm(0, 0, kCommA, 0, 2);
        node.comm(0, 1, kCommB, 0, 2);
        node.flush();
        node.enforce(kCommA);
        node.enforce(kCommB);
        node.take();
    }

    // Letters: A a collective of the ring, s a send, r a receive. One after the other, each granted at once.
    void play(const std::string& letters) {
        for (const char letter : letters) {
            record(letter);
            node.ready(0, seq - 1);
            node.flush();
            node.grant(++grants, {{0, seq - 1}});
            node.done(0, seq - 1);
            node.flush();
        }
    }
    void record(char letter) {
        node.record(0, seq++, {letter == 'A' ? coll(0, a++) : letter == 's' ? send(1, 1, s++) : recv(1, 1, r++)});
    }
    // What Next said since the last take, newest last; an empty list of keys is a withdrawal.
    std::vector<wire::Expectation> said() const {
        std::vector<wire::Expectation> all;
        for (const wire::Next& next : node.said<wire::Next>())
            all.insert(all.end(), next.ranks.begin(), next.ranks.end());
        return all;
    }

    Node node;
    std::uint64_t seq = 0, a = 0, s = 0, r = 0, sent_c = 0, grants = 0;
};

TEST_CASE("once its phase is over a rank says which keys come next, with their numbers") {
    Program p;
    p.play("AAAsAAAsAAAs");
    p.node.take();
    p.play("AAA");
    REQUIRE(p.said().size() == 1);
    const wire::Expectation e = p.said().front();
    CHECK(e.rank == 0);
    CHECK(e.sure);
    REQUIRE(e.keys.size() == 1);
    CHECK(e.keys.front().first == p2p_key(kCommB, 0, 1, 3));
    p.node.take();
    p.play("s");
    REQUIRE(p.said().size() == 1);
    CHECK(p.said().front().keys.front().first == coll_key(kCommA, 12));
}

TEST_CASE("inside a phase nothing is said") {
    Program p;
    p.play("AAAsAAAsAAAs");
    p.node.take();
    p.play("AA");
    CHECK(p.said().empty());
}

TEST_CASE("next goes in the frame of the done that ends the phase, after it") {
    Program p;
    p.play("AAAsAAAsAAAs");
    p.play("AA");
    p.record('A');
    p.node.ready(0, p.seq - 1);
    p.node.flush();
    p.node.grant(++p.grants, {{0, p.seq - 1}});
    p.node.take();
    p.node.done(0, p.seq - 1);
    p.node.flush();
    REQUIRE(p.node.frames.size() == 1);
    REQUIRE(p.node.frames.front().size() == 2);
    CHECK(std::holds_alternative<wire::Done>(p.node.frames.front()[0]));
    CHECK(std::holds_alternative<wire::Next>(p.node.frames.front()[1]));
}

TEST_CASE("while a launch of the phase is under way its end is not told") {
    Program p;
    p.play("AAAsAAAsAAAs");
    p.play("A");
    p.node.comm(0, 2, kCommC, 0, 2);
    p.record('A');
    p.record('A');
    p.node.take();
    for (const std::uint64_t seq : {p.seq - 2, p.seq - 1}) p.node.ready(0, seq);
    p.node.flush();
    p.node.grant(++p.grants, {{0, p.seq - 2}});
    p.node.done(0, p.seq - 2);
    p.node.flush();
    CHECK(p.said().empty());
}

TEST_CASE("what is recorded ahead is known before anything was learned") {
    Program p;
    p.record('A');
    p.record('s');
    p.node.ready(0, 0);
    p.node.flush();
    p.node.grant(++p.grants, {{0, 0}});
    p.node.take();
    p.node.done(0, 0);
    p.node.flush();
    REQUIRE(p.said().size() == 1);
    CHECK(p.said().front().sure);
    CHECK(p.said().front().keys.front().first == p2p_key(kCommB, 0, 1, 0));
}

TEST_CASE("what is recorded goes before what was learned, and corrects it") {
    Program p;
    p.play("AAAsAAAsAAAs");
    p.play("AAA");
    p.node.take();
    p.record('r');  // of the same communicator as the send that was expected: before it
    p.node.flush();
    REQUIRE(p.said().size() == 1);
    CHECK(p.said().front().keys.front().first == p2p_key(kCommB, 1, 0, 0));
}

TEST_CASE("a launch that is ready and of a kind never seen speaks against what was learned") {
    Program p;
    p.node.comm(0, 2, kCommC, 0, 2);
    p.node.flush();
    p.node.enforce(kCommC);
    p.play("AAAsAAAsAAAsAA");
    const std::uint64_t last = p.seq;
    p.record('A');
    p.node.record(0, p.seq++, {coll(2, 0)});
    p.node.ready(0, last);
    p.node.flush();
    p.node.grant(++p.grants, {{0, last}});
    p.node.ready(0, last + 1);
    p.node.flush();
    p.node.take();
    p.node.done(0, last);
    p.node.flush();
    for (const wire::Expectation& e : p.said()) {
        CHECK_FALSE(e.sure);
        CHECK(e.keys == std::vector<wire::KeyRange>{{coll_key(kCommC, 0), 1}});
    }
    p.node.grant(++p.grants, {{0, last + 1}});
}

// Two launches of a phase that lasted for four, and was followed by a receive; this time a send is recorded.
TEST_CASE("where what is recorded cannot be what follows, it comes in the order in which it was posted") {
    for (const bool send_first : {true, false}) {
        Program p;
        p.play("AAAArAAAArAAAAr");
        const std::uint64_t last = p.seq + 1;
        for (const char letter : std::string("AA") + (send_first ? "sA" : "As")) p.record(letter);
        for (std::uint64_t seq = last - 1; seq <= last; ++seq) {
            p.node.ready(0, seq);
            p.node.flush();
            p.node.grant(++p.grants, {{0, seq}});
            if (seq == last) p.node.take();
            p.node.done(0, seq);
            p.node.flush();
        }
        CAPTURE(send_first);
        REQUIRE(p.said().size() == (send_first ? 1 : 0));
        if (send_first) CHECK(p.said().front().keys.front().first == p2p_key(kCommB, 0, 1, 0));
    }
}

TEST_CASE("a receive posted early does not end the phase it waits through") {
    Program p;
    p.play(
        "AAAr"
        "AAAr"
        "AAAr");
    p.node.take();
    p.play("A");
    p.record('r');
    p.node.ready(0, p.seq - 1);
    p.node.flush();
    const std::uint64_t receive = p.seq - 1;
    p.play("A");
    CHECK(p.said().empty());
    p.play("A");
    REQUIRE(p.said().size() == 1);
    CHECK(p.said().front().keys.front().first == p2p_key(kCommB, 1, 0, 3));
    CHECK(p.said().front().sure);
    p.node.grant(++p.grants, {{0, receive}});
}

// A receive, then at the end of a computation a receive and a send of another communicator. Says what was said at its
// beginning, in the last of some iterations.
std::vector<wire::Expectation> said_before(TimeNs send_later) {
    Program p;
    p.node.comm(0, 2, kCommC, 0, 3);
    p.node.flush();
    p.node.enforce(kCommC);
    std::vector<wire::Expectation> said;
    for (std::uint64_t i = 0; i < 12; ++i) {
        p.play("r");
        p.node.take();
        const std::uint64_t receive = p.seq, sent = p.seq + 1;
        p.record('r');
        p.node.record(0, p.seq++, {send(2, 2, i)});
        p.node.ready(0, receive);
        p.node.flush();
        said = p.said();
        p.node.advance(kSecond);
        if (send_later == 0) p.node.ready(0, sent);
        p.node.grant(++p.grants, {{0, receive}});
        p.node.done(0, receive);
        p.node.advance(send_later);
        if (send_later != 0) p.node.ready(0, sent);
        p.node.flush();
        p.node.grant(++p.grants, {{0, sent}});
        p.node.done(0, sent);
        p.node.flush();
        p.node.advance(kSecond);
    }
    return said;
}

TEST_CASE("what a rank is to send goes before what it waits to receive, where both come at one time") {
    const auto said = said_before(0);
    REQUIRE(said.size() == 1);
    CHECK(said.front().keys.front().first == p2p_key(kCommC, 0, 2, 11));
    CHECK(said.front().sure);
    CHECK(said_before(kSecond).empty());
}

// A receive, then, posted with a send of another communicator that is ready with it, a receive. Says whether the rank
// has said that it sends first.
bool gave_way(Program& p, bool sends_first) {
    p.play("r");
    p.node.take();
    const std::uint64_t receive = p.seq, sent = p.seq + 1;
    const Key next = p2p_key(kCommC, 0, 2, p.sent_c);
    p.record('r');
    p.node.record(0, p.seq++, {send(2, 2, p.sent_c++)});
    p.node.ready(0, receive);
    p.node.flush();
    const auto said = p.said();
    p.node.advance(kSecond);
    p.node.ready(0, sent);
    for (const std::uint64_t seq : {sends_first ? sent : receive, sends_first ? receive : sent}) {
        p.node.grant(++p.grants, {{0, seq}});
        p.node.done(0, seq);
        p.node.flush();
    }
    p.node.advance(kSecond);
    return std::any_of(said.begin(), said.end(),
                       [&](const auto& e) { return !e.keys.empty() && e.keys.front().first == next; });
}

TEST_CASE("a rank that has long given way in vain does so no more there, until the two have changed places") {
    Program p;
    p.node.comm(0, 2, kCommC, 0, 3);
    p.node.flush();
    p.node.enforce(kCommC);
    for (int i = 0; i < 20; ++i) gave_way(p, false);
    CHECK(gave_way(p, false));  // its order may still be a matter of chance
    for (int i = 0; i < 20; ++i) gave_way(p, false);
    CHECK_FALSE(gave_way(p, false));
    CHECK_FALSE(gave_way(p, false));
    gave_way(p, true);
    int times = 0;
    for (int i = 0; i < 12; ++i) times += gave_way(p, false);
    CHECK(times > 0);
    for (int i = 0; i < 40; ++i) gave_way(p, false);
    CHECK_FALSE(gave_way(p, false));
}

TEST_CASE("a rank says when what it expects is due") {
    Program p;
    const auto play = [&p] {
        p.play("AAA");
        p.node.advance(kSecond);
        p.play("s");
        p.node.advance(kSecond);
    };
    for (int i = 0; i < 5; ++i) play();
    p.node.take();
    p.play("AAA");
    REQUIRE(p.said().size() == 1);
    CHECK(p.said().front().due_ms >= 1000);
    CHECK(p.said().front().due_ms <= 5000);
}

bool has_asked(const Program& p, const Key& key) {
    for (const wire::Demand& demand : p.node.said<wire::Demand>())
        for (const wire::LaunchDemand& d : demand.launches)
            if (d.keys.front().first == key) return true;
    return false;
}

// A receive that is ready at once, four collectives, a send. If it is asked for before the third, it is served then,
// and the third, though ready, waits for its circuits. True: it was.
bool served_between(Program& p) {
    p.node.take();
    const std::uint64_t receive = p.seq;
    p.record('r');
    p.node.ready(0, receive);
    p.node.flush();
    for (int i = 0; i < 2; ++i) {
        p.node.advance(10 * kMs);
        p.play("A");
    }
    const bool between = has_asked(p, p2p_key(kCommB, 1, 0, p.r - 1));
    if (between) {
        const std::uint64_t third = p.seq;
        p.record('A');
        p.node.grant(++p.grants, {{0, receive}});
        p.node.ready(0, third);
        p.node.advance(10 * kMs);
        p.node.done(0, receive);
        p.node.advance(10 * kMs);
        p.node.grant(++p.grants, {{0, third}});
        p.node.done(0, third);
        p.node.flush();
        p.play("A");
    } else {
        p.play("AA");
        CHECK(has_asked(p, p2p_key(kCommB, 1, 0, p.r - 1)));
        p.node.grant(++p.grants, {{0, receive}});
        p.node.done(0, receive);
        p.node.flush();
    }
    p.play("s");
    return between;
}

TEST_CASE("a receive that the rest of its phase had not waited for is asked for behind that") {
    Program p;
    for (int i = 0; i < 8; ++i) served_between(p);
    CHECK_FALSE(served_between(p));
    CHECK_FALSE(served_between(p));
}

namespace {

// A receive that is ready at once; four collectives, 10 ms between them, and a send. If the receive is asked for before
// the third, it is served then, and the third is ready so long after its end, and waits. True: it was.
bool served_before_third(Program& p, TimeNs after) {
    p.node.take();
    const std::uint64_t receive = p.seq;
    p.record('r');
    p.node.ready(0, receive);
    p.node.flush();
    const auto compute_and_gather = [&p] {
        p.node.advance(10 * kMs);
        p.play("A");
    };
    for (int i = 0; i < 2; ++i) compute_and_gather();
    const bool before = has_asked(p, p2p_key(kCommB, 1, 0, p.r - 1));
    if (before) {
        const std::uint64_t third = p.seq;
        p.record('A');
        p.node.grant(++p.grants, {{0, receive}});
        p.node.advance(10 * kMs);
        p.node.done(0, receive);
        p.node.advance(after);
        p.node.ready(0, third);
        p.node.flush();
        p.node.advance(5 * kMs);
        p.node.grant(++p.grants, {{0, third}});
        p.node.done(0, third);
        p.node.flush();
        compute_and_gather();
    } else {
        for (int i = 0; i < 2; ++i) compute_and_gather();
        p.node.grant(++p.grants, {{0, receive}});
        p.node.done(0, receive);
        p.node.flush();
    }
    p.play("s");
    return before;
}

bool learns_to_wait(TimeNs third_after) {
    Program p;
    for (std::uint32_t i = 0; i < Predictor::kRound / 4; ++i) served_before_third(p, third_after);
    return !served_before_third(p, third_after);
}

}  // namespace

TEST_CASE("what is ready sooner after a receive than it can be computed from that had not waited for it") {
    CHECK(learns_to_wait(3 * kMs));
    CHECK_FALSE(learns_to_wait(12 * kMs));
}

TEST_CASE("a receive that is to wait is asked for when nothing else happens") {
    Program p;
    for (int i = 0; i < 8; ++i) served_between(p);
    p.node.take();
    p.record('r');
    p.node.ready(0, p.seq - 1);
    p.node.flush();
    p.play("A");
    CHECK_FALSE(has_asked(p, p2p_key(kCommB, 1, 0, p.r - 1)));
    CHECK(p.node.wake_at < p.node.now + kSecond);
    p.node.advance(kSecond);
    CHECK(has_asked(p, p2p_key(kCommB, 1, 0, p.r - 1)));
}

TEST_CASE("a controller that does not provision is told nothing") {
    Program p;
    p.play("AAAsAAAsAAAs");
    p.node.look(ControllerDown{});
    p.node.look(ControllerUp{++p.node.session});
    wire::Welcome welcome{p.node.session, p.node.epoch, 0, {{0, 2, "", "r0"}}};
    welcome.provision = false;
    p.node.hear(welcome);
    p.node.take();
    p.play("AAAs");
    CHECK(p.said().empty());
}

TEST_CASE("what stays on the node, and connections, are no phase") {
    Program p;
    p.node.comm(0, 2, kCommC, 0, 3);
    p.node.rank(1);
    p.node.comm(1, 0, kCommC, 1, 3);  // a peer here; a third one elsewhere
    p.node.flush();
    p.node.enforce(kCommC);
    std::uint64_t n = 0;
    const auto local = [&] {
        p.node.launch(0, p.seq++, {send(2, 1, n++)});
        p.node.flush();
        p.node.grant(++p.grants, {{0, p.seq - 1}});
        p.node.done(0, p.seq - 1);
        p.node.flush();
    };
    for (int i = 0; i < 3; ++i) {
        p.play("AA");
        local();
        p.play("As");
    }
    p.node.take();
    p.play("A");
    local();
    p.play("A");
    CHECK(p.said().empty());
    p.play("A");
    CHECK(p.said().size() == 1);
}

namespace {

constexpr std::uint64_t kRounds = Predictor::kRound / 2;  // of a few launches: enough for the order to be known

}  // namespace

TEST_CASE("the rest of a phase is told as ranges of its sequences, once a whole round agrees") {
    Predictor::Launch ring{11, 1}, pair{22, 2};
    Forecast forecast;
    const auto launch = [](Predictor::Launch programme, const Key& key) {
        Launch l;
        l.programme = programme;
        l.keys = {{0, {key, 1}}};
        return l;
    };
    std::uint64_t n = 0;
    TimeNs now = 0;
    const auto start = [&](Launch l) {
        l.waiting_since = now += kSecond;
        forecast.started(l, now, {});
    };
    for (std::uint64_t i = 0; i < kRounds; ++i) {
        // While the order is still being learned a run would change it.
        if (5 * i <= Predictor::kRound) CHECK(forecast.rest_of_phase(launch(ring, coll_key(kCommA, n))).empty());
        for (int k = 0; k < 4; ++k) start(launch(ring, coll_key(kCommA, n++)));
        start(launch(pair, p2p_key(kCommB, 0, 1, i)));
    }
    const auto rest = forecast.rest_of_phase(launch(ring, coll_key(kCommA, n)));
    REQUIRE(rest.size() == 1);
    CHECK(rest.front().range == wire::KeyRange{coll_key(kCommA, n + 1), 3});
    CHECK(forecast.rest_of_phase(launch(pair, p2p_key(kCommB, 0, 1, kRounds))).empty());
}

namespace {

// Three rings, then a transfer, some times over; the third ring has to wait for its peers, or comes together with the
// transfer. Ranges that the rank would have a run cover from the first ring on, in the end.
std::uint32_t offered(TimeNs third_waits, bool transfer_with_third) {
    const Predictor::Launch ring{11, 1}, pair{22, 2};
    Forecast forecast;
    std::uint64_t n = 0;
    TimeNs now = 0;
    const auto launch = [&](Predictor::Launch programme, const Key& key, TimeNs waited) {
        Launch l;
        l.programme = programme;
        l.keys = {{0, {key, 1}}};
        l.firm = true;
        l.waiting_since = now - waited;
        return l;
    };
    for (std::uint64_t i = 0; i < kRounds; ++i) {
        for (int k = 0; k < 3; ++k)
            forecast.started(launch(ring, coll_key(kCommA, n++), k == 2 ? third_waits : 0), now += kSecond, {});
        const TimeNs waited = transfer_with_third ? kSecond : 0;
        forecast.started(launch(pair, p2p_key(kCommB, 0, 1, i), waited), now += kSecond, {});
    }
    const auto rest = forecast.rest_of_phase(launch(ring, coll_key(kCommA, n), 0));
    return rest.empty() ? 0 : rest.front().range.count;
}

}  // namespace

TEST_CASE("what waited for its peers the last time is in no run: it would hold its circuits before they are of use") {
    CHECK(offered(0, false) == 2);
    CHECK(offered(kSecond / 2, false) == 1);
}

TEST_CASE("what came together with a launch of another phase is in no run: it would always go first") {
    CHECK(offered(0, true) == 1);
}

TEST_CASE("what starts in a run is as late as it was when it had to ask") {
    const Predictor::Launch ring{11, 1}, pair{22, 2};
    Forecast forecast;
    std::uint64_t n = 0;
    TimeNs now = 0;
    for (std::uint64_t i = 0; i < kRounds; ++i) {
        for (int k = 0; k < 4; ++k) {
            Launch l;
            l.programme = k == 3 ? pair : ring;
            l.keys = {{0, {k == 3 ? p2p_key(kCommB, 0, 1, i) : coll_key(kCommA, n++), 1}}};
            l.firm = i < kRounds - 3;  // later ones start in a run
            l.waiting_since = k == 2 ? now : now + kSecond;
            forecast.started(l, now += kSecond, {});
        }
    }
    Launch first;
    first.programme = ring;
    first.keys = {{0, {coll_key(kCommA, n), 1}}};
    const auto rest = forecast.rest_of_phase(first);
    REQUIRE(rest.size() == 1);
    CHECK(rest.front().range.count == 1);
}

TEST_CASE("what a rank's forecast remembers is bounded, whatever the rank does") {
    static_assert(Forecast::kBytes <= 64 * 1024);
    KnownLaunches known;
    LaunchKey key;
    key.range.first.comm = kCommB;
    key.range.first.kind = KeyKind::p2p;
    std::uint32_t remembered = 0;
    for (std::uint32_t i = 0; i < 100'000; ++i) {  // other peers all the time: forgotten, and learned again
        key.range.first.src = i;
        key.range.first.n = 7;
        key.range.count = 2;
        known.begin(key.range);
        known.remember(i, {key, key});
        remembered += known.each(i, [&](const LaunchKey& k) {
            CHECK(k.range.first.src == i);
            CHECK(k.range.first.n == 9);
        });
    }
    CHECK(remembered > 99'000);
    CHECK_FALSE(known.knows(1));
}

}  // namespace
}  // namespace opus::manager::test
