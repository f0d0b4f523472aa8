#include <doctest/doctest.h>

#include "tools/emulator/instrument.h"

using namespace opus;
using namespace opus::emulator;

namespace {

constexpr TimeNs kMs = 1'000'000;

struct Bench {
    explicit Bench(OpticalPlaneOptions options = {16, 16, 25 * kMs}, InstrumentOptions front = {})
        : plane(options), instrument(plane, counters, front) {
        instrument.open(1, 0);
    }
    // All that session 1 is answered, "CLOSED" where it ends.
    std::string say(const std::string& text, TimeNs now = 0) { return say_from(1, text, now); }
    std::string say_from(SessionId session, const std::string& text, TimeNs now) {
        Outputs out;
        instrument.receive(session, text + "\n", now, out);
        return heard(out, session);
    }
    std::string advance(TimeNs now) {
        Outputs out;
        instrument.advance(now, out);
        return heard(out);
    }
    static std::string heard(const Outputs& out, SessionId session = 1) {
        std::string text;
        for (const Output& o : out)
            if (o.session == session) text += o.bytes + (o.close ? "CLOSED" : "");
        while (text.ends_with("\r\n")) text.resize(text.size() - 2);
        return text;
    }

    Counters counters;
    OpticalPlane plane;
    Instrument instrument;
};

}  // namespace

TEST_CASE("a set command answers nothing, and its error waits in the queue") {
    Bench b;
    CHECK(b.say(":oxc:swit:conn:add (@1,2),(@17,18)") == "");
    CHECK(b.say(":system:error?") == "0, \"No error\"");
    CHECK(b.say(":oxc:swit:conn:add (@1),(@2)") == "");
    CHECK(b.say(":oxc:swit:conn:add (@1,2),(@17)") == "");
    CHECK(b.say(":system:error?").starts_with("-221, \""));
    CHECK(b.say(":system:error?").starts_with("-102, \""));
    CHECK(b.say(":system:error?") == "0, \"No error\"");
}

TEST_CASE("questions are answered as Polatis does") {
    Bench b;
    CHECK(b.say(":oxc:swit:size?") == "16,16");
    CHECK(b.say(":oxc:swit:conn:stat?") == "(@),(@)");
    b.say(":oxc:swit:conn:add (@3,1),(@17,18)");
    CHECK(b.say(":oxc:swit:conn:stat?") == "(@1,3),(@18,17)");
    CHECK(b.say(":oxc:swit:conn:port? 3") == "\"17\"");
    CHECK(b.say(":oxc:swit:conn:port? 17") == "\"3\"");
    CHECK(b.say(":oxc:swit:conn:port? 2") == "\"\"");
    b.say(":oxc:swit:port:dis (@2,4)");
    CHECK(b.say(":oxc:swit:port:stat? (@2,3,4)") == "(D,E,D)");
    b.say(":oxc:swit:port:enab (@2)");
    CHECK(b.say(":oxc:swit:port:stat? (@2)") == "(E)");
    CHECK(b.say(":pmon:pow? (@5,6)") == "(-60.00,-60.00)");
    CHECK(b.say("*opc?") == "1");
    CHECK(b.say("*idn?").starts_with("Opus,OCS-EMU"));
    b.say(":oxc:boot:mode DARK");
    CHECK(b.say(":oxc:boot:mode?") == "DARK");
    b.say(":oxc:swit:disc:all");
    CHECK(b.say(":oxc:swit:conn:stat?") == "(@),(@)");
}

TEST_CASE("headers have a long and a short form, in any case, and nothing between") {
    Bench b;
    for (const char* header :
         {":oxc:swit:conn:stat?", ":OXC:SWITCH:CONNECT:STATE?", ":Oxc:Switch:Conn:State?", "oxc:swit:conn:stat?"})
        CHECK(b.say(header) == "(@),(@)");
    for (const char* header : {":oxc:swi:conn:stat?", ":oxc:switc:conn:stat?", ":oxc:swit:conn",
                               ":oxc:swit:conn:stat:x?", ":", ":::?", "?", "*"}) {
        CHECK(b.say(header) == "");
        CHECK_MESSAGE(b.say(":system:error?").starts_with("-113"), header);
    }
}

TEST_CASE("commands of a line are relative to the branch of the one before") {
    Bench b;
    CHECK(b.say(":oxc:swit:conn:only (@1,2),(@17,18); stat?") == "(@1,2),(@17,18)");
    CHECK(b.say(":oxc:swit:conn:sub (@1),(@);add (@3),(@19);*opc?;stat?;:system:error?") ==
          "1;(@2,3),(@18,19);0, \"No error\"");
}

TEST_CASE("sub takes ends or pairs") {
    Bench b;
    b.say(":oxc:swit:conn:add (@1,2,3,4),(@17,18,19,20)");
    b.say(":oxc:swit:conn:sub (@1),(@)");
    b.say(":oxc:swit:conn:sub (@),(@18)");
    CHECK(b.say(":oxc:swit:conn:sub (@3),(@20);:system:error?").starts_with("-221"));
    CHECK(b.say(":oxc:swit:conn:sub (@3),(@19);:system:error?").starts_with("0"));
    CHECK(b.say(":oxc:swit:conn:stat?") == "(@4),(@20)");
}

TEST_CASE("lines may come in pieces, with either line end") {
    Bench b;
    Outputs out;
    for (char c : std::string(":oxc:swit:size?\r\n")) b.instrument.receive(1, {&c, 1}, 0, out);
    CHECK(Bench::heard(out) == "16,16");
}

TEST_CASE("a line that never ends is refused and forgotten") {
    Bench b;
    Outputs out;
    for (int i = 0; i < 100; ++i) b.instrument.receive(1, std::string(1024, 'x'), 0, out);
    CHECK(b.say("") == "");
    CHECK(b.say(":system:error?").starts_with("-223"));
}

