// Scenario H of docs/protocol.md (the controller dies) and K (nobody starves), on demand.
#include <functional>
#include <optional>

#include "test/controller/core/job_words.h"

namespace opus::controller::test {
namespace {

// r0 and r1 are to do p, then q; r1 and r2 do g on another stream, with one port each.
Job pair_and_foreign(TimeNs work_ns) {
    Job job;
    job.comms = {{0, 1}, {1, 2}};
    job.ranks = {rank_on(0, {lasting(work_ns, on(0, {coll(0)})), on(0, {coll(0)})}),
                 rank_on(1, {lasting(work_ns, on(0, {coll(0)})), on(0, {coll(0)}), on(1, {coll(1)})}),
                 rank_on(2, {on(0, {coll(1)})})};
    return job;
}

// A controller that starts anew, and nodes that list a member each of a communicator that was held, and its first launch.
struct Reports {
    explicit Reports(std::uint32_t nodes = 2, std::uint32_t gpus = 1)
        : fabric(make_fabric({.nodes = nodes, .gpus = gpus})) {
        key.comm = comm_id(0);
        feed(0, SwitchEvent{0, SessionUp{}});
    }
    static CoreOptions options() {
        CoreOptions o;
        o.node_grace_ns = 2'000 * kMs;
        o.map_period_ns = 0;
        return o;
    }
    void feed(TimeNs at_ms, const Event& event) {
        Actions out;
        const TimeNs now = at_ms * kMs;
        core.on(event, now, out);
        CHECK(core.check() == "");
        for (const Action& action : out) {
            if (const auto* read = std::get_if<ReadMap>(&action))
                feed(at_ms, SwitchEvent{read->sw, MapRead{read->op, DriverError::none, "", {}}});
            if (const auto* program = std::get_if<Program>(&action))
                feed(at_ms, SwitchEvent{program->sw, Applied{program->op, DriverError::none, "", now, now, now}}), ++programs;
            const auto* send = std::get_if<SendTo>(&action);
            if (send == nullptr) continue;
            if (const auto* s = std::get_if<wire::Suspended>(&send->message))
                (s->back ? back : away).push_back(send->node);
            if (const auto* verdicts = std::get_if<wire::Verdicts>(&send->message))
                for (const auto& v : verdicts->comms) told.push_back(v.verdict);
        }
    }
    void report(TimeNs at_ms, NodeIndex n, std::optional<wire::LaunchState> state) {
        wire::Snapshot s;
        s.ranks.push_back({0, 1, 0, 30'000, Policy::proceed, "job"});
        const auto size = static_cast<std::uint32_t>(fabric.nodes.size());
        s.comms.push_back(
            {comm_id(0), {}, n, size, 0, n == 0 ? gpu : 0, Mode::enforce, 1, {}, verdict, CreationState::returned});
        wire::LaunchDemand d;
        d.launch = {0, 1};
        d.keys.push_back({key, 1, false});
        if (state) s.launches.push_back({d, *state, 7});
        feed(at_ms, NodeSession{n, 1});
        feed(at_ms, NodeMessage{n, 1, s});
    }

    const Fabric fabric;
    Core core{fabric, options()};
    Key key;
    Verdict verdict = Verdict::enforced;
    std::uint32_t gpu = 0;  // of the member on the first node
    std::size_t programs = 0;
    std::vector<NodeIndex> away, back;  // who was told that circuits are moved, and that they are back
    std::vector<Verdict> told;
};

}  // namespace

TEST_CASE("a communicator that has passed is not held again when the last of its ranks is found at last") {
    // n0 registers alone, is lost and given up; n1 comes meanwhile and is told to pass: what it launches from then on
    // nobody sees, so it must stay so when n0 is back.
    const Fabric fabric = make_fabric({.nodes = 2});
    CoreOptions options;
    Core core(fabric, options);
    Actions out;
    std::vector<Verdict> told;
    const auto feed = [&](TimeNs at_ms, const Event& event) {
        out.clear();
        core.on(event, at_ms * kMs, out);
        for (const Action& action : out)
            if (const auto* send = std::get_if<SendTo>(&action))
                if (const auto* verdicts = std::get_if<wire::Verdicts>(&send->message))
                    for (const auto& v : verdicts->comms) told.push_back(v.verdict);
        CHECK(core.check() == "");
    };
    const auto report = [&](TimeNs at_ms, NodeIndex n, std::uint64_t session) {
        feed(at_ms, NodeSession{n, session});
        wire::Snapshot s;
        s.ranks.push_back({0, 1, 0, 30'000, Policy::proceed, "job"});
        s.comms.push_back({comm_id(0), {}, n, 2, 0, 0, Mode::enforce, 1, {}, Verdict::unknown, CreationState::returned});
        feed(at_ms, NodeMessage{n, session, s});
    };
    feed(0, NodeSession{1, 1});
    feed(0, NodeMessage{1, 1, wire::Snapshot{}});
    report(0, 0, 1);
    for (const NodeIndex n : {0u, 1u}) feed(10'000, NodeMessage{n, 1, wire::Heartbeat{1}});
    feed(11'000, Tick{});
    CHECK(told == std::vector<Verdict>{Verdict::passes});
    feed(12'000, NodeLost{0, 1});
    report(20'000, 1, 2);
    feed(50'000, Tick{});  // n0 is given up
    report(60'000, 0, 3);
    REQUIRE(told.size() >= 3);
    for (const Verdict v : told) CHECK(v != Verdict::enforced);
}

TEST_CASE(
    "what ran on a communicator that was held gets its circuits back, though members have not come again in time") {
    // A new controller: n1 lists a launch in flight, n0 is given up before it is heard of. The communicator is judged
    // without it. When n0 is back, its launch, which was suspended, is met by the one of n1.
    Reports nodes;
    nodes.report(0, 1, wire::LaunchState::in_flight);
    for (TimeNs at = 1'000; at <= 12'000; at += 1'000) {
        nodes.feed(at, NodeMessage{1, 1, wire::Heartbeat{1}});
        nodes.feed(at, Tick{});
    }
    CHECK(nodes.told == std::vector<Verdict>{Verdict::degraded});
    CHECK(nodes.away == std::vector<NodeIndex>{1});
    CHECK(nodes.back.empty());
    nodes.report(20'000, 0, wire::LaunchState::suspended);
    CHECK(nodes.back == std::vector<NodeIndex>{0, 1});
}

TEST_CASE(
    "what runs on a node that was given up is suspended when it comes back, until its circuits are known to be up") {
    Reports nodes;
    nodes.feed(5'000, Tick{});  // both are given up
    nodes.report(6'000, 1, wire::LaunchState::in_flight);
    CHECK(nodes.away == std::vector<NodeIndex>{1});
    CHECK(nodes.back.empty());
    nodes.report(7'000, 0, wire::LaunchState::in_flight);
    nodes.feed(7'001, Tick{});
    CHECK(nodes.told == std::vector<Verdict>{Verdict::enforced, Verdict::enforced});
    CHECK(nodes.away == std::vector<NodeIndex>{1, 0});
    CHECK(nodes.back == std::vector<NodeIndex>{0, 1});
}

TEST_CASE("what runs without its circuits is told that they are back when it is known which they are, and not before") {
    // Two ranks of three in a transfer of a communicator that is held no more: which ports it uses may depend on where
    // the third is, which comes last.
    Reports nodes(3);
    nodes.verdict = Verdict::degraded;
    nodes.key.kind = KeyKind::p2p;
    nodes.key.src = 0, nodes.key.dst = 1;
    nodes.report(1, 0, wire::LaunchState::suspended);
    nodes.report(2, 1, wire::LaunchState::suspended);
    nodes.feed(3, NodeMessage{0, 1, wire::Expired{{{0, 1}}}});
    nodes.feed(1'000, Tick{});
    CHECK(nodes.told == std::vector<Verdict>{Verdict::degraded, Verdict::degraded});
    CHECK(nodes.back.empty());
    nodes.report(1'500, 2, std::nullopt);
    CHECK(nodes.back == std::vector<NodeIndex>{0, 1});
}

TEST_CASE(
    "what runs gets the circuits to those that are there, though a member of its communicator has left before the "
    "controller came") {
    for (const KeyKind kind : {KeyKind::p2p, KeyKind::coll}) {
        Reports nodes(3);
        nodes.key.kind = kind;
        if (kind == KeyKind::p2p) nodes.key.src = 0, nodes.key.dst = 1;
        for (const NodeIndex n : {0u, 1u}) nodes.report(1, n, wire::LaunchState::in_flight);
        nodes.feed(1, NodeSession{2, 1});
        nodes.feed(1, NodeMessage{2, 1, wire::Snapshot{}});
        for (TimeNs at = 1'000; at <= 12'000; at += 1'000) {
            for (NodeIndex n = 0; n < 3; ++n) nodes.feed(at, NodeMessage{n, 1, wire::Heartbeat{1}});
            nodes.feed(at, Tick{});
        }
        CHECK(nodes.told == std::vector<Verdict>{Verdict::degraded, Verdict::degraded});
        CHECK(nodes.away == std::vector<NodeIndex>{0, 1});  // they ran in the dark, by the switch's map
        CHECK(nodes.back == std::vector<NodeIndex>{0, 1});
    }
}

TEST_CASE(
    "a transfer to another local index goes by the receiver's rail, if the one that may have sent it on has left") {
    Reports nodes(3, 2);  // the third was on the first node's other GPU, perhaps
    nodes.gpu = 1;
    nodes.key.kind = KeyKind::p2p;
    nodes.key.src = 0, nodes.key.dst = 1;
    for (const NodeIndex n : {0u, 1u}) nodes.report(1, n, wire::LaunchState::in_flight);
    nodes.feed(1, SwitchEvent{1, SessionUp{}});
    nodes.feed(1, NodeSession{2, 1});
    nodes.feed(1, NodeMessage{2, 1, wire::Snapshot{}});
    for (TimeNs at = 1'000; at <= 12'000; at += 1'000) {
        for (NodeIndex n = 0; n < 3; ++n) nodes.feed(at, NodeMessage{n, 1, wire::Heartbeat{1}});
        nodes.feed(at, Tick{});
    }
    CHECK(nodes.away == std::vector<NodeIndex>{0, 1});
    CHECK(nodes.back == std::vector<NodeIndex>{0, 1});
    CHECK(nodes.programs == 1);
}

TEST_CASE("H: a run that outlives its communicator keeps its node's ports until it has been returned") {
    // An older controller's run over three nodes. One rank has died meanwhile, so where the run lies is never known, and the
    // communicator passes. Two of its ranks have another one, and could do with more light.
    const Fabric fabric = make_fabric({.nodes = 3, .ports = 2});
    CoreOptions options;
    options.node_grace_ns = 1'000'000'000 * kMs;
    options.map_period_ns = 0;
    Core core(fabric, options);
    Actions out;
    std::size_t programs = 0;
    std::vector<std::uint64_t> asked_back;
    const auto port = [&](NodeIndex n, std::uint32_t p) { return fabric.ports[fabric.gpus[n].ports[p]].sw_port; };
    std::function<void(TimeNs, const Event&)> feed = [&](TimeNs at_ms, const Event& event) {
        out.clear();
        core.on(event, at_ms * kMs, out);
        CHECK(core.check() == "");
        for (const Action& action : Actions(out)) {
            programs += std::holds_alternative<Program>(action);
            if (const auto* send = std::get_if<SendTo>(&action); send != nullptr && send->node == 1)
                if (const auto* revoke = std::get_if<wire::Revoke>(&send->message)) asked_back.push_back(revoke->id);
            if (const auto* read = std::get_if<ReadMap>(&action))
                feed(at_ms, SwitchEvent{read->sw, MapRead{read->op, DriverError::none, "",
                                                          {{port(0, 0), port(1, 0)}, {port(1, 1), port(2, 0)}, {port(2, 1), port(0, 1)}}}});
        }
    };
    feed(0, SwitchEvent{0, SessionUp{}});
    for (NodeIndex n = 0; n < 3; ++n) {
        feed(1, NodeSession{n, 1});
        wire::Snapshot s;
        if (n < 2) {
            s.ranks.push_back({0, 1, 0, 30'000, Policy::proceed, "job"});
            for (const std::size_t comm : {0u, 1u})
                s.comms.push_back({comm_id(comm), {}, n, comm == 0 ? 3u : 2u, 0, 0, Mode::enforce, 1, {}, Verdict::unknown,
                                   CreationState::returned});
        }
        Key key;
        key.comm = comm_id(0);
        key.n = 7;
        if (n == 1) s.tokens.push_back({5, {}, {{key, 10, false}}, {}});
        feed(1, NodeMessage{n, 1, s});
    }
    for (TimeNs at = 1'000; at <= 12'000; at += 1'000)
        for (NodeIndex n = 0; n < 3; ++n) feed(at, NodeMessage{n, 1, wire::Heartbeat{1}}), feed(at, Tick{});
    for (const NodeIndex n : {0u, 1u}) {
        wire::LaunchDemand d;
        d.launch = {0, 1};
        Key key;
        key.comm = comm_id(1);
        d.keys.push_back({key, 1, false});
        feed(12'100, NodeMessage{n, 1, wire::Demand{{d}}});
    }
    feed(13'000, Tick{});
    CHECK(programs == 0);
    CHECK(asked_back == std::vector<std::uint64_t>{5});
    wire::Returned returned;
    returned.id = 5;
    feed(13'100, NodeMessage{1, 1, returned});
    CHECK(programs == 1);
}

TEST_CASE("what runs on a node that was given up and comes back is held, and not taken for dead") {
    Job job;
    job.comms = {{0, 1}, {0, 2}};
    job.ranks = {rank_on(0, {lasting(4'000 * kMs, on(0, {coll(0)})), later(3'000 * kMs, on(1, {coll(1)}))}),
                 rank_on(1, {lasting(4'000 * kMs, on(0, {coll(0)}))}), rank_on(2, {later(3'000 * kMs, on(0, {coll(1)}))})};
    REQUIRE(ends_without_opus(job));
    CoreOptions options;
    options.node_grace_ns = 1'000 * kMs;
    World world({.nodes = 3, .ports = 1}, job, 1, options);
    world.at(500 * kMs, [&] { world.drop_node(1, false); });
    world.at(2'000 * kMs, [&] { world.connect_node(1); });
    must_end(world);
}

TEST_CASE("H: the controller dies at any moment: half-delivered grants roll forward, nothing moves under a launch") {
    REQUIRE(ends_without_opus(pair_and_foreign(40 * kMs)));
    // Messages take up to 20 ms and a switch 25 ms, so every step of it is interrupted by some of these.
    for (std::uint64_t seed = 1; seed <= 8; ++seed)
        for (TimeNs at = 1 * kMs; at < 400 * kMs; at += 7 * kMs) {
            CAPTURE(seed);
            CAPTURE(at);
            World world({.nodes = 3, .ports = 1}, pair_and_foreign(40 * kMs), seed);
            world.message_most_ns = 20 * kMs;
            world.at(at, [&] { world.restart_controller(); });
            must_end(world);
        }
}

TEST_CASE("H: and dies again before all have told it") {
    for (std::uint64_t seed = 1; seed <= 8; ++seed)
        for (TimeNs at = 30 * kMs; at < 300 * kMs; at += 30 * kMs)
            for (const TimeNs next : {2 * kMs, 15 * kMs, 60 * kMs}) {
                CAPTURE(seed);
                CAPTURE(at);
                World world({.nodes = 3, .ports = 1}, pair_and_foreign(40 * kMs), seed);
                world.message_most_ns = 20 * kMs;
                world.at(at, [&] { world.restart_controller(); });
                world.at(at + next, [&] { world.restart_controller(); });
                must_end(world);
            }
}

TEST_CASE("K: a wide gang among narrow ones that come again and again is not passed by them") {
    // One port to each neighbour: the ring (0, 1, 2) takes both ports of each; the pairs with rank 3 and 4 want one each.
    constexpr std::size_t kRounds = 40;
    Job job;
    job.comms = {{0, 1, 2}, {0, 3}, {2, 4}};
    std::vector<LaunchSpec> with3, with4;
    for (std::size_t i = 0; i < kRounds; ++i) {
        with3.push_back(lasting(20 * kMs, on(1, {coll(1)})));
        with4.push_back(lasting(20 * kMs, on(1, {coll(2)})));
    }
    with4.front().delay_ns = 10 * kMs;  // so that one of them is always under way
    auto rank = [](NodeIndex n, std::vector<LaunchSpec> program) {
        program.insert(program.begin(), later(100 * kMs, on(0, {coll(0)})));
        return rank_on(n, program);
    };
    job.ranks = {rank(0, with3), rank(1, {}), rank(2, with4), rank_on(3, with3), rank_on(4, with4)};
    REQUIRE(ends_without_opus(job));
    World world({.nodes = 5, .ports = 2}, job);
    must_end(world);
    CHECK(world.core->counters().suspensions == 0);
    // What was under way ends, the ring is next: two dark times and one launch of each pair, with room to spare.
    CHECK(world.start_time(0, 0) < 300 * kMs);
    CHECK(world.start_time(0, 0) < world.start_time(0, kRounds));
}

}  // namespace opus::controller::test
