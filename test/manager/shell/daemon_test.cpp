// A real opus-manager; this process plays its ranks and its controller.
#include <doctest/doctest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <random>
#include <thread>

#include "opus/steering.h"
#include "test/manager/shell/controller_player.h"
#include "test/manager/shell/manager_process.h"
#include "test/manager/shell/shim_player.h"

using namespace opus;
using namespace opus::manager::test;

namespace {

constexpr CommId kCommA{1, 1};

ring::OpEntry coll(std::uint64_t n) { return {static_cast<std::uint8_t>(OpKind::all_reduce), 0, 0, 0, n, 1, 0, 4096}; }

bool can_run(const char* name) {
    if (!manager_program().empty()) return true;
    std::printf("SKIP %s: OPUS_MANAGER does not name an opus-manager\n", name);
    return false;
}
#define NEEDS_MANAGER(name) \
    if (!can_run(name)) return

template <class Condition>
bool comes_true(Condition condition) {
    for (int i = 0; i < 1'000; ++i) {
        if (condition()) return true;
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
}

// A controller, a manager and so many ranks of communicator A, all of one size, enforced.
struct Stage {
    explicit Stage(std::uint32_t ranks, std::uint32_t hold_ms = 30'000) {
        manager = std::make_unique<ManagerProcess>(directory.path(), controller.address());
        REQUIRE(manager->serves());
        REQUIRE(controller.hear<wire::Snapshot>());
        for (std::uint32_t r = 0; r < ranks; ++r) {
            shims.emplace_back();
            REQUIRE(shims.back().attach(directory.path(), "job-" + std::to_string(r % 2), hold_ms));
            shims.back().register_comm(0, kCommA, r, 2 * ranks);
        }
        enforce();
    }
    void enforce() {
        REQUIRE(controller.hear_members(shims.size()));
        controller.send(wire::Verdicts{{{kCommA, Verdict::enforced}}});
        for (ShimPlayer& shim : shims) REQUIRE(shim.wait_verdict(0, Verdict::enforced));
    }
    void grant(std::uint64_t id, std::vector<wire::LocalLaunch> firm) {
        controller.send(wire::Grant{id, std::move(firm), {}, {}});
    }
    void restart_manager() {
        manager = std::make_unique<ManagerProcess>(directory.path(), controller.address());
        REQUIRE(manager->serves());
    }

    ScratchDirectory directory;
    ControllerPlayer controller;
    std::unique_ptr<ManagerProcess> manager;
    std::vector<ShimPlayer> shims;
};

}  // namespace

TEST_CASE("a launch goes when its grant arrives, not before, behind a stream gate") {
    NEEDS_MANAGER("stream gate");
    Stage s(1);
    ShimPlayer& shim = s.shims[0];
    const std::uint64_t seq = shim.record({coll(0)}, ring::Gate::stream);
    s.controller.hear_for(std::chrono::milliseconds(50));
    CHECK(s.controller.said<wire::Demand>().empty());
    shim.ready(seq, false);  // a GPU rings no bell
    REQUIRE(s.controller.hear_demand_of(shim.rank(), seq));
    CHECK(shim.go(seq) == 0);
    s.grant(1, {{shim.rank(), seq}});
    CHECK(shim.wait_go(seq));
    CHECK(shim.go(seq) == seq + 1);
    shim.done(seq, false);
    CHECK(s.controller.hear_done_of(shim.rank(), seq));
    CHECK(comes_true([&] { return shim.view().header->retired.load() == seq + 1; }));
}

TEST_CASE("a thread that sleeps at a host gate is woken by its grant") {
    NEEDS_MANAGER("host gate");
    Stage s(1);
    ShimPlayer& shim = s.shims[0];
    for (std::uint64_t n = 0; n < 50; ++n) {
        const std::uint64_t seq = shim.record({coll(n)}, ring::Gate::host, ring::kLaunchHostDone);
        shim.ready(seq, true);
        REQUIRE(s.controller.hear_demand_of(shim.rank(), seq));
        std::thread grants([&] { s.grant(n + 1, {{shim.rank(), seq}}); });
        CHECK(shim.wait_go(seq));
        grants.join();
        shim.done(seq, true);
    }
    CHECK(s.controller.hear_done_of(shim.rank(), 49));
}

TEST_CASE("all ranks ready when the manager looks make one demand") {
    NEEDS_MANAGER("one demand");
    // It may be stopped in the middle of a look, and then sees some of them in the next; not each time.
    bool together = false;
    for (int round = 0; round < 10 && !together; ++round) {
        Stage s(8);
        for (ShimPlayer& shim : s.shims) shim.record({coll(0)}, ring::Gate::stream);
        s.manager->signal(SIGSTOP);
        for (ShimPlayer& shim : s.shims) shim.ready(0, false);
        s.manager->signal(SIGCONT);
        REQUIRE(s.controller.hear<wire::Demand>());
        s.controller.hear_for(std::chrono::milliseconds(50));
        const auto demands = s.controller.said<wire::Demand>();
        together = demands.size() == 1 && demands[0].launches.size() == 8;
    }
    CHECK(together);
}

TEST_CASE("a large group of operations crosses the ring whole, around its end too") {
    NEEDS_MANAGER("large group");
    Stage s(1);
    ShimPlayer& shim = s.shims[0];
    std::vector<ring::OpEntry> ops;
    for (std::uint64_t i = 0; i < 999; ++i)
        ops.push_back({static_cast<std::uint8_t>(OpKind::send), 0, 0, 1, 0, 1, 0, 1});
    for (std::uint64_t round = 0; round < 20; ++round) {  // 500 slots each, more than two turns of the ring
        for (std::uint64_t i = 0; i < ops.size(); ++i) ops[i].n = round * ops.size() + i;
        const std::uint64_t seq = shim.record(ops, ring::Gate::stream);
        shim.ready(seq, false);
        REQUIRE(s.controller.hear_demand_of(shim.rank(), seq));
        const auto demand = s.controller.said<wire::Demand>().back().launches.at(0);
        REQUIRE(demand.keys.size() == 1);
        CHECK(demand.keys[0].first.n == round * ops.size());
        CHECK(demand.keys[0].count == ops.size());
        s.grant(round + 1, {{shim.rank(), seq}});
        REQUIRE(shim.wait_go(seq));
        shim.done(seq, false);
        REQUIRE(comes_true([&] { return shim.view().header->retired.load() == seq + 500; }));
    }
}

TEST_CASE("kill -9 of the manager: the next one finds living ranks and goes on with their launches") {
    NEEDS_MANAGER("manager killed");
    Stage s(2);
    ShimPlayer &a = s.shims[0], &b = s.shims[1];
    const std::uint64_t flying = a.record({coll(0)}, ring::Gate::stream);
    a.ready(flying, false);
    REQUIRE(s.controller.hear_demand_of(a.rank(), flying));
    s.grant(1, {{a.rank(), flying}});
    REQUIRE(a.wait_go(flying));
    const std::uint64_t waiting = b.record({coll(0)}, ring::Gate::stream);
    b.ready(waiting, false);
    REQUIRE(s.controller.hear_demand_of(b.rank(), waiting));

    s.manager->signal(SIGKILL);
    CHECK(s.manager->wait() == 128 + SIGKILL);
    const std::uint64_t beat = a.view().header->heartbeat.load();
    const std::uint64_t later = a.record({coll(1)}, ring::Gate::stream);  // while nobody is there
    s.controller.frames.clear();
    s.restart_manager();
    REQUIRE(s.controller.hear<wire::Snapshot>());
    const auto snapshot = s.controller.said<wire::Snapshot>().back();
    CHECK(snapshot.ranks.size() == 2);
    CHECK(snapshot.comms.size() == 2);
    REQUIRE(snapshot.launches.size() == 2);
    for (const auto& l : snapshot.launches) {
        const bool is_flying = l.demand.launch == wire::LocalLaunch{a.rank(), flying};
        CHECK(l.state == (is_flying ? wire::LaunchState::in_flight : wire::LaunchState::ready));
    }
    CHECK(comes_true([&] { return a.view().header->heartbeat.load() > beat; }));
    s.grant(2, {{b.rank(), waiting}});
    CHECK(b.wait_go(waiting));
    a.done(flying, false);
    CHECK(s.controller.hear_done_of(a.rank(), flying));
    a.ready(later, false);
    CHECK(s.controller.hear_demand_of(a.rank(), later));

    ShimPlayer fresh;  // new ranks get numbers that nobody has
    REQUIRE(fresh.attach(s.directory.path(), "another"));
    CHECK(fresh.rank() > b.rank());
}

TEST_CASE("kill -9 of a rank: it is retired and its segment removed; the others go on") {
    NEEDS_MANAGER("rank killed");
    Stage s(1);
    int told[2];
    REQUIRE(::pipe(told) == 0);
    const pid_t child = ::fork();
    if (child == 0) {
        ShimPlayer shim;
        const bool attached = shim.attach(s.directory.path(), "doomed");
        if (attached) shim.register_comm(0, {9, 9}, 1, 2);
        const RankId rank = attached ? shim.rank() : kNone;
        if (::write(told[1], &rank, sizeof rank) != sizeof rank) ::_exit(1);
        ::pause();
        ::_exit(0);
    }
    RankId rank = kNone;
    REQUIRE(::read(told[0], &rank, sizeof rank) == sizeof rank);
    REQUIRE(rank != kNone);
    const std::string segment = s.directory.path() + "/rank-" + std::to_string(rank) + ".seg";
    CHECK(::access(segment.c_str(), F_OK) == 0);
    ::kill(child, SIGKILL);
    REQUIRE(s.controller.hear<wire::Retire>());
    CHECK(s.controller.said<wire::Retire>()[0].ranks == std::vector<RankId>{rank});
    CHECK(comes_true([&] { return ::access(segment.c_str(), F_OK) != 0; }));
    ::waitpid(child, nullptr, 0);
    ::close(told[0]);
    ::close(told[1]);

    ShimPlayer& shim = s.shims[0];
    const std::uint64_t seq = shim.record({coll(0)}, ring::Gate::stream);
    shim.ready(seq, false);
    CHECK(s.controller.hear_demand_of(shim.rank(), seq));
}

TEST_CASE("a rank that died while no manager was there is cleared away") {
    NEEDS_MANAGER("rank died unseen");
    Stage s(1);
    const pid_t child = ::fork();
    if (child == 0) {
        ShimPlayer shim;
        ::_exit(shim.attach(s.directory.path(), "doomed") ? (::raise(SIGSTOP), 0) : 1);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, WUNTRACED) == child);
    REQUIRE(WIFSTOPPED(status));
    s.manager->signal(SIGKILL);
    s.manager->wait();
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    const auto segments = [&s] {
        std::size_t count = 0;
        for (const std::string& name : s.directory.list()) count += name.ends_with(".seg");
        return count;
    };
    CHECK(segments() == 2);
    s.controller.frames.clear();
    s.restart_manager();
    REQUIRE(s.controller.hear<wire::Snapshot>());
    CHECK(s.controller.said<wire::Snapshot>().back().ranks.size() == 1);
    CHECK(segments() == 1);
}