TEST_CASE("sessions have their own errors and one map") {
    Bench b;
    b.instrument.open(2, 0);
    Outputs out;
    b.instrument.receive(2, ":bogus\n:oxc:swit:conn:add (@1),(@17)\n", 0, out);
    CHECK(b.say(":system:error?").starts_with("0"));
    CHECK(b.say(":oxc:swit:conn:stat?") == "(@1),(@17)");
}

TEST_CASE("the error queue overflows by saying so") {
    Bench b;
    for (int i = 0; i < 100; ++i) b.say(":bogus");
    std::string last;
    for (int i = 0; i < 100; ++i) {
        const auto error = b.say(":system:error?");
        if (error.starts_with("0")) break;
        last = error;
    }
    CHECK(last.starts_with("-350"));
}

TEST_CASE("faults strike as asked") {
    Bench b;
    SUBCASE("refuse") {
        b.say(":emulator:fault:refuse 1");
        CHECK(b.say(":oxc:swit:conn:add (@1),(@17);:system:error?").starts_with("-200"));
        CHECK(b.say(":oxc:swit:conn:stat?") == "(@),(@)");
        CHECK(b.say(":oxc:swit:conn:add (@1),(@17);:system:error?").starts_with("0"));
    }
    SUBCASE("drop: the change is done, the session dies without an answer") {
        b.say(":emulator:fault:drop 1");
        CHECK(b.say(":oxc:swit:conn:add (@1),(@17);:system:error?\n:oxc:swit:size?") == "CLOSED");
        CHECK(b.plane.peer(1) == 17);
    }
    SUBCASE("dropnow: the others die") {
        b.instrument.open(2, 0);
        Outputs out;
        b.instrument.receive(1, ":emulator:fault:dropnow\n", 0, out);
        CHECK(Bench::heard(out, 2) == "CLOSED");
        CHECK(b.say("*opc?") == "1");
    }
    SUBCASE("slow: lines are taken later and in order") {
        b.say(":emulator:fault:slow 50");
        CHECK(b.say(":oxc:swit:size?\n*opc?", 10) == "");
        CHECK(b.instrument.next_due() == 10 + 50 * kMs);
        CHECK(b.advance(10 + 50 * kMs - 1) == "");
        CHECK(b.advance(10 + 50 * kMs) == "16,16\r\n1");
        CHECK(b.instrument.next_due() == kNever);
    }
    SUBCASE("late: the next change alone, and nobody waits for it") {
        b.say(":emulator:fault:late 50");
        CHECK(b.say(":oxc:swit:conn:add (@1),(@17);:system:error?", 10) == "");
        b.instrument.open(2, 20);
        CHECK(b.say_from(2, ":oxc:swit:conn:stat?", 20) == "(@),(@)");
        SUBCASE("its session goes on behind it") {
            CHECK(b.say("*opc?", 30) == "");
            CHECK(b.advance(10 + 50 * kMs) == "0, \"No error\"\r\n1");
        }
        SUBCASE("what was said whole is done, though its session is gone") {
            b.instrument.close(1);
            b.advance(10 + 50 * kMs);
        }
        CHECK(b.say_from(2, ":oxc:swit:conn:stat?", 60 * kMs) == "(@1),(@17)");
    }
    SUBCASE("stuck") {
        b.say(":emulator:fault:stuck (@17)");
        b.say(":oxc:swit:conn:add (@1),(@17)");
        CHECK(b.say(":pmon:pow? (@1)", 1000 * kMs) == "(-60.00)");
    }
    SUBCASE("readback: what changed last is missing") {
        b.say(":oxc:swit:conn:add (@1),(@17)");
        b.say(":oxc:swit:conn:add (@2),(@18)");
        b.say(":emulator:fault:readback 1");
        CHECK(b.say(":oxc:swit:conn:stat?") == "(@1),(@17)");
        CHECK(b.say(":oxc:swit:conn:stat?") == "(@1,2),(@17,18)");
    }
    SUBCASE("mute and garbage") {
        b.say(":emulator:fault:mute 1");
        CHECK(b.say("*opc?") == "");
        b.say(":emulator:fault:garbage 1");
        CHECK(b.say("*opc?") != "1");
        CHECK(b.say("*opc?") == "1");
    }
    SUBCASE("a reboot ends sessions, and takes new ones only when it is over") {
        b.say(":oxc:swit:conn:add (@1),(@17)");
        SUBCASE("keeping circuits lit") {
            CHECK(b.say(":emulator:reboot keep,100", 1000 * kMs) == "CLOSED");
            CHECK(b.plane.lit_peer(1, 1000 * kMs) == 17);
        }
        SUBCASE("losing them") {
            CHECK(b.say(":emulator:reboot lose,100", 1000 * kMs) == "CLOSED");
            CHECK(b.plane.peer(1) == 0);
        }
        SUBCASE("making them again, by boot mode") {
            b.say(":oxc:boot:mode rest");
            CHECK(b.say(":emulator:reboot ,100", 1000 * kMs) == "CLOSED");
            CHECK(b.plane.lit_peer(1, 1000 * kMs) == 0);
            CHECK(b.plane.lit_peer(1, 1025 * kMs) == 17);
        }
        CHECK(!b.instrument.open(3, 1050 * kMs));
        CHECK(b.instrument.open(3, 1100 * kMs));
    }
}

TEST_CASE("without a power monitor the question is an error, not an answer") {
    Bench b({16, 16, 0}, {.power_monitor = false});
    CHECK(b.say(":pmon:pow? (@1)") == "");
    CHECK(b.say(":system:error?").starts_with("-113"));
}
