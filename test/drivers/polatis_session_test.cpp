// The pure session against the pure instrument, in virtual time: what the driver says, what it concludes.
#include <doctest/doctest.h>

#include <optional>

#include "drivers/polatis_session.h"
#include "tools/emulator/instrument.h"

using namespace opus;
using namespace opus::drivers;
using emulator::Instrument;
using emulator::OpticalPlane;
using emulator::OpticalPlaneOptions;

namespace {

constexpr TimeNs kMs = 1'000'000;
constexpr TimeNs kDark = 25 * kMs;
constexpr TimeNs kTimeout = 2'000 * kMs;

Switch description(std::uint32_t ingress = 32, std::uint32_t egress = 0, Settle settle = Settle::power) {
    Switch s;
    s.name = "ocs-r0";
    s.address = "127.0.0.1:5025";
    s.ingress = ingress;
    s.egress = egress;
    s.sidedness = egress ? Sidedness::two_sided : Sidedness::any_to_any;
    s.dark_ns = kDark;
    s.guard_ns = 5 * kMs;
    s.settle = settle;
    return s;
}

struct Rig {
    explicit Rig(Switch s = description(), OpticalPlaneOptions g = {32, 0, kDark}, emulator::InstrumentOptions front = {})
        : plane(g), instrument(plane, counters, front), session(s, [this](const DriverEvent& e) { take(e); }) {}

    void connect() {
        REQUIRE(instrument.open(++id, now));
        connected = true;
        session.open(now);
        run(now);
    }
    // Everything that happens until `until`, byte streams cut into pieces of `piece`.
    void run(TimeNs until) {
        while (true) {
            exchange();
            const TimeNs due = std::min(session.next_due(), instrument.next_due());
            if (due > until) break;
            now = std::max(now, due);
            session.advance(now);
            emulator::Outputs out;
            instrument.advance(now, out);
            hear(out);
        }
        now = until;
    }
    void exchange() {
        while (connected && (!session.output().empty() || !session.fault().empty())) {
            if (!session.fault().empty()) {
                drop(session.fault());
                return;
            }
            const std::string bytes = session.output().substr(0, piece);
            session.output().erase(0, piece);
            said += bytes;
            emulator::Outputs out;
            instrument.receive(id, bytes, now, out);
            hear(out);
        }
    }
    void hear(const emulator::Outputs& out) {
        for (const auto& o : out) {
            if (o.session != id || !connected) continue;
            for (std::size_t i = 0; i < o.bytes.size(); i += piece)
                session.receive(std::string_view(o.bytes).substr(i, piece), now);
            if (o.close) drop("closed");
        }
        if (connected && !session.fault().empty()) drop(session.fault());
    }
    void drop(const std::string& reason) {
        connected = false;
        down = reason;
        instrument.close(id);
        session.close(reason);
    }
    void take(const DriverEvent& e) {
        if (auto* a = std::get_if<Applied>(&e)) {
            CHECK(!applied.contains(a->op));
            applied[a->op] = *a;
        }
        if (auto* m = std::get_if<MapRead>(&e)) maps[m->op] = *m;
        if (auto* p = std::get_if<PortPower>(&e)) powers[p->op] = *p;
        if (auto* u = std::get_if<SessionUp>(&e)) up = u->identity;
    }
    void inject(const std::string& command) { instrument.run(":emulator:fault:" + command, now); }
    std::size_t asked(const std::string& what) const {
        std::size_t count = 0;
        for (auto at = said.find(what); at != std::string::npos; at = said.find(what, at + 1)) ++count;
        return count;
    }

    emulator::Counters counters;
    OpticalPlane plane;
    Instrument instrument;
    PolatisSession session;
    TimeNs now = 1'000 * kMs;
    emulator::SessionId id = 0;
    std::size_t piece = 1'000'000;
    bool connected = false;
    std::string said, down;
    std::optional<SwitchIdentity> up;
    std::map<OpId, Applied> applied;
    std::map<OpId, MapRead> maps;
    std::map<OpId, PortPower> powers;
};

}  // namespace

TEST_CASE("a session begins with who the switch is") {
    Rig rig;
    rig.connect();
    REQUIRE(rig.up);
    CHECK(rig.up->vendor == "Opus");
    CHECK(rig.up->ingress == 32);
    CHECK(rig.session.up());
}