TEST_CASE("files that only look like segments are removed and do no harm") {
    NEEDS_MANAGER("broken segments");
    ScratchDirectory directory;
    std::mt19937_64 random(1);
    for (const std::size_t size : {std::size_t(0), std::size_t(100), ring::Layout{4096}.bytes(), ring::Layout{64}.bytes()}) {
        std::ofstream file(directory.path() + "/rank-" + std::to_string(size) + ".seg", std::ios::binary);
        for (std::size_t i = 0; i < size; i += 8) {
            const std::uint64_t word = random();
            file.write(reinterpret_cast<const char*>(&word),
                       static_cast<std::streamsize>(std::min<std::size_t>(8, size - i)));
        }
    }
    std::ofstream(directory.path() + "/rank-x.seg") << "not a number";
    std::ofstream(directory.path() + "/steering") << "not a table";
    ManagerProcess manager(directory.path(), "tcp://127.0.0.1:1");
    REQUIRE(manager.serves());
    const auto names = directory.list();
    CHECK(names == std::vector<std::string>{"doorbell", "lock", "manager.sock", "rank-x.seg", "steering"});
}

TEST_CASE("a second manager in the same directory is refused and says why") {
    NEEDS_MANAGER("two managers");
    Stage s(1);
    ManagerProcess second(s.directory.path(), s.controller.address());
    CHECK(!second.serves());
    CHECK(second.wait() == 1);
    CHECK(second.errors().find("another opus-manager serves " + s.directory.path()) != std::string::npos);
    ShimPlayer shim;  // and has not taken the socket away
    CHECK(shim.attach(s.directory.path(), "job"));
}

