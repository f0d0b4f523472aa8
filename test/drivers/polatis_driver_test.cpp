// The driver as the controller uses it: a thread and a socket, against a real emulator process.
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <condition_variable>
#include <map>
#include <mutex>
#include <random>
#include <thread>

#include "opus/switch_driver.h"
#include "test/drivers/emulator_process.h"

using namespace opus;
using namespace opus::test;

namespace {

constexpr TimeNs kLong = 15'000'000'000;
using Pairs = std::vector<CrossConnect>;

// Keeps what the driver says; waits for it.
struct Heard {
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<DriverEvent> events;
    std::map<OpId, int> answers;

    void take(const DriverEvent& e) {
        const std::lock_guard lock(mutex);
        events.push_back(e);
        std::visit(
            [&](const auto& x) {
                if constexpr (requires { x.op; }) ++answers[x.op];
            },
            e);
        changed.notify_all();
    }
    // The n-th event of that type for which `wanted` holds.
    template <typename Event, typename Wanted>
    Event await(Wanted wanted, int nth = 1) {
        std::unique_lock lock(mutex);
        const Event* found = nullptr;
        const bool came = changed.wait_for(lock, std::chrono::seconds(20), [&] {
            int seen = 0;
            for (const auto& e : events)
                if (const auto* x = std::get_if<Event>(&e); x && wanted(*x) && ++seen == nth) {
                    found = x;
                    return true;
                }
            return false;
        });
        if (!came) throw std::runtime_error("the driver did not answer");
        return *found;
    }
    template <typename Event>
    Event answer(OpId op) {
        return await<Event>([op](const Event& e) { return e.op == op; });
    }
    SessionUp up(int nth = 1) {
        return await<SessionUp>([](const SessionUp&) { return true; }, nth);
    }
    SessionDown down(int nth = 1) {
        return await<SessionDown>([](const SessionDown&) { return true; }, nth);
    }
};

struct Driven {
    explicit Driven(const Switch& s) : driver(make_switch_driver(s, [this](const DriverEvent& e) { heard.take(e); })) {
        REQUIRE(driver);
        driver->start();
    }
    Pairs map(OpId op) {
        driver->read_map(op, kLong);
        const auto read = heard.answer<MapRead>(op);
        CHECK(read.error == DriverError::none);
        return read.circuits;
    }
    Heard heard;
    std::unique_ptr<SwitchDriver> driver;
};

// A server that says what it is told, whatever it is asked.
class HostileServer {
public:
    explicit HostileServer(std::function<void(Socket&)> serve) : serve_(std::move(serve)) {
        fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        sockaddr_in a{};
        a.sin_family = AF_INET;
        a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t length = sizeof a;
        bind(fd_, reinterpret_cast<sockaddr*>(&a), length);
        listen(fd_, 16);
        getsockname(fd_, reinterpret_cast<sockaddr*>(&a), &length);
        address = "127.0.0.1:" + std::to_string(ntohs(a.sin_port));
        thread_ = std::thread([this] {
            for (int client; (client = accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC)) >= 0;) {
                Socket s(client);
                try {
                    serve_(s);
                } catch (const std::exception&) {  // the driver hung up: what it should
                }
            }
        });
    }
    ~HostileServer() {
        shutdown(fd_, SHUT_RDWR);
        thread_.join();
        close(fd_);
    }
    std::string address;

private:
    std::function<void(Socket&)> serve_;
    int fd_;
    std::thread thread_;
};

}  // namespace

TEST_CASE("the registry knows its drivers and no others") {
    CHECK(switch_driver_names() == std::vector<std::string>{"polatis-scpi", "null"});
    Switch s = switch_at("127.0.0.1:1", 4, 0, 1);
    s.driver = "nonesuch";
    CHECK(make_switch_driver(s, [](const DriverEvent&) {}) == nullptr);
}

