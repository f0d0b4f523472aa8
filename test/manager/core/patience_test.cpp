// Receives posted early: asked for late, never for good, and told of meanwhile.
#include <string>

#include "test/manager/core/node.h"

using namespace opus;
using namespace opus::manager;
using namespace opus::manager::test;

namespace {

constexpr CommId kElsewhere{9, 5};  // other circuits: without places they go by the communicator's number

// A rank that goes on with one peer (communicator A) and receives from another (B) in the midst of it: served there,
// the receive turns the circuits away and back.
class Job {
public:
    static constexpr std::uint32_t kSteps = 8, kReceived = 4;  // launches of A in a round; the receive is ready after so many

    explicit Job(std::uint32_t dark_us = 1'000'000) {
        node.dark_us = dark_us;
        node.connect();
        node.rank(0);
        node.comm(0, 0, kCommA, 0, 2);
        node.comm(0, 1, kCommB, 0, 2);
        node.comm(0, 2, kElsewhere, 0, 2);
        node.flush();
        node.enforce(kCommA);
        node.enforce(kCommB);
        node.enforce(kElsewhere);
        node.take();
    }

    // Up to where the receive is ready, and the step that comes next is, too.
    void begin_round(std::uint16_t flags = 0) {
        for (std::uint32_t i = 0; i < kReceived; ++i) step();
        receive_ = next_++;
        node.take();
        node.record(0, receive_, {recv(1, 1, round_++)}, ring::Gate::stream, flags);
        node.ready(0, receive_);
        node.flush();
        waiting_ = next_++;
        node.launch(0, waiting_, {next_step()});
        node.flush();
        node.now += 2 * kMs;
    }
    bool asked_for_receive() const {
        for (const auto& demand : node.said<wire::Demand>())
            for (const auto& d : demand.launches)
                if (d.launch.seq == receive_) return true;
        return false;
    }
    // The receive first, and the step has to wait for its circuits to come back; or the step, if nobody asks.
    void end_round() {
        if (asked_for_receive())
            serve(receive_), serve(waiting_);
        else
            serve(waiting_);
        for (std::uint32_t i = kReceived + 1; i < kSteps; ++i) step();
        node.advance(500 * kMs);  // what else there was to come is overdue
        if (!over_) serve(receive_);
        over_ = false;
        const std::uint64_t seq = next_++;  // another phase
        node.launch(0, seq, {coll(2, round_ - 1)});
        node.flush();
        serve(seq);
    }
    // It is known by the second round what comes, and what that cost.
    void withhold() {
        begin_round();
        CHECK(asked_for_receive());
        CHECK(node.core.withheld().empty());
        end_round();
        begin_round();
        CHECK_FALSE(asked_for_receive());
        REQUIRE(node.core.withheld().size() == 1);
    }
    std::uint64_t receive() const { return receive_; }
    Node node;

private:
    void serve(std::uint64_t seq) {
        node.now += 30 * kMs;
        node.grant(++grant_, {{0, seq}});
        REQUIRE(node.went(0, seq));
        node.now += 5 * kMs;
        node.done(0, seq);
        node.flush();
        over_ |= seq == receive_;
    }
    ring::OpEntry next_step() {  // no two of a round are alike
        ring::OpEntry op = coll(0, step_);
        op.bytes = std::uint64_t{4096} << (3 * (step_++ % kSteps));
        return op;
    }
    void step() {
        const std::uint64_t seq = next_++;
        node.launch(0, seq, {next_step()});
        node.flush();
        node.now += kMs / 2;
        node.grant(++grant_, {{0, seq}});
        node.now += kMs;
        node.done(0, seq);
        node.flush();
        node.now += kMs / 2;
    }
    std::uint64_t next_ = 0, step_ = 0, round_ = 0, grant_ = 0, receive_ = 0, waiting_ = 0;
    bool over_ = false;
};

}  // namespace

TEST_CASE(
    "a receive for which its rank lost its circuits is asked for when its turn has come, and told of until then") {
    Job job;
    Node& n = job.node;
    job.withhold();
    CHECK(n.core.withheld()[0].seq == job.receive());
    CHECK(n.core.counters().withheld == 1);

    n.now += 20 * kMs;
    n.core.on(Tick{}, n.now, n.now, n.actions);
    const TimeNs waited = n.now - n.core.withheld()[0].since_ns;
    n.advance(kSecond - waited - kMs);  // a heartbeat is due, and the step that goes first still waits
    const auto beats = n.said<wire::Heartbeat>();
    REQUIRE(!beats.empty());
    REQUIRE(beats.back().withheld.size() == 1);
    const wire::Withheld& told = beats.back().withheld[0];
    CHECK(told.launch == wire::LocalLaunch{0, job.receive()});
    CHECK(told.keys == wire::KeyRange{p2p_key(kCommB, 1, 0, 1), 1});
    CHECK(told.bytes == 4096);
    CHECK(told.waited_ms == 999);
    CHECK(told.left_ms <= 3);

    CHECK(n.wake_at <= n.now + 3 * kMs);
    n.advance(3 * kMs);  // as long as it takes to move a circuit
    CHECK(job.asked_for_receive());
    CHECK(n.core.withheld().empty());
    n.take();
    n.advance(2 * kSecond);
    for (const auto& beat : n.said<wire::Heartbeat>()) CHECK(beat.withheld.empty());
}

TEST_CASE("no receive waits for its turn longer than it takes to move a circuit, whatever goes on meanwhile") {
    for (const TimeNs dark : {3 * kMs, 50 * kMs, kSecond}) {
        Job job(static_cast<std::uint32_t>(dark / 1000));
        Node& n = job.node;
        job.withhold();
        const TimeNs since = n.core.withheld()[0].since_ns;
        CHECK(n.core.withheld()[0].until_ns <= since + dark);
        n.advance(since + dark - n.now);
        CHECK(job.asked_for_receive());
        CHECK(n.core.withheld().empty());
    }
}

TEST_CASE("a manager that is not told how long it takes to move a circuit asks for every receive at once") {
    Job job(0);
    for (std::uint32_t round = 0; round < 4; ++round) {
        job.begin_round();
        CHECK(job.asked_for_receive());
        job.end_round();
    }
    CHECK(job.node.core.counters().withheld == 0);
}

TEST_CASE("a new session asks for a receive that was withheld") {
    Job job;
    Node& n = job.node;
    job.withhold();
    n.look(ControllerDown{});
    CHECK(n.core.withheld().empty());
    n.take();
    n.connect(8);
    const auto told = n.said<wire::Snapshot>();
    REQUIRE(told.size() == 1);
    CHECK(std::any_of(told[0].launches.begin(), told[0].launches.end(),
                      [&](const auto& l) { return l.demand.launch.seq == job.receive(); }));
    CHECK(n.core.withheld().empty());
}

TEST_CASE("a receive beside which a launch has operations that nobody here sees is never withheld") {
    Job job;
    Node& n = job.node;
    job.withhold();
    job.end_round();
    job.begin_round(ring::kLaunchMixed);
    CHECK(job.asked_for_receive());
    CHECK(n.core.withheld().empty());
}