TEST_CASE("SIGTERM ends it cleanly: living ranks keep their segments, an empty directory is left to nobody") {
    NEEDS_MANAGER("clean stop");
    Stage s(1);
    s.manager->signal(SIGTERM);
    CHECK(s.manager->wait() == 0);
    CHECK(::access((s.directory.path() + "/rank-0.seg").c_str(), F_OK) == 0);
    CHECK(s.shims[0].view().header->open.load() == 0);
    s.shims.clear();
    s.controller.frames.clear();
    s.restart_manager();
    REQUIRE(s.controller.hear<wire::Snapshot>());
    CHECK(s.controller.said<wire::Snapshot>().back().ranks.empty());
    s.manager->signal(SIGINT);
    CHECK(s.manager->wait() == 0);
    CHECK(s.directory.list().empty());
}

TEST_CASE("a controller that comes back is told everything, in a new session") {
    NEEDS_MANAGER("controller restart");
    ScratchDirectory directory;
    auto controller = std::make_unique<ControllerPlayer>(1);
    const std::string address = controller->address();
    ManagerProcess manager(directory.path(), address);
    REQUIRE(manager.serves());
    REQUIRE(controller->hear<wire::Snapshot>());
    ShimPlayer shim;
    REQUIRE(shim.attach(directory.path(), "job"));
    shim.register_comm(0, kCommA, 0, 2);
    REQUIRE(controller->hear_members(1));
    controller->send(wire::Verdicts{{{kCommA, Verdict::enforced}}});
    REQUIRE(shim.wait_verdict(0, Verdict::enforced));
    const std::uint64_t session = controller->session();
    controller.reset();
    const std::uint64_t seq = shim.record({coll(0)}, ring::Gate::stream);
    shim.ready(seq, false);

    ControllerPlayer next(2, address);
    REQUIRE(next.hear<wire::Snapshot>());
    CHECK(next.session() != session);
    const auto snapshots = next.said<wire::Snapshot>();
    REQUIRE(snapshots.back().launches.size() == 1);
    CHECK(snapshots.back().launches[0].state == wire::LaunchState::ready);
    next.send(wire::Grant{1, {{shim.rank(), seq}}, {}, {}});
    CHECK(shim.wait_go(seq));
}