TEST_CASE("an applied change set is lit: bytes pass when the driver says so") {
    EmulatorProcess emulator({"--size", "32", "--dark-ms", "5"});
    Driven d(switch_at(emulator.scpi(), 32, 0, 5));
    CHECK(d.heard.up().identity.ingress == 32);
    CHECK(d.map(1).empty());
    NicPort a(emulator, 1, 100), b(emulator, 17, 200);
    for (OpId op = 10; op < 30; ++op) {
        d.driver->apply(op, {{}, {{1, 17}}}, kLong);
        const auto applied = d.heard.answer<Applied>(op);
        CHECK(applied.error == DriverError::none);
        CHECK(applied.acked_ns >= applied.sent_ns);
        CHECK(applied.settled_ns - applied.sent_ns >= 5'000'000 - 100'000);
        a.send(200, "lit", op);
        CHECK(b.receive().header.tag == op);
        d.driver->apply(op + 100, {{17}, {}}, kLong);
        CHECK(d.heard.answer<Applied>(op + 100).error == DriverError::none);
    }
    CHECK(emulator.counts()[2] == 0);
    CHECK(d.map(2).empty());
}

TEST_CASE("two change sets to other ports are under way at once") {
    EmulatorProcess emulator({"--size", "32", "--dark-ms", "300"});
    Driven d(switch_at(emulator.scpi(), 32, 0, 300));
    d.heard.up();
    d.driver->apply(1, {{}, {{1, 2}}}, kLong);
    d.driver->apply(2, {{}, {{3, 4}, {5, 6}}}, kLong);
    d.driver->read_map(3, kLong);
    CHECK(d.heard.answer<MapRead>(3).circuits.size() == 3);
    const auto first = d.heard.answer<Applied>(1), second = d.heard.answer<Applied>(2);
    CHECK(first.error == DriverError::none);
    CHECK(second.error == DriverError::none);
    CHECK(second.acked_ns < first.settled_ns);
}

TEST_CASE("a switch with sides takes circuits either way round") {
    EmulatorProcess emulator({"--size", "16x16", "--dark-ms", "1"});
    Driven d(switch_at(emulator.scpi(), 16, 16, 1));
    d.heard.up();
    d.driver->apply(1, {{}, {{17, 1}, {2, 18}}}, kLong);
    CHECK(d.heard.answer<Applied>(1).error == DriverError::none);
    CHECK(d.map(2) == Pairs{{1, 17}, {2, 18}});
    d.driver->apply(3, {{}, {{1, 2}}}, kLong);
    const auto refused = d.heard.answer<Applied>(3);
    CHECK(refused.error == DriverError::refused);
    CHECK(refused.text.starts_with("-221"));
}

TEST_CASE("a session that drops in mid-command answers once, and the next one reads the map back") {
    EmulatorProcess emulator({"--size", "32", "--dark-ms", "1"});
    Driven d(switch_at(emulator.scpi(), 32, 0, 1));
    d.heard.up();
    emulator.tell(":emulator:fault:drop 1");
    d.driver->apply(1, {{}, {{1, 2}}}, kLong);
    const auto applied = d.heard.answer<Applied>(1);
    CHECK(applied.error == DriverError::unreachable);
    CHECK(applied.text.find(emulator.scpi()) != std::string::npos);
    d.heard.down();
    d.heard.up(2);
    CHECK(d.map(2) == Pairs{{1, 2}});
    const std::lock_guard lock(d.heard.mutex);
    CHECK(d.heard.answers[1] == 1);
}

TEST_CASE("the driver comes back to a switch that was rebooted, killed, or not there yet") {
    std::string address;
    {
        // An address where nobody listens afterwards, on a loopback host of this process's own.
        const auto n = static_cast<unsigned>(getpid());
        EmulatorProcess taken({"--size", "8"}, "127." + std::to_string(1 + n / 65025 % 200) + "." +
                                                   std::to_string(1 + n / 255 % 254) + "." +
                                                   std::to_string(1 + n % 254) + ":0");
        address = taken.scpi();
    }
    Driven d(switch_at(address, 8, 0, 1));
    CHECK(d.heard.down().reason.find("cannot connect to " + address) != std::string::npos);
    d.driver->read_map(1, kLong);
    CHECK(d.heard.answer<MapRead>(1).error == DriverError::unreachable);
    auto emulator = std::make_unique<EmulatorProcess>(std::vector<std::string>{"--size", "8", "--dark-ms", "1"}, address);
    d.heard.up();
    d.driver->apply(2, {{}, {{1, 2}}}, kLong);
    CHECK(d.heard.answer<Applied>(2).error == DriverError::none);
    emulator->ask(":oxc:swit:size?");
    SUBCASE("rebooted, losing its circuits") {
        Socket(emulator->scpi()).send(":emulator:reboot lose,100\n");
        d.heard.up(2);
        CHECK(d.map(3).empty());
    }
    SUBCASE("killed and started anew") {
        emulator->end(SIGKILL);
        emulator = std::make_unique<EmulatorProcess>(std::vector<std::string>{"--size", "8", "--dark-ms", "1"}, address);
        d.heard.up(2);
        CHECK(d.map(3).empty());
    }
}

TEST_CASE("another client's change is seen when the map is read") {
    EmulatorProcess emulator({"--size", "8", "--dark-ms", "1"});
    Driven d(switch_at(emulator.scpi(), 8, 0, 1));
    d.heard.up();
    d.driver->apply(1, {{}, {{1, 2}}}, kLong);
    CHECK(d.heard.answer<Applied>(1).error == DriverError::none);
    emulator.tell(":oxc:swit:conn:add (@2),(@3)");
    CHECK(d.map(2) == Pairs{{2, 3}});
}

TEST_CASE("what the switch does wrong is told apart") {
    EmulatorProcess emulator({"--size", "8", "--dark-ms", "2"});
    Driven d(switch_at(emulator.scpi(), 8, 0, 2));
    d.heard.up();
    SUBCASE("refused") {
        emulator.tell(":emulator:fault:refuse 1");
        d.driver->apply(1, {{}, {{1, 2}}}, kLong);
        CHECK(d.heard.answer<Applied>(1).error == DriverError::refused);
    }
    SUBCASE("disabled port") {
        emulator.tell(":oxc:swit:port:dis (@2)");
        d.driver->apply(1, {{}, {{1, 2}}}, kLong);
        const auto applied = d.heard.answer<Applied>(1);
        CHECK(applied.error == DriverError::refused);
        CHECK(applied.text.find("port 2 is disabled") != std::string::npos);
    }
    SUBCASE("stuck port") {
        emulator.tell(":emulator:fault:stuck (@2)");
        d.driver->apply(1, {{}, {{1, 2}}}, kLong);
        const auto applied = d.heard.answer<Applied>(1);
        CHECK(applied.error == DriverError::no_light);
        CHECK(applied.text.starts_with("no light at port 1"));
        d.driver->read_power(2, {1, 2}, kLong);
        CHECK(d.heard.answer<PortPower>(2).dbm.size() == 2);
    }
    SUBCASE("wrong read-back") {
        emulator.tell(":emulator:fault:readback 1");
        d.driver->apply(1, {{}, {{1, 2}}}, kLong);
        const auto applied = d.heard.answer<Applied>(1);
        CHECK(applied.error == DriverError::garbage);
        CHECK(applied.text.find("1-2") != std::string::npos);
    }
    d.driver->read_map(9, kLong);  // the session has survived all of it
    CHECK(d.heard.answer<MapRead>(9).error == DriverError::none);
}

TEST_CASE("an op that takes too long is a timeout, and a cancelled one is cancelled") {
    EmulatorProcess emulator({"--size", "8", "--dark-ms", "600000"});
    Switch s = switch_at(emulator.scpi(), 8, 0, 600'000);
    Driven d(s);
    d.heard.up();
    d.driver->apply(1, {{}, {{1, 2}}}, 50'000'000);
    d.driver->apply(2, {{}, {{3, 4}}}, kLong);
    CHECK(d.heard.answer<Applied>(1).error == DriverError::timeout);
    d.driver->cancel(2);
    CHECK(d.heard.answer<Applied>(2).error == DriverError::cancelled);
    CHECK(d.map(3) == Pairs{{1, 2}, {3, 4}});
}

TEST_CASE("a switch of another size is named with both sizes, and never used") {
    EmulatorProcess emulator({"--size", "16x16"});
    Driven d(switch_at(emulator.scpi(), 32, 0, 1));
    const std::string reason = d.heard.down().reason;
    CHECK(reason.find("16x16") != std::string::npos);
    CHECK(reason.find("32") != std::string::npos);
    CHECK(reason.find("ocs-r0") != std::string::npos);
    d.driver->apply(1, {{}, {{1, 2}}}, kLong);
    CHECK(d.heard.answer<Applied>(1).error == DriverError::unreachable);
    CHECK(emulator.ask(":oxc:swit:conn:stat?") == "(@),(@)");
}

TEST_CASE("garbage from a hostile server is an error and a new attempt, never a crash") {
    std::mt19937 random(3);
    int round = 0;
    HostileServer server([&](Socket& s) {
        // Sometimes right for a while, then anything.
        static const char* const kHello[] = {"Polatis,x,1,2\r\n", "8,0\r\n", "(-60.0)\r\n", "0, \"No error\"\r\n"};
        const int good = round++ % 6;
        for (int i = 0; i < std::min(good, 4); ++i) s.send(kHello[i]);
        std::string bytes(200 + random() % 3000, '\0');
        for (char& c : bytes) c = random() % 4 ? static_cast<char>(random()) : "(@),:;\"\n-1E"[random() % 11];
        s.send(bytes + "\n");
        s.closed();
    });
    Driven d(switch_at(server.address, 8, 0, 1));
    const auto garbage = [](const SessionDown& e) {
        return e.reason.find("garbage from the switch") != std::string::npos;
    };
    d.heard.await<SessionDown>(garbage, 3);
    d.driver->read_map(1, kLong);
    CHECK(d.heard.answer<MapRead>(1).error != DriverError::none);
}

TEST_CASE("a server that floods without a line end is cut off") {
    HostileServer server([&](Socket& s) {
        while (true) s.send(std::string(65536, 'x'));
    });
    Driven d(switch_at(server.address, 8, 0, 1));
    CHECK(d.heard.down().reason.find("without an end") != std::string::npos);
}

TEST_CASE("destroying a driver ends it at any moment") {
    EmulatorProcess emulator({"--size", "8", "--dark-ms", "1000"});
    for (int i = 0; i < 20; ++i) {
        Heard heard;
        auto driver =
            make_switch_driver(switch_at(emulator.scpi(), 8, 0, 1000), [&](const DriverEvent& e) { heard.take(e); });
        if (i == 0) continue;  // never started
        driver->start();
        driver->apply(1, {{}, {{1, 2}}}, kLong);
        if (i % 2) heard.up();
        driver->apply(2, {{}, {{1, 3}}}, kLong);
    }
    CHECK(emulator.alive());
}

TEST_CASE("the null driver keeps a map and answers each op once") {
    Switch s = switch_at("", 4, 4, 5);
    s.driver = "null";
    Driven d(s);
    d.heard.up();
    d.driver->apply(1, {{}, {{1, 5}, {2, 6}}}, kLong);
    CHECK(d.heard.answer<Applied>(1).error == DriverError::none);
    CHECK(d.map(2) == Pairs{{1, 5}, {2, 6}});
    d.driver->apply(3, {{5}, {}}, kLong);
    CHECK(d.heard.answer<Applied>(3).error == DriverError::none);
    CHECK(d.map(4) == Pairs{{2, 6}});
    d.driver->apply(5, {{}, {{1, 2}}}, kLong);
    CHECK(d.heard.answer<Applied>(5).error == DriverError::refused);
    d.driver->apply(6, {{}, {{3, 7}}}, 1000);
    CHECK(d.heard.answer<Applied>(6).error == DriverError::timeout);
    d.driver->read_power(7, {2, 3}, kLong);
    CHECK(d.heard.answer<PortPower>(7).dbm.size() == 2);
    const std::lock_guard lock(d.heard.mutex);
    for (const auto& [op, count] : d.heard.answers) CHECK(count == 1);
}
