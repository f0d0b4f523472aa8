// Runs, told of by hand: managers that say what a random world rarely brings together, or what none would say (F).
#include <algorithm>

#include "test/controller/core/job_words.h"

namespace opus::controller::test {
namespace {

constexpr CommId kComm{7, 7}, kOther{8, 8};

wire::KeyRange transfers(std::uint32_t src, std::uint32_t dst, std::uint64_t first, std::uint32_t count = 1) {
    return {{kComm, KeyKind::p2p, src, dst, first}, count, false};
}

// Nodes of one GPU, three with one port each if nothing else is said, on one switch; rank 0 on each of them, in `kComm`
// by its node's number.
class Hands {
public:
    explicit Hands(const CoreOptions& o = options(), const Shape& shape = {.nodes = 3, .ports = 1})
        : fabric(make_fabric(shape)), core(fabric, o) {}

    static CoreOptions options() {
        CoreOptions o;
        o.provision = false;
        o.register_timeout_ns = 100 * kMs;
        return o;
    }
    static CoreOptions with_runs() {  // every grant is one
        CoreOptions o = options();
        o.rest_ns = 0;
        return o;
    }
    void on(const Event& event) {
        core.on(event, now, out);
        CHECK(core.check() == "");
    }
    void hear(NodeIndex n, wire::Message message) { on(NodeMessage{n, n + 1, std::move(message)}); }
    void advance(TimeNs by) {
        now += by;
        on(Tick{});
    }
    // The switch says that it joins these.
    void map(std::vector<CrossConnect> circuits) {
        on(SwitchEvent{0, DriverEvent{MapRead{last<ReadMap>().op, DriverError::none, {}, std::move(circuits)}}});
    }
    CrossConnect joined(NodeIndex a, NodeIndex b) const { return {port(a).sw_port, port(b).sw_port}; }
    void start_switch(std::vector<CrossConnect> circuits) {
        on(SwitchEvent{0, SessionUp{}});
        advance(2'000 * kMs);  // no command of an earlier controller is under way any more
        on(SwitchEvent{0, SessionUp{}});
        map(std::move(circuits));
    }
    void settle() {
        const Program p = last<Program>();
        now += 25 * kMs;
        on(SwitchEvent{0, Applied{p.op, DriverError::none, {}, now - 25 * kMs, now, now}});
    }
    // A session of the node's manager. Its rank is a member of the communicator.
    void report(NodeIndex n, std::vector<wire::LaunchSnapshot> launches = {}, std::vector<wire::Token> tokens = {},
                std::vector<wire::KeyRange> done = {}) {
        on(NodeSession{n, n + 1});
        wire::Snapshot s;
        s.ranks.push_back({0, 1, 0, 30'000, Policy::proceed, "job"});
        s.comms.push_back({kComm, {}, n, static_cast<std::uint32_t>(fabric.nodes.size()), 0, 0, Mode::enforce, 1,
                           std::move(done), Verdict::unknown, CreationState::returned});
        if (of_two_comms) {
            s.comms.push_back(s.comms.front());
            s.comms.back().comm = kOther;
        }
        s.launches = std::move(launches);
        s.tokens = std::move(tokens);
        hear(n, std::move(s));
    }
    static wire::LaunchDemand launch(std::uint64_t seq, std::vector<wire::KeyRange> keys) {
        wire::LaunchDemand d;
        d.launch = {0, seq};
        d.keys = std::move(keys);
        d.op = OpKind::send;
        return d;
    }
    void demand(NodeIndex n, const wire::LaunchDemand& d) { hear(n, wire::Demand{{d}}); }
    template <class A>
    const A& last() const {
        const A* found = nullptr;
        for (const Action& action : out)
            if (const auto* a = std::get_if<A>(&action)) found = a;
        REQUIRE(found != nullptr);
        return *found;
    }
    template <class M>
    std::vector<M> told(NodeIndex n) const {
        std::vector<M> found;
        for (const Action& action : out)
            if (const auto* s = std::get_if<SendTo>(&action); s != nullptr && s->node == n)
                if (const auto* m = std::get_if<M>(&s->message)) found.push_back(*m);
        return found;
    }
    const Port& port(NodeIndex n) const { return fabric.ports[fabric.gpus[fabric.nodes[n].gpus[0]].ports[0]]; }
    PortUse use(NodeIndex n) const { return core.ports()[fabric.gpus[fabric.nodes[n].gpus[0]].ports[0]].use; }
    // 0 and 1 have had a circuit and hold a run of transfers from 0 to 1, from number 1 on, beside launch 0.
    std::uint64_t grant_run() {
        start_switch({});
        for (NodeIndex n = 0; n < 3; ++n) report(n);
        for (NodeIndex n = 0; n < 2; ++n) demand(n, launch(0, {transfers(0, 1, 0)}));
        settle();
        const auto grants = told<wire::Grant>(0);
        REQUIRE(!grants.empty());
        REQUIRE(grants.back().soft.size() == 1);
        REQUIRE(grants.back().soft.front().first == transfers(0, 1, 1).first);
        return grants.back().id;
    }

    const Fabric fabric;
    Core core;
    Actions out;
    TimeNs now = 0;
    bool of_two_comms = false;  // ranks are members of kOther, too
};

}  // namespace

TEST_CASE("F: both sides post their receive first, on another stream than the send") {
    // Of one communicator a manager does not ask for the second before the first is done.
    Hands h;
    h.start_switch({});
    for (NodeIndex n = 0; n < 3; ++n) h.report(n);
    for (NodeIndex n = 0; n < 2; ++n) h.demand(n, Hands::launch(0, {transfers(1 - n, n, 0)}));
    for (NodeIndex n = 0; n < 2; ++n) h.demand(n, Hands::launch(1, {transfers(n, 1 - n, 0)}));
    h.settle();
    for (NodeIndex n = 0; n < 2; ++n) {
        std::vector<wire::LocalLaunch> let_go;
        for (const wire::Grant& grant : h.told<wire::Grant>(n))
            let_go.insert(let_go.end(), grant.firm.begin(), grant.firm.end());
        std::sort(let_go.begin(), let_go.end());
        CHECK(let_go == std::vector<wire::LocalLaunch>{{0, 0}, {0, 1}});
    }
    CHECK(h.core.counters().suspensions == 0);
}

TEST_CASE("what was started under a run is suspended, not lost, if its communicator passes before that is told") {
    Hands h;
    h.start_switch({h.joined(0, 1)});
    for (NodeIndex n = 0; n < 2; ++n) h.report(n, {}, {{1, {}, {transfers(0, 1, 1, 2)}, {}}});
    h.on(NodeSession{2, 3});
    h.hear(2, wire::Snapshot{});  // no rank of it is a member
    h.advance(60 * kMs);
    for (NodeIndex n = 0; n < 3; ++n) h.hear(n, wire::Heartbeat{1});
    h.advance(60 * kMs);  // rank 2 has no shim: the communicator passes
    REQUIRE(!h.told<wire::Revoke>(0).empty());
    h.hear(0, wire::Returned{1, {}, {}, {}, {Hands::launch(3, {transfers(0, 1, 1)})}});
    h.hear(1, wire::Returned{1, {}, {}, {}, {}});
    const auto suspended = h.told<wire::Suspended>(0);  // its circuits may go: not all have come again
    REQUIRE(suspended.size() == 1);
    CHECK(suspended[0].launches == std::vector<wire::LocalLaunch>{{0, 3}});
}

TEST_CASE("what one end has finished under a run holds no light that another hand has taken") {
    Hands h(Hands::with_runs());
    const std::uint64_t run = h.grant_run();
    for (NodeIndex n = 0; n < 2; ++n) h.hear(n, wire::Done{{{{0, 0}, 0, 0, 0, false}}, {}, {}, {}});
    h.demand(0, Hands::launch(9, {transfers(0, 2, 0)}));
    h.demand(2, Hands::launch(0, {transfers(0, 2, 0)}));
    REQUIRE(!h.told<wire::Revoke>(0).empty());
    wire::Done done;
    done.ran.push_back({Hands::launch(1, {transfers(0, 1, 1)}), {{0, 1}, 0, 0, 0, false}});
    h.hear(0, std::move(done));  // the sender is through with number 1
    for (NodeIndex n = 0; n < 2; ++n) h.hear(n, wire::Returned{run, {}, {}, {}, {}});
    CHECK(h.use(0) == PortUse::busy);
    h.on(SwitchEvent{0, SessionDown{"another hand"}});
    h.on(SwitchEvent{0, SessionUp{}});
    h.map({});  // check() looks at it
    CHECK(h.use(0) != PortUse::busy);
}

TEST_CASE(
    "a launch whose call still connects starts without its peer, also when the connections have lost their light") {
    Hands h;
    h.start_switch({});
    for (NodeIndex n = 0; n < 3; ++n) h.report(n);
    const wire::KeyRange connection{{kComm, KeyKind::conn_p2p, 0, 1, 0}, 1, false};
    for (NodeIndex n = 0; n < 2; ++n) h.demand(n, Hands::launch(0, {connection}));
    h.settle();
    for (const NodeIndex n : {0u, 2u}) h.demand(n, Hands::launch(9, {transfers(0, 2, 0)}));
    for (int i = 0; i < 20; ++i) h.advance(50 * kMs);
    REQUIRE(h.told<wire::Suspended>(0).size() == 1);
    wire::LaunchDemand own = Hands::launch(1, {transfers(0, 1, 0)});
    own.behind = true;
    h.demand(0, own);
    h.settle();
    for (const NodeIndex n : {0u, 2u}) h.hear(n, wire::Done{{{{0, 9}, 0, 0, 0, false}}, {}, {}, {}});
    h.settle();  // the connections have it back
    h.advance(50 * kMs);
    CHECK(h.told<wire::Grant>(0).back().firm == std::vector<wire::LocalLaunch>{{0, 1}});
}

TEST_CASE("such a launch starts without its peer once more when its manager had died with the grant") {
    Hands h;
    h.start_switch({});
    for (NodeIndex n = 0; n < 3; ++n) h.report(n);
    const wire::LaunchDemand connection = Hands::launch(0, {{{kComm, KeyKind::conn_p2p, 0, 1, 0}, 1, false}});
    for (NodeIndex n = 0; n < 2; ++n) h.demand(n, connection);
    h.settle();
    wire::LaunchDemand own = Hands::launch(1, {transfers(0, 1, 0)});
    own.behind = true;
    h.demand(0, own);
    h.advance(50 * kMs);
    const auto starts = [&h] {
        const auto grants = h.told<wire::Grant>(0);
        return std::ranges::count(grants, std::vector<wire::LocalLaunch>{{0, 1}}, &wire::Grant::firm);
    };
    REQUIRE(starts() == 1);
    h.on(NodeLost{0, 1});
    for (const NodeIndex n : {1u, 2u}) h.demand(n, Hands::launch(9, {transfers(1, 2, 0)}));
    for (int i = 0; i < 10; ++i) h.advance(50 * kMs);
    h.settle();  // both are suspended for it
    h.report(0, {{connection, wire::LaunchState::in_flight, 1}, {own, wire::LaunchState::ready, 0}});
    for (const NodeIndex n : {1u, 2u}) h.hear(n, wire::Done{{{{0, 9}, 0, 0, 0, false}}, {}, {}, {}});
    h.settle();  // the connections have it back
    h.advance(50 * kMs);
    CHECK(starts() == 2);
}

TEST_CASE(
    "a launch whose grant was lost is opened if a communicator of it is not held any more when its manager is back") {
    enum class How { fenced, expired, one_of_two_expired };
    for (const How how : {How::fenced, How::expired, How::one_of_two_expired}) {
        CAPTURE(static_cast<int>(how));
        Hands h;
        h.of_two_comms = how == How::one_of_two_expired;
        h.start_switch({});
        for (NodeIndex n = 0; n < 3; ++n) h.report(n);
        std::vector<wire::KeyRange> keys{{{kComm, KeyKind::conn_p2p, 0, 1, 0}, 1, false}};
        if (h.of_two_comms) keys.push_back({{kOther, KeyKind::conn_p2p, 0, 1, 0}, 1, false});
        const wire::LaunchDemand connection = Hands::launch(0, keys);
        for (NodeIndex n = 0; n < 2; ++n) h.demand(n, connection);
        h.settle();
        h.on(NodeLost{0, 1});
        for (const NodeIndex n : {1u, 2u}) h.demand(n, Hands::launch(9, {transfers(1, 2, 0)}));
        for (int i = 0; i < 10; ++i) h.advance(50 * kMs);
        h.settle();  // both are suspended for it
        if (how == How::fenced)
            h.on(CtlFence{1, h.fabric.gpus[h.fabric.nodes[0].gpus[0]].ports[0], "to clean it"});
        else
            h.hear(2, wire::Expired{{{0, 9}}});
        h.report(0, {{connection, wire::LaunchState::ready, 0}});
        const auto passes = h.told<wire::Pass>(0);
        REQUIRE(passes.size() == 1);
        CHECK(passes.front().launches == std::vector<wire::LocalLaunch>{{0, 0}});
    }
}

TEST_CASE("of a key that one end has done, and the other has under way, nothing is held before its light is known") {
    Hands h;
    h.report(0);
    h.hear(0, wire::Returned{7, {}, {}, {}, {Hands::launch(5, {transfers(0, 1, 5)})}});  // where its other end is, nobody has said yet
    h.report(1, {}, {}, {transfers(0, 1, 0, 6)});                                        // check() looks at it
    h.report(2);
    h.start_switch({h.joined(0, 1)});
    CHECK(h.use(0) == PortUse::busy);
    CHECK(h.told<wire::Suspended>(0).empty());
}

TEST_CASE("a run of an older controller is left alone while it is in doubt what its switch does") {
    Hands h(Hands::with_runs());
    h.on(SwitchEvent{0, SessionUp{}});
    h.map({h.joined(0, 1)});  // the older one's last command may still be under way
    for (NodeIndex n = 0; n < 2; ++n)
        h.report(n, {{Hands::launch(5, {transfers(0, 1, 5)}), wire::LaunchState::in_flight, 7}},
                 {{7, {}, {transfers(0, 1, 6, 10)}}});
    h.report(2);
    CHECK(h.told<wire::Revoke>(0).empty());
    h.advance(2'000 * kMs);
    h.map({h.joined(0, 1)});
    CHECK(h.told<wire::Revoke>(0).empty());
    CHECK(h.use(0) == PortUse::busy);
    for (const NodeIndex n : {0u, 2u}) h.demand(n, Hands::launch(9, {transfers(0, 2, 0)}));
    CHECK(h.told<wire::Revoke>(0).size() == 1);  // it lies on that light
}

TEST_CASE("what one end is through with holds its circuits until the other has come, or somebody has waited too long") {
    for (const bool comes : {true, false}) {
        CAPTURE(comes);
        Hands h;
        const auto programs = [&] {
            return std::count_if(h.out.begin(), h.out.end(),
                                 [](const auto& a) { return std::holds_alternative<Program>(a); });
        };
        h.start_switch({});
        for (NodeIndex n = 0; n < 3; ++n) h.report(n);
        h.demand(0, Hands::launch(0, {transfers(0, 1, 0, 2)}));  // two in one group; the receiver takes one by one
        h.demand(1, Hands::launch(0, {transfers(0, 1, 0)}));
        h.settle();
        for (NodeIndex n = 0; n < 2; ++n) h.hear(n, wire::Done{{{{0, 0}, 0, 0, 0, false}}, {}, {}, {}});
        CHECK(h.use(0) == PortUse::busy);  // the second one's bytes may be on their way
        h.demand(0, Hands::launch(1, {transfers(0, 2, 0)}));
        h.demand(2, Hands::launch(0, {transfers(0, 2, 0)}));
        CHECK(programs() == 1);
        if (comes) {
            h.demand(1, Hands::launch(1, {transfers(0, 1, 1)}));
            CHECK(h.told<wire::Grant>(1).back().firm == std::vector<wire::LocalLaunch>{{0, 1}});
            h.hear(1, wire::Done{{{{0, 1}, 0, 0, 0, false}}, {}, {}, {}});
        } else {
            h.advance(60 * kMs);
        }
        CHECK(programs() == 2);
    }
}

TEST_CASE("what was half-started under a run over a mesh holds the whole mesh") {
    Hands h(Hands::with_runs(), {.nodes = 4, .ports = 3});
    const auto all_to_all = [](std::uint64_t n) {
        return Hands::launch(n, {{{kComm, KeyKind::coll, 0, 0, n}, 1, true}});
    };
    const auto busy = [&] {
        const auto ports = h.core.ports();
        return std::count_if(ports.begin(), ports.end(), [](const auto& p) { return p.use == PortUse::busy; });
    };
    h.start_switch({});
    for (NodeIndex n = 0; n < 4; ++n) h.report(n);
    for (NodeIndex n = 0; n < 4; ++n) h.demand(n, all_to_all(0));
    h.settle();
    const auto grants = h.told<wire::Grant>(0);
    REQUIRE(grants.back().soft.size() == 1);
    wire::Done first{{{{0, 0}, 0, 0, 0, false}}, {}, {}, {}};
    for (NodeIndex n = 1; n < 4; ++n) h.hear(n, first);
    first.ran = {{all_to_all(1), {{0, 1}, 0, 0, 0, false}}};  // n0 goes on, and is through
    h.hear(0, first);
    for (NodeIndex n = 0; n < 4; ++n) h.hear(n, wire::Returned{grants.back().id, {}, {}, {}, {}});
    CHECK(busy() == 12);
    for (NodeIndex n = 1; n < 4; ++n) h.demand(n, all_to_all(1));
    CHECK(h.told<wire::Grant>(1).back().firm == std::vector<wire::LocalLaunch>{{0, 1}});
    for (NodeIndex n = 1; n < 4; ++n) h.hear(n, wire::Done{{{{0, 1}, 0, 0, 0, false}}, {}, {}, {}});
    const wire::Grant next = h.told<wire::Grant>(1).back();
    REQUIRE(next.soft.size() == 1);  // all go on with what comes next, n0 as well
    for (NodeIndex n = 0; n < 4; ++n) h.hear(n, wire::Returned{next.id, {}, {}, {}, {}});
    CHECK(busy() == 0);
}

TEST_CASE("what its peer did alone before a node was given up is known when the node comes back") {
    // n1 has sent, to the end; n0's receive waits. `ran`: n1 sent under a run, and says so only now.
    for (const bool ran : {false, true}) {
        CAPTURE(ran);
        CoreOptions options = ran ? Hands::with_runs() : Hands::options();
        options.node_grace_ns = 1'000 * kMs;
        Hands h(options);
        const auto transfer = [](std::uint64_t n) { return Hands::launch(n, {transfers(1, 0, n)}); };
        const auto end = [](std::uint64_t n) { return wire::LaunchDone{{0, n}, 0, 0, 0, false}; };
        h.start_switch({});
        for (NodeIndex n = 0; n < 3; ++n) h.report(n);
        for (NodeIndex n = 0; n < 2; ++n) h.demand(n, transfer(0));
        h.settle();
        for (NodeIndex n = 0; n < 2; ++n) h.hear(n, wire::Done{{end(0)}, {}, {}, {}});
        for (NodeIndex n = 0; n < 2 && !ran; ++n) h.demand(n, transfer(1));
        wire::Done sent;
        if (ran) {
            sent.ran = {{transfer(1), end(1)}};
        } else {
            sent.launches = {end(1)};
        }
        h.hear(1, sent);
        REQUIRE(h.core.counters().runs == (ran ? 1 : 0));
        REQUIRE(h.core.counters().grants == (ran ? 1 : 2));
        h.on(NodeLost{0, 1});
        h.advance(2'000 * kMs);  // n0 is given up
        REQUIRE(h.core.groups().front().verdict == Verdict::degraded);
        if (ran) h.hear(1, wire::Returned{h.told<wire::Revoke>(1).back().id, {}, {}, {}, {}});
        h.report(0, {{transfer(1), wire::LaunchState::passed, 0}}, {}, {transfers(1, 0, 0)});
        const auto told = h.told<wire::Suspended>(0);
        CHECK(std::count_if(told.begin(), told.end(), [](const auto& s) { return s.back; }) == 1);  // it is brought its circuits
    }
}

TEST_CASE("a replay of a graph is one use of its circuits, whatever its number") {
    Hands h(Hands::options(), {.nodes = 4, .ports = 2});
    h.start_switch({});
    for (NodeIndex n = 0; n < 4; ++n) h.report(n);
    std::uint64_t seq = 0;
    const auto transfer = [&](NodeIndex to, std::uint64_t number) {
        const auto programs = [&h] {
            return std::ranges::count_if(h.out, [](const Action& a) { return std::holds_alternative<Program>(a); });
        };
        const auto before = programs();
        for (const NodeIndex n : {NodeIndex{0}, to}) h.demand(n, Hands::launch(seq, {transfers(0, to, number)}));
        if (programs() != before) h.settle();
        for (const NodeIndex n : {NodeIndex{0}, to})
            h.hear(n, wire::Done{{{{0, seq}, h.now, h.now, h.now, false}}, {}, {}, {}});
        ++seq;
        h.advance(kMs);
    };
    for (std::uint64_t n = 0; n < 8; ++n) transfer(2, n);
    transfer(1, replayed_key(3, 0));
    transfer(1, replayed_key(3, 1));
    transfer(3, 0);
    const auto lit = [&h](const char* name) {
        return std::ranges::any_of(h.core.ports(), [&](const PortStatus& p) {
            return h.fabric.ports[p.port].name.starts_with(name) && p.peer != kNone;
        });
    };
    CHECK(lit("n2."));
    CHECK(lit("n3."));
    CHECK(!lit("n1."));
}

TEST_CASE("what a run did over circuits that no member has is not counted, and breaks nothing") {
    Hands h(Hands::with_runs());
    h.grant_run();
    wire::LaunchDemand ran = Hands::launch(1, {transfers(0, 1, 1), transfers(7, 1'000, 1)});
    h.hear(0, wire::Done{{}, {{ran, {{0, 1}, h.now, h.now, h.now, false}}}, {}, {}});
    CHECK(h.core.counters().run_launches == 1);
}

TEST_CASE("a grant does not take the number of a run that an older controller of the same epoch has given") {
    Hands h(Hands::with_runs());
    h.start_switch({h.joined(0, 1)});
    const std::uint64_t first = (Hands::options().epoch << 20) + 1;
    std::vector<wire::Token> tokens;
    for (std::uint64_t i = 0; i < 20; ++i) tokens.push_back({first + i, {}, {transfers(0, 1, 1 + i)}, {}});
    for (NodeIndex n = 0; n < 2; ++n)
        h.report(n, {{Hands::launch(2, {transfers(0, 1, 0)}), wire::LaunchState::in_flight, first}}, tokens);
    h.report(2);
    for (NodeIndex n = 0; n < 2; ++n) h.demand(n, Hands::launch(4, {transfers(1, 0, 0)}));
    const auto grants = h.told<wire::Grant>(1);
    REQUIRE(!grants.empty());
    REQUIRE(grants.back().soft.size() == 1);
    CHECK(grants.back().id >= first + 20);
}

TEST_CASE("an all-to-all asks for no mesh of another communicator's collective in the same launch") {
    Job job;
    job.comms = {{0, 1, 2, 3}, {0, 1}};
    for (NodeIndex n = 0; n < 4; ++n) job.ranks.push_back(rank_on(n, {on(0, {coll(0)})}));
    for (std::size_t r = 0; r < 2; ++r) job.ranks[r].program = {on(0, {coll(1, OpKind::all_to_all), coll(0)})};
    World world({.nodes = 4, .ports = 2}, job);
    must_end(world);
    CHECK(world.core->counters().unroutable == 0);
    CHECK(world.core->counters().passes == 0);
}

}  // namespace opus::controller::test