TEST_CASE("without a controller a launch is held no longer than its hold time") {
    NEEDS_MANAGER("hold");
    ScratchDirectory directory;
    auto controller = std::make_unique<ControllerPlayer>(1);
    ManagerProcess manager(directory.path(), controller->address());
    REQUIRE(manager.serves());
    REQUIRE(controller->hear<wire::Snapshot>());
    ShimPlayer shim;
    REQUIRE(shim.attach(directory.path(), "job", 300));
    shim.register_comm(0, kCommA, 0, 2);
    REQUIRE(controller->hear_members(1));
    controller->send(wire::Verdicts{{{kCommA, Verdict::enforced}}});
    REQUIRE(shim.wait_verdict(0, Verdict::enforced));
    controller.reset();
    const std::uint64_t seq = shim.record({coll(0)}, ring::Gate::stream);
    shim.ready(seq, false);
    CHECK(shim.wait_go(seq));
    CHECK(shim.go(seq) == seq + 1);
    CHECK(shim.wait_verdict(0, Verdict::degraded));
}

TEST_CASE("jobs of a node are told apart") {
    NEEDS_MANAGER("jobs");
    Stage s(4);
    std::vector<std::string> jobs;
    for (const auto& r : s.controller.said<wire::Register>())
        for (const auto& rank : r.ranks)
            if (rank.gpu == kNone) jobs.push_back(rank.job);
    std::sort(jobs.begin(), jobs.end());
    jobs.erase(std::unique(jobs.begin(), jobs.end()), jobs.end());
    CHECK(jobs == std::vector<std::string>{"job-0", "job-1"});
}

