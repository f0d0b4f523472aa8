// The emulator's data plane as NIC ports see it: real sockets, a real process.
#include <doctest/doctest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <random>
#include <sstream>
#include <thread>

#include "test/drivers/emulator_process.h"

using namespace opus;
using namespace opus::test;
using data_plane::AttachStatus;
using Counts = std::vector<std::uint64_t>;

namespace {

// Sends frames from `from` until one arrives at `to`: light is there.
void await_light(NicPort& from, NicPort& to, std::uint64_t dst) {
    for (int i = 0; i < 2000; ++i) {
        from.send(dst, "?");
        pollfd p{to.socket().fd(), POLLIN, 0};
        if (poll(&p, 1, 10) > 0) {
            to.receive();
            return;
        }
    }
    FAIL("no light");
}

// Everything sent before on any socket has been handled when this returns: what waits in a socket of the
// emulator is taken in rounds, and each ask() takes at least one.
Counts settled_counts(EmulatorProcess& emulator, std::uint64_t frames) {
    for (int i = 0; i < 5000; ++i) {
        const Counts c = emulator.counts();
        if (c[0] + c[2] + c[4] >= frames) return c;
        poll(nullptr, 0, 2);
    }
    return emulator.counts();
}

std::string temporary_file() {
    char name[] = "/tmp/opus-test-XXXXXX";
    const int fd = mkstemp(name);
    if (fd >= 0) close(fd);
    return name;
}

}  // namespace

TEST_CASE("a frame passes where light passes, both ways, whole and in order") {
    EmulatorProcess emulator({"--size", "4x4", "--dark-ms", "0"});
    NicPort a(emulator, 1, 100), b(emulator, 5, 200);
    REQUIRE(a.status() == AttachStatus::ok);
    emulator.tell(":oxc:swit:conn:add (@1),(@5)");
    a.send(200, "hello", 42);
    const Frame f = b.receive();
    CHECK(f.payload == "hello");
    CHECK(f.header.src == 100);
    CHECK(f.header.dst == 200);
    CHECK(f.header.tag == 42);
    CHECK(f.header.port == 5);
    std::mt19937 random(7);
    std::vector<std::string> sent;
    for (std::size_t size : {0u, 1u, 4063u, 4064u, 4096u, 65536u, 262143u, 262144u, 300000u, data_plane::kMaxPayload, 3u}) {
        std::string payload(size, '\0');
        for (char& c : payload) c = static_cast<char>(random());
        sent.push_back(std::move(payload));
    }
    std::thread sender([&] {
        for (std::size_t i = 0; i < sent.size(); ++i) b.send(100, sent[i], i);
    });
    for (std::size_t i = 0; i < sent.size(); ++i) {
        const Frame frame = a.receive();
        CHECK(frame.header.tag == i);
        CHECK(frame.payload == sent[i]);
    }
    sender.join();
}

TEST_CASE("what is sent in the dark is lost, counted and logged") {
    const std::string log = temporary_file(), stats = temporary_file();
    EmulatorProcess emulator({"--size", "8", "--dark-ms", "3600000", "--loss-log", log, "--stats", stats});
    NicPort a(emulator, 1, 100), b(emulator, 2, 200);
    a.send(200, "no circuit");
    emulator.tell(":oxc:swit:conn:add (@1),(@2)");
    b.send(100, "not lit yet");
    CHECK(settled_counts(emulator, 2) == Counts{0, 0, 2, 21, 0, 0, 1});
    CHECK(emulator.end(SIGTERM) == 0);
    std::ifstream lines(log);
    std::uint64_t when, src, dst, bytes;
    std::string what;
    std::uint32_t port;
    lines >> when >> what >> port >> src >> dst >> bytes;
    CHECK(when > 1'500'000'000'000'000'000u);
    CHECK(what == "lost");
    CHECK(port == 1);
    CHECK(src == 100);
    CHECK(dst == 200);
    CHECK(bytes == 10);
    std::stringstream json;
    json << std::ifstream(stats).rdbuf();
    CHECK(json.str().find("\"lost_frames\": 2") != std::string::npos);
    CHECK(json.str().find("\"lost_bytes\": 21") != std::string::npos);
    std::remove(log.c_str());
    std::remove(stats.c_str());
}