TEST_CASE("a change set is one line, and done when light is back") {
    Rig rig;
    SUBCASE("in whole reads") {}
    SUBCASE("in single bytes") { rig.piece = 1; }
    rig.connect();
    rig.plane.connect(std::vector<CrossConnect>{{1, 2}, {3, 4}}, false, 0);
    const TimeNs begin = rig.now;
    rig.session.apply(7, {{3}, {{1, 5}, {2, 6}}}, rig.now + kTimeout, rig.now);
    rig.run(rig.now + kTimeout / 2);
    REQUIRE(rig.applied.contains(7));
    const Applied& a = rig.applied[7];
    CHECK(a.error == DriverError::none);
    CHECK(a.text == "");
    CHECK(a.sent_ns == begin);
    CHECK(a.acked_ns == begin);
    CHECK(a.settled_ns >= begin + kDark);
    CHECK(a.settled_ns < begin + kDark + kMs);
    CHECK(rig.plane.circuits() == std::vector<CrossConnect>{{1, 5}, {2, 6}});
    CHECK(rig.said.find(":oxc:swit:conn:sub (@3),(@);:oxc:swit:conn:add (@1,2),(@5,6);:system:error?\n") != std::string::npos);
    CHECK(rig.asked(":pmon:pow?") <= 5);
}

TEST_CASE("on a switch with sides ingress is named first, and ends where they belong") {
    Rig rig(description(16, 16), {16, 16, kDark});
    rig.connect();
    rig.plane.connect(std::vector<CrossConnect>{{1, 17}, {2, 18}}, false, 0);
    rig.session.apply(1, {{1, 18}, {{19, 3}}}, rig.now + kTimeout, rig.now);
    rig.run(rig.now + kTimeout / 2);
    CHECK(rig.applied[1].error == DriverError::none);
    CHECK(rig.plane.circuits() == std::vector<CrossConnect>{{3, 19}});
}

TEST_CASE("a change set that only disconnects does not wait for light") {
    Rig rig;
    rig.connect();
    rig.plane.connect(std::vector<CrossConnect>{{1, 2}}, false, 0);
    rig.session.apply(1, {{2}, {}}, rig.now + kTimeout, rig.now);
    rig.exchange();
    CHECK(rig.applied[1].error == DriverError::none);
    CHECK(rig.plane.circuits().empty());
}

TEST_CASE("with settle = time the dark time and the guard are waited, nothing is asked") {
    Rig rig(description(32, 0, Settle::time), {32, 0, kDark}, {.power_monitor = false});
    rig.connect();
    REQUIRE(rig.session.up());
    const TimeNs begin = rig.now;
    rig.session.apply(1, {{}, {{1, 2}}}, rig.now + kTimeout, rig.now);
    rig.run(begin + kTimeout / 2);
    CHECK(rig.applied[1].settled_ns == begin + kDark + 5 * kMs);
    CHECK(rig.asked(":pmon") == 0);
}

TEST_CASE("change sets on other ports overlap, on the same ports they queue") {
    Rig rig;
    rig.connect();
    const TimeNs begin = rig.now;
    rig.session.apply(1, {{}, {{1, 2}}}, rig.now + kTimeout, rig.now);
    rig.session.apply(2, {{}, {{2, 3}}}, rig.now + kTimeout, rig.now);
    rig.session.apply(3, {{}, {{4, 5}}}, rig.now + kTimeout, rig.now);
    rig.session.apply(4, {{3}, {}}, rig.now + kTimeout, rig.now);
    rig.run(begin + kTimeout / 2);
    REQUIRE(rig.applied.size() == 4);
    for (OpId op = 1; op <= 4; ++op) CHECK(rig.applied[op].error == DriverError::none);
    CHECK(rig.applied[1].sent_ns == begin);
    CHECK(rig.applied[3].sent_ns == begin);
    CHECK(rig.applied[2].sent_ns == rig.applied[1].settled_ns);
    CHECK(rig.applied[4].sent_ns == rig.applied[2].settled_ns);
    CHECK(rig.plane.circuits() == std::vector<CrossConnect>{{4, 5}});
}