TEST_CASE("a shim of another protocol is told which one is spoken, and nonsense is refused") {
    NEEDS_MANAGER("attach refusals");
    Stage s(0);
    attach::AttachRequest request{};
    request.magic = attach::kMagic;
    request.major = 9;
    {
        ShimPlayer shim;
        CHECK(!shim.attach(s.directory.path(), request, sizeof request));
        CHECK(shim.status() == attach::AttachStatus::version);
    }
    request.major = attach::kVersionMajor;
    request.mode = 77;
    {
        ShimPlayer shim;
        CHECK(!shim.attach(s.directory.path(), request, sizeof request));
        CHECK(shim.status() == attach::AttachStatus::refused);
    }
    {
        ShimPlayer shim;
        CHECK(!shim.attach(s.directory.path(), request, 3));
        CHECK(shim.status() == attach::AttachStatus::refused);
    }
    CHECK(s.directory.list() == std::vector<std::string>{"doorbell", "lock", "manager.sock", "steering"});
}

TEST_CASE("the steering of a grant stands in the table before its launch goes") {
    NEEDS_MANAGER("steering");
    Stage s(1);
    ShimPlayer& shim = s.shims[0];
    const std::uint64_t seq = shim.record({coll(0)}, ring::Gate::stream);
    shim.ready(seq, false);
    REQUIRE(s.controller.hear_demand_of(shim.rank(), seq));
    s.controller.send(wire::Grant{1, {{shim.rank(), seq}}, {}, {{2, 1, 3, 2, 0}, {63, 0, 1, 0, 0}}});
    REQUIRE(shim.wait_go(seq));
    std::ifstream file(s.directory.path() + "/steering", std::ios::binary);
    auto table = std::make_unique<steering::Table>();
    REQUIRE(file.read(reinterpret_cast<char*>(table.get()), sizeof *table));
    CHECK(table->magic == steering::kMagic);
    CHECK(table->node == 0);
    const steering::Entry& entry = table->port[2][1];
    CHECK(entry.epoch.load() == 2);
    CHECK(entry.state.load() == static_cast<std::uint32_t>(steering::PortState::lit));
    CHECK(entry.peer_node.load() == 3);
    CHECK(entry.peer_gpu.load() == 2);
    CHECK(entry.peer_port.load() == 0);
    CHECK(table->port[0][0].epoch.load() == 0);
}