TEST_CASE("light comes after the dark time and goes with the circuit") {
    EmulatorProcess emulator({"--size", "8", "--dark-ms", "20"});
    NicPort a(emulator, 1, 100), b(emulator, 2, 200);
    emulator.tell(":oxc:swit:conn:add (@1),(@2)");
    await_light(a, b, 200);
    emulator.tell(":oxc:swit:conn:sub (@1),(@)");
    const auto before = emulator.counts();
    a.send(200, "gone");
    const auto after = settled_counts(emulator, before[0] + before[2] + before[4] + 1);
    CHECK(after[2] == before[2] + 1);
    CHECK(after[0] == before[0]);
}

TEST_CASE("what comes out where it was not meant to is misdelivered") {
    EmulatorProcess emulator({"--size", "8", "--dark-ms", "0"});
    NicPort a(emulator, 1, 100), b(emulator, 2, 200), c(emulator, 3, 300);
    emulator.tell(":oxc:swit:conn:add (@1),(@3)");
    a.send(200, "for two");
    CHECK(settled_counts(emulator, 1) == Counts{0, 0, 0, 0, 1, 7, 1});
    a.send(300, "for three");
    CHECK(c.receive().payload == "for three");
}

TEST_CASE("several connections share a port, each with its endpoint") {
    EmulatorProcess emulator({"--size", "8", "--dark-ms", "0"});
    emulator.tell(":oxc:swit:conn:add (@1),(@2)");
    NicPort a(emulator, 1, 100), b(emulator, 2, 200), c(emulator, 2, 201);
    a.send(201, "second");
    a.send(200, "first");
    CHECK(c.receive().payload == "second");
    CHECK(b.receive().payload == "first");
    CHECK(NicPort(emulator, 2, 200).status() == AttachStatus::endpoint_taken);
    CHECK(NicPort(emulator, 3, 200).status() == AttachStatus::ok);
}

TEST_CASE("a slow receiver stops its sender and loses nothing") {
    EmulatorProcess emulator({"--size", "8", "--dark-ms", "0"});
    emulator.tell(":oxc:swit:conn:add (@1,3),(@2,4)");
    NicPort a(emulator, 1, 100), a2(emulator, 1, 101), b(emulator, 2, 200), c(emulator, 3, 300), d(emulator, 4, 400);
    constexpr std::size_t kFrames = 600, kBytes = 60'000;  // 72 MB: far more than all buffers between
    auto pump = [&](NicPort& nic) {
        for (std::size_t i = 0; i < kFrames; ++i) nic.send(200, std::string(kBytes, static_cast<char>(i)), i);
    };
    std::thread first([&] { pump(a); }), second([&] { pump(a2); });
    std::uint64_t held = 0;
    for (int same = 0; same < 20;) {  // until nothing moves any more
        const auto now = emulator.counts()[0];
        same = now == held ? same + 1 : 0;
        held = now;
        poll(nullptr, 0, 5);
    }
    CHECK(held < 2 * kFrames);
    c.send(400, "others pass");
    CHECK(d.receive().payload == "others pass");
    std::size_t next[2] = {0, 0};
    bool whole = true;
    for (std::size_t i = 0; i < 2 * kFrames; ++i) {
        const Frame f = b.receive();
        std::size_t& expected = next[f.header.src - 100];
        whole = whole && f.header.tag == expected && f.payload == std::string(kBytes, static_cast<char>(expected));
        ++expected;
    }
    CHECK(whole);
    first.join();
    second.join();
    CHECK(emulator.counts()[2] == 0);
}