TEST_CASE("what the switch refuses is answered in its words, and the next is not blamed") {
    Rig rig;
    rig.connect();
    rig.inject("refuse 2");  // sub and add of one line: two errors in the queue
    rig.session.apply(1, {{3}, {{1, 2}}}, rig.now + kTimeout, rig.now);
    rig.exchange();
    CHECK(rig.applied[1].error == DriverError::refused);
    CHECK(rig.applied[1].text == "-200, \"Execution error; refused as asked\"");
    rig.session.apply(2, {{}, {{1, 2}}}, rig.now + kTimeout, rig.now);
    rig.run(rig.now + kTimeout / 2);
    CHECK(rig.applied[2].error == DriverError::none);
    CHECK(rig.connected);
}

TEST_CASE("a read-back that differs is an error that names the entry") {
    Rig rig;
    rig.connect();
    rig.inject("readback 1");
    rig.session.apply(1, {{}, {{1, 2}}}, rig.now + kTimeout, rig.now);
    rig.exchange();
    CHECK(rig.applied[1].error == DriverError::garbage);
    CHECK(rig.applied[1].text == "read-back differs: 1-2 connected was asked, the switch says port 1 has no circuit");
}

TEST_CASE("a port that stays dark is no_light, after four dark times, without many questions") {
    Rig rig;
    rig.connect();
    rig.inject("stuck (@2)");
    const TimeNs begin = rig.now;
    rig.session.apply(1, {{}, {{1, 2}, {3, 4}}}, rig.now + kTimeout, rig.now);
    TimeNs answered = 0;
    while (!rig.applied.contains(1) && rig.now < begin + kTimeout) rig.run(rig.now + kMs), answered = rig.now;
    CHECK(rig.applied[1].error == DriverError::no_light);
    CHECK(rig.applied[1].text.starts_with("no light at port 1 (-60.0 dBm)"));
    CHECK(answered >= begin + 4 * kDark);
    CHECK(answered < begin + 6 * kDark);
    CHECK(rig.asked(":pmon:pow?") < 60);
}

TEST_CASE("a switch that takes a command late has its dark time all the same") {
    Rig rig;
    rig.connect();
    rig.session.apply(1, {{}, {{1, 2}}}, rig.now + kTimeout, rig.now);
    rig.now += 5 * kDark;  // before it hears of it
    rig.run(rig.now + 2 * kDark);
    CHECK(rig.applied[1].error == DriverError::none);
}

TEST_CASE("an op is answered at its deadline, and what comes later is matched all the same") {
    Rig rig;
    rig.connect();
    rig.inject("slow 100");
    const TimeNs begin = rig.now;
    rig.session.apply(1, {{}, {{1, 2}}}, begin + 50 * kMs, begin);
    rig.session.read_map(2, begin + kTimeout, begin);
    rig.run(begin + 60 * kMs);
    CHECK(rig.applied[1].error == DriverError::timeout);
    CHECK(rig.maps.empty());
    rig.run(begin + 200 * kMs);
    CHECK(rig.maps[2].error == DriverError::none);
    CHECK(rig.maps[2].circuits == std::vector<CrossConnect>{{1, 2}});
    CHECK(rig.connected);
}

TEST_CASE("a cancelled op is answered once, sent or not") {
    Rig rig;
    rig.connect();
    rig.session.apply(1, {{}, {{1, 2}}}, rig.now + kTimeout, rig.now);
    rig.session.apply(2, {{}, {{2, 3}}}, rig.now + kTimeout, rig.now);
    rig.session.cancel(2, rig.now);
    rig.exchange();
    rig.session.cancel(1, rig.now);
    rig.session.cancel(1, rig.now);
    rig.session.cancel(99, rig.now);
    CHECK(rig.applied[1].error == DriverError::cancelled);
    CHECK(rig.applied[2].error == DriverError::cancelled);
    rig.run(rig.now + kTimeout);
    CHECK(rig.plane.circuits() == std::vector<CrossConnect>{{1, 2}});
    CHECK(rig.applied.size() == 2);
}