TEST_CASE("a retired communicator's entry is given back and serves again") {
    NEEDS_MANAGER("entry reuse");
    Stage s(1);
    ShimPlayer& shim = s.shims[0];
    for (std::uint32_t life = 1; life <= 5; ++life) {
        ring::CommEntry& entry = shim.view().comms[0];
        const std::uint64_t seq = shim.record({coll(0)}, ring::Gate::stream);
        shim.ready(seq, false);
        REQUIRE(s.controller.hear_demand_of(shim.rank(), seq));
        shim.retire_comm(0);
        s.grant(life, {{shim.rank(), seq}});
        REQUIRE(shim.wait_go(seq));
        CHECK(entry.freed.load() != life);
        shim.done(seq, false);
        REQUIRE(comes_true([&] { return entry.freed.load() == life; }));
        CHECK(entry.verdict.load() == static_cast<std::uint32_t>(Verdict::unknown));
        shim.register_comm(0, {1, life + 1}, 0, 2);
        REQUIRE(s.controller.hear_until([&] {
            for (const auto& r : s.controller.said<wire::Register>())
                for (const auto& m : r.comms)
                    if (m.comm == CommId{1, life + 1}) return true;
            return false;
        }));
        s.controller.send(wire::Verdicts{{{{1, life + 1}, Verdict::enforced}}});
        REQUIRE(shim.wait_verdict(0, Verdict::enforced));
    }
}

TEST_CASE("an idle manager sleeps") {
    NEEDS_MANAGER("idle");
    Stage s(2);
    s.controller.beat(true);
    s.controller.hear_for(std::chrono::milliseconds(1'500));
    const std::uint64_t before = s.manager->voluntary_switches();
    REQUIRE(before > 0);
    s.controller.hear_for(std::chrono::milliseconds(3'000));
    const std::uint64_t wakes = s.manager->voluntary_switches() - before;
    MESSAGE("idle wakes in 3 s: " << wakes);
    CHECK(wakes <= 4);
    CHECK(s.controller.said<wire::Heartbeat>().size() >= 3);
}

TEST_CASE("hostile ring contents never end the manager, and other ranks are served on") {
    NEEDS_MANAGER("hostile ring");
    Stage s(1);
    ShimPlayer& honest = s.shims[0];
    std::mt19937_64 random(42);
    std::uint64_t n = 0;
    for (int round = 0; round < 30; ++round) {
        ShimPlayer hostile;
        REQUIRE(hostile.attach(s.directory.path(), "hostile"));
        const ring::Layout at{hostile.view().mask + 1};
        auto* bytes = static_cast<std::byte*>(hostile.base());
        const auto scribble = [&](std::size_t from, std::size_t to) {
            for (std::size_t i = from; i + 8 <= to; i += 8) {
                const std::uint64_t word = random();
                std::memcpy(bytes + i, &word, 8);
            }
        };
        if (round % 3 != 0) hostile.register_comm(0, {7, random() | 1}, 0, 2);
        if (round % 3 == 1) {  // well-formed but for one thing
            hostile.record({coll(0)}, ring::Gate::stream);
            auto& record = hostile.view().record(0);
            const auto at_word = 8 + 8 * (random() % 7);
            const std::uint64_t word = random() >> (random() % 64);
            std::memcpy(reinterpret_cast<std::byte*>(&record) + at_word, &word, 8);
        } else {
            scribble(at.comms_offset() + (round % 3 == 2 ? sizeof(ring::CommEntry) : 0), at.go_offset());
        }
        hostile.view().header->head.store(round % 2 == 0 ? random() : 1 + random() % 4096);
        hostile.view().header->gave_up.store(random());
        scribble(256, 384);
        hostile.doorbell();

        const std::uint64_t seq = honest.record({coll(n++)}, ring::Gate::stream);
        honest.ready(seq, false);
        REQUIRE(s.controller.hear_demand_of(honest.rank(), seq));
        s.grant(n, {{honest.rank(), seq}});
        REQUIRE(honest.wait_go(seq));
        honest.done(seq, false);
        s.controller.frames.clear();
    }
    CHECK(s.manager->alive());
}
