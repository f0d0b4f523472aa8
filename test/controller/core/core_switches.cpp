// What the controller believes of a switch is what the switch says (I5): other hands, other controllers.
#include "test/controller/core/job_words.h"

namespace opus::controller::test {
namespace {

bool some_log_has(const World& world, const std::string& text) {
    for (const auto& line : world.logs)
        if (line.find(text) != std::string::npos) return true;
    return false;
}

PortStatus status_of(const World& world, const char* port) { return world.core->ports().at(world.port(port)); }

}  // namespace

TEST_CASE("what another client of the switch has moved is found, shown and believed") {
    Job job;
    job.comms = {{0, 1}};
    for (NodeIndex n = 0; n < 2; ++n)
        job.ranks.push_back(rank_on(n, {on(0, {coll(0)}), later(60'000 * kMs, on(0, {coll(0)}))}));
    World world({.nodes = 3, .ports = 1}, job);
    world.at(5'000 * kMs, [&] { world.move_circuit(world.port("n0.g0.p0"), world.port("n2.g0.p0")); });
    world.run_until(30'000 * kMs);
    CHECK(status_of(world, "n0.g0.p0").peer == world.port("n2.g0.p0"));
    CHECK(status_of(world, "n1.g0.p0").peer == kNone);
    CHECK(status_of(world, "n0.g0.p0").note == "turned by another hand: it led to n1.g0.p0");
    CHECK(some_log_has(world, "n0.g0.p0 leads to n2.g0.p0, was thought to lead to n1.g0.p0"));
    const SwitchStatus sw = world.core->switches().front();
    CHECK(sw.differences.size() == world.core->counters().differences);
    CHECK(sw.differed_ns > 5'000 * kMs);
    must_end(world);  // nothing starts in the dark, or over the wrong circuit
    CHECK(status_of(world, "n0.g0.p0").note.empty());
    CHECK(world.core->counters().reconfigurations == 2);
}

TEST_CASE("under a launch in flight the move is a suspension: its circuit is brought back") {
    Job job;
    job.comms = {{0, 1}};
    for (NodeIndex n = 0; n < 2; ++n) job.ranks.push_back(rank_on(n, {lasting(60'000 * kMs, on(0, {coll(0)}))}));
    World world({.nodes = 3, .ports = 1}, job);
    world.at(5'000 * kMs, [&] { world.move_circuit(world.port("n0.g0.p0"), world.port("n2.g0.p0")); });
    must_end(world);
    CHECK(world.core->counters().suspensions == 2);  // each member's launch
    CHECK(some_log_has(world, "suspended n0.r0 launch 0: ocs-r0 no longer joins n0.g0 and n1.g0"));
    CHECK(world.now < 80'000 * kMs);
}

TEST_CASE("a switch at work is not asked, and its own moves are no differences") {
    Job job;
    job.comms = {{0, 1}, {1, 2}, {0, 2}};
    for (NodeIndex n = 0; n < 3; ++n) job.ranks.push_back(rank_on(n, {}));
    for (int i = 0; i < 200; ++i)
        for (std::size_t c = 0; c < 3; ++c)
            for (const std::size_t r : job.comms[c]) job.ranks[r].program.push_back(on(0, {coll(c)}));
    CoreOptions often;
    often.map_period_ns = 3 * kMs;
    World world({.nodes = 3, .ports = 1}, job, 1, often);
    must_end(world);
    CHECK(world.core->counters().differences == 0);
    CHECK(world.core->counters().suspensions == 0);
}

TEST_CASE("a new controller waits out what the old one sent last, however slow the switch") {
    // The old one turns n0 to n2, and dies; the switch takes its time. n2's rank is gone meanwhile, and n0 goes
    // on with n1, to whom its port still leads: light that is about to go.
    Job job;
    job.comms = {{0, 1}, {0, 2}};
    job.ranks = {
        rank_on(0, {on(0, {coll(0)}), later(100 * kMs, on(0, {coll(1)})), lasting(3'000 * kMs, on(1, {coll(0)}, {0}))}),
        rank_on(1, {on(0, {coll(0)}), later(900 * kMs, lasting(3'000 * kMs, on(0, {coll(0)})))}),
        rank_on(2, {later(100 * kMs, on(0, {coll(1)}))})};
    World world({.nodes = 3, .ports = 1}, job);
    bool restarted = false;
    world.switch_fault = [&](const Program&) { return std::pair{DriverError::none, std::size_t{0}}; };
    world.at(60 * kMs, [&] { world.taken_up_ns = 700 * kMs; });
    std::function<void()> when_sent = [&] {
        if (world.programs < 2) return world.at(world.now + 1 * kMs, when_sent);
        restarted = true;
        world.taken_up_ns = 0;
        world.restart_controller();
        world.at(world.now + 350 * kMs, [&] { world.kill_rank(2); });
    };
    world.at(60 * kMs, when_sent);
    world.run_until(10'000 * kMs);
    CHECK(restarted);
    CHECK(clean(world));
    CHECK(world.done(0, 2));
    CHECK(world.done(1, 1));
}

TEST_CASE("a circuit that an older controller made is made again before it is used") {
    // The map says how mirrors are set. Whether that one ever gave light only the older controller knew.
    Job job;
    job.comms = {{0, 1}};
    for (NodeIndex n = 0; n < 2; ++n)
        job.ranks.push_back(rank_on(n, {on(0, {coll(0)}), later(10'000 * kMs, on(0, {coll(0)})), on(0, {coll(0)})}));
    World world({.nodes = 2, .ports = 1}, job);
    world.at(3'000 * kMs, [&] { world.restart_controller(); });
    must_end(world);
    CHECK(world.programs == 2);  // once by each; the second of the new one finds light that it has seen
}

TEST_CASE("a circuit under a launch that runs has light, whoever made it") {
    Job job;
    job.comms = {{0, 1}};
    for (NodeIndex n = 0; n < 2; ++n)
        job.ranks.push_back(rank_on(n, {lasting(10'000 * kMs, on(0, {coll(0)})), on(0, {coll(0)})}));
    World world({.nodes = 2, .ports = 1}, job);
    world.at(3'000 * kMs, [&] { world.restart_controller(); });
    must_end(world);
    CHECK(world.programs == 1);
}

TEST_CASE("a circuit without light has none after the next command was refused, whatever the map says") {
    Job job;
    job.comms = {{1, 2}, {0, 2}};
    job.ranks = {rank_on(0, {later(50 * kMs, on(0, {coll(1)}))}), rank_on(1, {on(0, {coll(0)})}),
                 rank_on(2, {on(0, {coll(0)}), later(50 * kMs, on(1, {coll(1)}))})};
    World world({.nodes = 3, .ports = 1, .dark_ns = 5 * kMs}, job);
    world.switch_fault = [&](const Program&) {
        if (world.programs == 1) return std::pair{DriverError::no_light, std::size_t{1}};  // n1 - n2
        if (world.programs == 2) return std::pair{DriverError::refused, std::size_t{0}};   // n0 - n2, meanwhile
        return std::pair{DriverError::none, std::size_t{0}};
    };
    must_end(world);
    CHECK(world.programs == 4);
}

TEST_CASE("a port that never gives light is gone round while there is another, then fenced and shown") {
    for (const std::uint32_t ports : {2u, 1u}) {
        Job job;
        job.comms = {{0, 1}};
        for (NodeIndex n = 0; n < 2; ++n) job.ranks.push_back(rank_on(n, {on(0, {coll(0)})}));
        World world({.nodes = 2, .ports = ports}, job);
        const SwitchPort blind = world.fabric.ports[world.port("n0.g0.p0")].sw_port;
        world.switch_fault = [&](const Program& p) {
            for (const auto& [x, y] : p.changes.connect)
                if (x == blind || y == blind) return std::pair{DriverError::no_light, p.changes.connect.size()};
            return std::pair{DriverError::none, std::size_t{0}};
        };
        world.run_until(1'000 * kMs);
        CHECK(clean(world));
        CHECK(world.all_done() == (ports == 2));
        if (ports == 2) continue;
        CHECK(world.programs == 3);
        CHECK(status_of(world, "n0.g0.p0").use == PortUse::fenced);
        CHECK(some_log_has(world, "fenced n0.g0.p0"));
        CHECK(world.passed(0, 0));  // the policy, at once: nobody waits for a port that will not come
        CHECK(world.passed(1, 0));
        CHECK(world.core->counters().passes == 2);
        CHECK(status_of(world, "n0.g0.p0").fence->why.find("no light") != std::string::npos);
        world.switch_fault = nullptr;  // somebody has mended it, and says so
        world.feed(CtlConnect{7, world.port("n0.g0.p0"), world.port("n1.g0.p0"), false});
        CHECK(world.run());
        CHECK(clean(world));
    }
}

TEST_CASE("what ran over a port that was fenced gets its light back when it works, with an operator's help or without") {
    for (const std::uint32_t nodes : {3u, 2u, 0u}) {
        CAPTURE(nodes);
        const bool helped = nodes != 0;
        Job job;
        job.comms = {{0, 1}};
        for (NodeIndex n = 0; n < 2; ++n) job.ranks.push_back(rank_on(n, {lasting(2'000 * kMs, on(0, {coll(0)}))}));
        World world({.nodes = helped ? nodes : 2, .ports = 1}, job);
        world.at(500 * kMs, [&] {
            world.switch_fault = [](const Program& p) {
                return std::pair{DriverError::no_light, p.changes.connect.size()};
            };
            world.session_down(0, 10 * kMs);
            world.move_circuit(world.port("n0.g0.p0"), world.port("n0.g0.p0"));  // another hand takes it away meanwhile
        });
        world.run_until(10'000 * kMs);
        CHECK_FALSE(world.all_done());
        for (const char* port : {"n0.g0.p0", "n1.g0.p0"}) CHECK(status_of(world, port).use == PortUse::fenced);
        world.switch_fault = nullptr;
        if (nodes == 2)  // two fenced ports that have only each other
            world.feed(CtlConnect{7, world.port("n0.g0.p0"), world.port("n1.g0.p0"), false});
        else if (helped)
            for (const char* port : {"n0.g0.p0", "n1.g0.p0"}) {  // tries it with another one
                world.feed(CtlConnect{7, world.port(port), world.port("n2.g0.p0"), false});
                world.run_until(world.now + 1'000 * kMs);
            }
        CHECK(world.run());
        CHECK(clean(world));
    }
}

TEST_CASE("a switch that refuses everything for a while fences no port, and the job goes on with all of them") {
    // Pairs of three nodes in turn, so that circuits move all the time; and a pair that keeps both its circuits.
    for (const TimeNs lasts : {300 * kMs, 5'000 * kMs})
        for (const std::uint32_t nodes : {3u, 2u}) {
            CAPTURE(lasts);
            CAPTURE(nodes);
            Job job;
            job.comms = nodes == 3 ? std::vector<std::vector<std::size_t>>{{0, 1}, {1, 2}, {0, 2}}
                                   : std::vector<std::vector<std::size_t>>{{0, 1}};
            for (NodeIndex n = 0; n < nodes; ++n) job.ranks.push_back(rank_on(n, {}));
            for (int i = 0; i < 100; ++i)
                for (std::size_t c = 0; c < job.comms.size(); ++c)
                    for (const std::size_t r : job.comms[c])
                        job.ranks[r].program.push_back(later(20 * kMs, on(0, {coll(c)})));
            World world({.nodes = nodes, .ports = nodes == 3 ? 1u : 2u}, job);
            TimeNs well_ns = 0;
            bool fenced = false;
            world.switch_fault = [&](const Program&) {
                return std::pair{world.now < well_ns ? DriverError::refused : DriverError::none, std::size_t{0}};
            };
            if (nodes == 2) well_ns = lasts;  // from the first change set on
            world.at(500 * kMs, [&] { well_ns = std::max(well_ns, world.now + lasts); });
            for (TimeNs t = 0; t < 10'000 * kMs; t += 50 * kMs)
                world.at(t, [&] {
                    for (const PortStatus& p : world.core->ports()) fenced |= p.use == PortUse::fenced;
                });
            must_end(world);
            CHECK_FALSE(fenced);
            CHECK(world.core->counters().switch_errors >= 2);
            CHECK(world.core->counters().passes == 0);
            for (const PortStatus& p : world.core->ports()) CHECK((p.peer != kNone || nodes == 3));
        }
}

TEST_CASE(
    "what a port has failed while its switch refused everything is not held against it when the switch does so again") {
    // n1 and n2 want n0's only port: it is in all that is refused, and in what is carried out first.
    Job job;
    job.comms = {{0, 1}, {0, 2}};
    job.ranks = {rank_on(0, {on(0, {coll(0)}), on(1, {coll(1)})}), rank_on(1, {on(0, {coll(0)})}),
                 rank_on(2, {on(0, {coll(1)})})};
    World world({.nodes = 3, .ports = 1}, job);
    const SwitchPort other = world.fabric.ports[world.port("n2.g0.p0")].sw_port;
    std::size_t refused = 0, carried_out = 0;  // of n2, of anybody
    world.switch_fault = [&](const Program& p) {
        const auto& [x, y] = p.changes.connect.front();
        const bool of_other = x == other || y == other;
        const bool refuses = of_other ? refused < 3 : refused < 2;
        refused += of_other && refuses;
        carried_out += !refuses;
        if (refused == 3 && refuses) CHECK(carried_out == 1);
        return std::pair{refuses ? DriverError::refused : DriverError::none, std::size_t{0}};
    };
    must_end(world);
    CHECK(refused == 3);
    CHECK_FALSE(some_log_has(world, "fenced"));
    CHECK(world.core->counters().passes == 0);
}

TEST_CASE("one refusal does not cost a pair the second of its circuits") {
    Job job;
    job.comms = {{0, 1}};
    for (NodeIndex n = 0; n < 2; ++n)
        job.ranks.push_back(rank_on(n, {on(0, {coll(0)}), later(5'000 * kMs, on(0, {coll(0)}))}));
    World world({.nodes = 2, .ports = 2}, job);
    world.switch_fault = [&](const Program&) {
        return std::pair{world.programs == 1 ? DriverError::refused : DriverError::none, std::size_t{0}};
    };
    must_end(world);
    for (const PortStatus& p : world.core->ports()) CHECK(p.peer != kNone);
}

TEST_CASE("a port that is refused for some seconds is fenced, tried now and then, and taken back when it works") {
    Job job;
    job.comms = {{0, 1, 2}};
    for (NodeIndex n = 0; n < 3; ++n)
        job.ranks.push_back(rank_on(n, {on(0, {coll(0)}), later(30'000 * kMs, on(0, {coll(0)}))}));
    World world({.nodes = 3, .ports = 2}, job);
    const SwitchPort bad = world.fabric.ports[world.port("n0.g0.p0")].sw_port;
    world.switch_fault = [&](const Program& p) {
        for (const auto& [x, y] : p.changes.connect)
            if (world.now < 8'000 * kMs && (x == bad || y == bad))
                return std::pair{DriverError::refused, std::size_t{0}};
        return std::pair{DriverError::none, std::size_t{0}};
    };
    world.run_until(5'000 * kMs);
    CHECK(status_of(world, "n0.g0.p0").use == PortUse::fenced);
    CHECK(some_log_has(world, "fenced n0.g0.p0"));
    CHECK(world.passed(0, 0));  // nobody waits for a port that will not come
    CHECK(world.core->counters().passes == 3);
    const std::uint64_t tried = world.programs;
    world.run_until(7'900 * kMs);
    CHECK(world.programs - tried < 10);  // each pause is longer than the last
    world.run_until(25'000 * kMs);
    for (const PortStatus& p : world.core->ports()) CHECK(p.use != PortUse::fenced);
    CHECK(some_log_has(world, "n0.g0.p0 (ocs-r0 port 1) works again"));
    must_end(world);
}

TEST_CASE("a port fenced by hand is left when nothing is on it any more, is never tried, and comes back by hand") {
    Job job;
    job.comms = {{0, 1}};
    for (NodeIndex n = 0; n < 2; ++n)
        job.ranks.push_back(rank_on(n, {lasting(2'000 * kMs, on(0, {coll(0)})), on(0, {coll(0)}),
                                        later(60'000 * kMs, on(0, {coll(0)})), later(2'000 * kMs, on(0, {coll(0)}))}));
    World world({.nodes = 2, .ports = 2}, job);
    const auto told = [&](const Event& event) {
        const std::size_t before = world.logs.size();
        world.feed(event);
        return world.logs.size() > before;
    };
    PortId peer = kNone;
    world.at(1'000 * kMs, [&] {
        peer = status_of(world, "n0.g0.p0").peer;
        CHECK(told(CtlFence{1, world.port("n0.g0.p0"), "to clean it"}));
    });
    world.at(1'500 * kMs, [&] {  // under a launch in flight
        CHECK(status_of(world, "n0.g0.p0").peer == peer);
        CHECK(status_of(world, "n0.g0.p0").use == PortUse::fenced);
    });
    world.at(50'000 * kMs, [&] {
        CHECK(world.done(0, 1));  // over the other circuit
        CHECK(status_of(world, "n0.g0.p0").peer == kNone);
        REQUIRE(status_of(world, "n0.g0.p0").fence);
        CHECK(status_of(world, "n0.g0.p0").fence->by_hand);
        CHECK(status_of(world, "n0.g0.p0").fence->why == "to clean it");
        const std::uint64_t programs = world.programs;
        world.feed(CtlConnect{2, world.port("n0.g0.p0"), peer, false});
        CHECK(world.programs == programs);
    });
    world.at(63'000 * kMs, [&] { CHECK(told(CtlUnfence{3, world.port("n0.g0.p0")})); });
    must_end(world);
    CHECK(world.core->counters().suspensions == 0);
    CHECK(world.core->counters().passes == 0);
    CHECK(status_of(world, "n0.g0.p0").peer != kNone);
}

TEST_CASE("a circuit that is being taken away counts for nobody, also when its switch has refused meanwhile") {
    // n2 needs n0 and n1: one of the two circuits n0 - n2 goes. Over the other one a launch begins, and the port that
    // the first has left in n0 is another's at once, before anybody has heard that the switch refuses.
    Job job;
    job.comms = {{0, 2}, {1, 2}, {0, 1}, {0, 2}};
    job.ranks = {rank_on(0, {on(0, {coll(0)}), later(350 * kMs, on(3, {coll(0)})),
                             later(545 * kMs, lasting(200 * kMs, on(1, {coll(3)}))), later(550 * kMs, on(2, {coll(2)}))}),
                 rank_on(1, {later(530 * kMs, on(0, {coll(1)})), later(550 * kMs, on(1, {coll(2)}))}),
                 rank_on(2, {on(0, {coll(0)}), later(350 * kMs, on(3, {coll(0), coll(1)})),
                             later(545 * kMs, lasting(200 * kMs, on(1, {coll(3)})))})};
    REQUIRE(ends_without_opus(job));
    World world({.nodes = 3, .ports = 2}, job);
    world.switch_fault = [&](const Program&) {
        return std::pair{world.programs == 2 ? DriverError::refused : DriverError::none, std::size_t{0}};
    };
    must_end(world);
    CHECK(world.core->counters().switch_errors == 1);
    CHECK(world.core->counters().suspensions == 0);
    CHECK(world.start_time(0, 3) < world.start_time(0, 2) + 200 * kMs);  // beside it
}

TEST_CASE("rings and pairs find their way over planes, sides and four ports") {
    // The world refuses what no switch can join.
    Job job;
    job.comms = {{0, 1, 2, 3}, {0, 2}, {1, 3}};
    for (NodeIndex n = 0; n < 4; ++n)
        job.ranks.push_back(rank_on(n, {on(0, {coll(0)}), on(0, {coll(n % 2 == 0 ? 1 : 2)}), on(0, {coll(0)}),
                                        on(1, {send(0, (n + 1) % 4), recv(0, (n + 3) % 4)})}));
    REQUIRE(ends_without_opus(job));
    const Shape shapes[] = {{.nodes = 4, .ports = 2, .planes = 2},       {.nodes = 4, .ports = 4, .planes = 2},
                            {.nodes = 4, .ports = 4, .planes = 4},       {.nodes = 4, .ports = 2, .two_sided = true},
                            {.nodes = 4, .ports = 4, .two_sided = true}, {.nodes = 4, .ports = 4}};
    for (const Shape& shape : shapes) {
        CAPTURE(shape.ports);
        CAPTURE(shape.planes);
        CAPTURE(shape.two_sided);
        World world(shape, job);
        must_end(world);
        CHECK(world.core->counters().passes == 0);
    }
}

TEST_CASE("opus-ctl does not break a circuit under a launch in flight unless it is forced") {
    Job job;
    job.comms = {{0, 1}};
    for (NodeIndex n = 0; n < 2; ++n) job.ranks.push_back(rank_on(n, {lasting(2'000 * kMs, on(0, {coll(0)}))}));
    World world({.nodes = 3, .ports = 1}, job);
    const auto refusal_of = [&](const Event& event) {
        Actions actions;
        world.core->on(event, world.now, actions);
        for (const Action& action : actions)
            if (const auto* done = std::get_if<CtlDone>(&action)) return done->ok ? std::string("done") : done->text;
        return std::string("under way");
    };
    world.at(1'000 * kMs, [&] {
        CHECK(refusal_of(CtlDisconnect{1, world.port("n0.g0.p0"), false}).find("n0.r0") != std::string::npos);
        CHECK(refusal_of(CtlConnect{2, world.port("n0.g0.p0"), world.port("n2.g0.p0"), false}).find("n0.r0") !=
              std::string::npos);
        CHECK(world.lit(world.port("n0.g0.p0"), world.port("n1.g0.p0")));
    });
    must_end(world);
    CHECK(world.core->counters().suspensions == 0);
    world.run_until(world.now + 100 * kMs);
    CHECK(refusal_of(CtlDisconnect{3, world.port("n0.g0.p0"), false}) == "under way");  // nothing runs over it any more
}

}  // namespace opus::controller::test