TEST_CASE("a session that drops answers every op once, and a new one serves") {
    Rig rig;
    rig.connect();
    rig.inject("drop 1");
    rig.session.apply(1, {{}, {{1, 2}}}, rig.now + kTimeout, rig.now);
    rig.session.apply(2, {{}, {{1, 3}}}, rig.now + kTimeout, rig.now);
    rig.session.read_map(3, rig.now + kTimeout, rig.now);
    rig.run(rig.now);
    CHECK(!rig.connected);
    for (OpId op : {1, 2}) CHECK(rig.applied[op].error == DriverError::unreachable);
    CHECK(rig.maps[3].error == DriverError::unreachable);
    rig.session.read_map(4, rig.now + kTimeout, rig.now);
    CHECK(rig.maps[4].error == DriverError::unreachable);
    rig.connect();
    rig.session.read_map(5, rig.now + kTimeout, rig.now);
    rig.run(rig.now);
    CHECK(rig.maps[5].circuits == std::vector<CrossConnect>{{1, 2}});
}

TEST_CASE("garbage ends the session: the op at hand is garbage, the others unreachable") {
    Rig rig;
    rig.connect();
    rig.inject("garbage 1");
    rig.session.read_map(1, rig.now + kTimeout, rig.now);
    rig.session.read_map(2, rig.now + kTimeout, rig.now);
    rig.run(rig.now);
    CHECK(rig.maps[1].error == DriverError::garbage);
    CHECK(rig.maps[2].error == DriverError::unreachable);
    CHECK(rig.down.starts_with("garbage from the switch"));
}

TEST_CASE("a reply that never comes is noticed, not mistaken for the next") {
    Rig rig;
    rig.connect();
    rig.inject("mute 1");
    rig.session.apply(1, {{}, {{1, 2}}}, rig.now + kTimeout, rig.now);
    rig.run(rig.now);
    CHECK(rig.applied[1].error == DriverError::garbage);
    CHECK(!rig.connected);
}

TEST_CASE("a switch that falls silent loses its session") {
    Rig rig;
    rig.connect();
    rig.inject("mute 1000");
    rig.session.read_map(1, rig.now + 100 * kMs, rig.now);
    rig.run(rig.now + 5'000 * kMs);
    CHECK(rig.maps[1].error == DriverError::timeout);
    CHECK(rig.down == "the switch at 127.0.0.1:5025 does not answer");
}

TEST_CASE("a switch of another size is refused with both sizes named") {
    Rig rig(description(16, 16), {32, 0, kDark});
    rig.connect();
    CHECK(!rig.up);
    CHECK(rig.down ==
          "the switch at 127.0.0.1:5025 says its size is 32, the fabric file says 16x16 for ocs-r0: correct its size "
          "or address");
}

TEST_CASE("settle = power without a power monitor is said at once") {
    Rig rig(description(), {32, 0, kDark}, {.power_monitor = false});
    rig.connect();
    CHECK(!rig.up);
    CHECK(rig.down == "the switch at 127.0.0.1:5025 has no power monitor: give ocs-r0 settle = \"time\"");
}

TEST_CASE("power is read per port, and a question that the switch refuses is answered so") {
    Rig rig;
    rig.connect();
    rig.plane.connect(std::vector<CrossConnect>{{1, 2}}, false, 0);
    rig.session.read_power(1, {2, 3}, rig.now + kTimeout, rig.now);
    rig.session.read_power(2, {99}, rig.now + kTimeout, rig.now);
    rig.session.read_power(3, {}, rig.now + kTimeout, rig.now);
    rig.session.read_map(4, rig.now + kTimeout, rig.now);
    rig.run(rig.now);
    REQUIRE(rig.powers[1].dbm.size() == 2);
    CHECK(rig.powers[1].dbm[0].first == 2);
    CHECK(rig.powers[1].dbm[0].second > -10);
    CHECK(rig.powers[1].dbm[1].second < -50);
    CHECK(rig.powers[2].error == DriverError::refused);
    CHECK(rig.powers[3].error == DriverError::none);
    CHECK(rig.maps[4].error == DriverError::none);
}

TEST_CASE("errors that others left are not taken for ours") {
    // One error queue for all sessions, as some instruments have: the greeting empties it.
    Switch s = description();
    bool up = false;
    PolatisSession session(s, [&](const DriverEvent& e) { up |= std::holds_alternative<SessionUp>(e); });
    session.open(0);
    session.receive("Polatis,x,1,2\n32,0\n(-60.0)\n-221, \"old\"\n", 0);
    CHECK(!up);
    session.receive("-222, \"older\"\n", 0);
    CHECK(!up);
    session.receive("0, \"No error\"\n", 0);
    CHECK(up);
    CHECK(session.fault() == "");
}