TEST_CASE("a receiver that dies frees its senders") {
    EmulatorProcess emulator({"--size", "8", "--dark-ms", "0"});
    emulator.tell(":oxc:swit:conn:add (@1),(@2)");
    NicPort a(emulator, 1, 100);
    auto b = std::make_unique<NicPort>(emulator, 2, 200);
    std::thread sender([&] {
        for (int i = 0; i < 600; ++i) a.send(200, std::string(60'000, 'x'));
    });
    poll(nullptr, 0, 50);
    b.reset();
    sender.join();
    const auto c = settled_counts(emulator, 600);
    CHECK(c[0] + c[4] == 600);
    CHECK(c[4] > 0);
}

TEST_CASE("always lit, every port reaches every other without a circuit") {
    EmulatorProcess emulator({"--size", "8", "--always-lit"});
    NicPort a(emulator, 1, 100), b(emulator, 2, 200), c(emulator, 3, 300), c2(emulator, 4, 300);
    a.send(200, "x");
    CHECK(b.receive().payload == "x");
    b.send(300, "to the fourth", 0, 4);
    CHECK(c2.receive().header.port == 4);
    c.send(100, "y");
    CHECK(a.receive().header.src == 300);
    a.send(999, "nobody");
    const auto counts = settled_counts(emulator, 4);
    CHECK(counts[0] == 3);
    CHECK(counts[2] == 0);
    CHECK(counts[4] == 1);
}

TEST_CASE("a paced port loses nothing and keeps the order") {
    EmulatorProcess emulator({"--size", "8", "--dark-ms", "0", "--port-gbps", "1"});
    emulator.tell(":oxc:swit:conn:add (@1),(@2)");
    NicPort a(emulator, 1, 100), b(emulator, 2, 200);
    std::thread sender([&] {
        for (std::uint64_t i = 0; i < 100; ++i) a.send(200, std::string(50'000, 'p'), i);
    });
    bool ordered = true;
    for (std::uint64_t i = 0; i < 100; ++i) ordered = ordered && b.receive().header.tag == i;
    CHECK(ordered);
    sender.join();
    CHECK(emulator.counts() == Counts{100, 5'000'000, 0, 0, 0, 0, 1});
}

TEST_CASE("an attach that is wrong is told why") {
    EmulatorProcess emulator({"--size", "8"});
    const auto attach = [&](data_plane::Attach request) {
        Socket s(emulator.data());
        s.send({reinterpret_cast<const char*>(&request), sizeof request});
        data_plane::Attached reply;
        std::memcpy(&reply, s.receive(sizeof reply).data(), sizeof reply);
        CHECK(reply.magic == data_plane::kMagic);
        if (reply.status != AttachStatus::ok) CHECK(s.closed());
        return reply.status;
    };
    CHECK(attach({data_plane::kMagic, 1, 1, 0, 7}) == AttachStatus::ok);
    CHECK(attach({data_plane::kMagic, 2, 1, 0, 7}) == AttachStatus::version);
    CHECK(attach({data_plane::kMagic, 1, 9, 0, 7}) == AttachStatus::no_such_port);
    CHECK(attach({data_plane::kMagic, 1, 0, 0, 7}) == AttachStatus::no_such_port);
    CHECK(attach({data_plane::kMagic, 1, 1, 0, 0}) == AttachStatus::malformed);
    CHECK(attach({0x12345678, 1, 1, 0, 7}) == AttachStatus::malformed);
}

TEST_CASE("hostile bytes end their own connection and nothing else") {
    EmulatorProcess emulator({"--size", "8", "--dark-ms", "0"});
    emulator.tell(":oxc:swit:conn:add (@1),(@2)");
    NicPort a(emulator, 1, 100), b(emulator, 2, 200);
    std::mt19937 random(11);
    for (int i = 0; i < 50; ++i) {
        Socket raw(emulator.data());
        std::string bytes(1 + random() % 2000, '\0');
        for (char& c : bytes) c = static_cast<char>(random());
        if (i % 2) {  // past the attach, so that it is frames that are wrong
            const data_plane::Attach attach{data_plane::kMagic, 1, 3, 0, std::uint64_t(1000 + i)};
            raw.send({reinterpret_cast<const char*>(&attach), sizeof attach});
            raw.receive(sizeof(data_plane::Attached));
        }
        ::send(raw.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    }
    {
        NicPort huge(emulator, 3, 300);
        const data_plane::FrameHeader header{data_plane::kMaxPayload + 1, 0, 200, 0, 0};
        huge.socket().send({reinterpret_cast<const char*>(&header), sizeof header});
        CHECK(huge.socket().closed());
    }
    a.send(200, "still here");
    CHECK(b.receive().payload == "still here");
    CHECK(emulator.alive());
}

TEST_CASE("the emulator ends cleanly on SIGINT and SIGTERM, and refuses a port that is taken") {
    EmulatorProcess first({"--size", "8"});
    CHECK_THROWS(EmulatorProcess({"--size", "8"}, first.scpi()));
    CHECK(first.end(SIGINT) == 0);
    EmulatorProcess second({"--size", "8"});
    CHECK(second.end(SIGTERM) == 0);
}
