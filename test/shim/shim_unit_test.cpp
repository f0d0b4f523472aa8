// The shim's parts that need no NCCL, from the same sources, in this (perhaps instrumented) program.
#include <doctest/doctest.h>

#include <atomic>
#include <cstdlib>
#include <ctime>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "shim/attach.h"
#include "shim/communicator.h"
#include "shim/identity.h"
#include "shim/process.h"
#include "shim/ring_writer.h"
#include "test/shim/segment.h"

using namespace opus;
using namespace opus::shim;

namespace {

std::atomic<int> pauses{0};

constexpr LaunchHead kOne{ring::Gate::none, 1, 0};
constexpr ring::OpEntry op{1, 0, 0, 0, 0, 1, 0, 0};

ncclComm_t pointer(std::uintptr_t n) { return reinterpret_cast<ncclComm_t>(n); }

}  // namespace

// What waits in this program is counted.
extern "C" int nanosleep(const timespec* time, timespec* left) {
    ++pauses;
    return clock_nanosleep(CLOCK_REALTIME, 0, time, left);
}

TEST_CASE("a shrink's identity does not depend on the order of its list, a split's on every argument") {
    const CommId parent{1, 2};
    const int a[] = {5, 1, 3}, b[] = {3, 5, 1}, c[] = {3, 5, 2};
    CHECK(id_of_shrink(parent, a, 3, 0) == id_of_shrink(parent, b, 3, 0));
    CHECK(id_of_shrink(parent, a, 3, 0) != id_of_shrink(parent, c, 3, 0));
    CHECK(id_of_shrink(parent, a, 3, 0) != id_of_shrink(parent, a, 3, 1));
    CHECK(id_of_shrink(parent, a, 2, 0) != id_of_shrink(parent, a, 3, 0));
    std::set<CommId> ids;
    for (std::uint64_t nth = 0; nth < 20; ++nth)
        for (int color = 0; color < 20; ++color) {
            ids.insert(id_of_split(parent, nth, color));
            ids.insert(id_of_split({2, 1}, nth, color));
        }
    CHECK(ids.size() == 800);
}

TEST_CASE("the identity of a unique id is the same in every build") {
    char id[128] = "opus";
    CHECK(id_of_unique(id, sizeof id, 0) == id_of_unique(id, sizeof id, 0));
    CHECK(id_of_unique(id, sizeof id, 0) != id_of_unique(id, sizeof id, 1));
    const CommId first = id_of_unique(id, sizeof id, 0);
    id[127] = 1;
    CHECK(id_of_unique(id, sizeof id, 0) != first);
}

TEST_CASE("occurrences count each thing for itself") {
    static Occurrences occurrences;  // never frees: it lives as long as its process
    for (std::uint64_t round = 0; round < 3; ++round)
        for (std::uint64_t thing = 0; thing < 200; ++thing) CHECK(occurrences.next({thing, 7}) == round);
}

TEST_CASE("the communicator table finds what it has, through churn, and refuses when full") {
    static CommunicatorTable table;
    std::vector<Communicator> values(CommunicatorTable::kMost + 1);
    for (std::uint32_t i = 0; i < CommunicatorTable::kMost; ++i)
        REQUIRE(table.insert(pointer(4096 + 64 * i), &values[i]));
    CHECK_FALSE(table.insert(pointer(8), &values.back()));
    for (std::uint32_t i = 0; i < CommunicatorTable::kMost; i += 2)
        CHECK(table.remove(pointer(4096 + 64 * i)) == &values[i]);
    for (std::uint32_t i = 0; i < CommunicatorTable::kMost; ++i)
        CHECK(table.find(pointer(4096 + 64 * i)) == (i % 2 == 0 ? nullptr : &values[i]));
    int glanced = 0;
    for (std::uint32_t i = 1; i < CommunicatorTable::kMost; i += 2)
        glanced += table.glance(pointer(4096 + 64 * i)) == &values[i];
    CHECK(glanced > 100);
    CHECK(table.glance(pointer(4096)) == nullptr);
    for (std::uint32_t i = 1; i < CommunicatorTable::kMost; i += 2) table.remove(pointer(4096 + 64 * i));
    std::uint64_t state = 1;
    for (int i = 0; i < 200'000; ++i) {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        const ncclComm_t comm = pointer((state >> 20) * 16 + 16);
        REQUIRE(table.insert(comm, &values[0]));
        CHECK(table.find(comm) == &values[0]);
        CHECK(table.remove(comm) == &values[0]);
    }
    CHECK(table.find(nullptr) == nullptr);
    CHECK(table.remove(pointer(64)) == nullptr);
}

TEST_CASE("launches of several threads do not overwrite each other, and each is committed whole") {
    Segment segment(4096);
    std::vector<std::thread> threads;
    for (std::uint32_t t = 0; t < 4; ++t)
        threads.emplace_back([t, &segment] {
            for (std::uint64_t i = 0; i < 500; ++i) {
                if (i % 3 != 0) {
                    push(segment.view, kOne, t, ring::OpEntry{1, 0, 0, t, i, 1, 0, i});
                } else {
                    const ring::OpEntry ops[3] = {
                        {1, 0, 0, t, i, 1, 0, i}, {2, 0, 0, t, i, 1, 0, i}, {3, 0, 0, t, i, 1, 0, i}};
                    push(segment.view, LaunchHead{ring::Gate::host, 3, 0}, t, ops);
                }
            }
        });
    for (std::thread& t : threads) t.join();
    std::uint64_t next[4] = {};
    const std::uint64_t head = segment.view.header->head;
    for (std::uint64_t seq = 0; seq < head;) {
        const ring::LaunchRecord& record = segment.view.record(seq);
        REQUIRE(record.commit == (ring::kCommitTag | (seq + 1)));
        REQUIRE(record.stream < 4);
        CHECK(record.op.peer == record.stream);
        CHECK(record.op.n == next[record.stream]++);
        if (record.op_count == 3) {
            CHECK(segment.view.extension(seq + 1).op[0].kind == 2);
            CHECK(segment.view.extension(seq + 1).op[1].kind == 3);
            CHECK(segment.view.extension(seq + 1).op[1].n == record.op.n);
        }
        seq += ring::slots_for(record.op_count);
    }
    for (const std::uint64_t n : next) CHECK(n == 500);
}

TEST_CASE("a full ring refuses after a bounded wait, and takes launches again when slots are retired") {
    Segment segment(64);
    for (std::uint64_t i = 0; i < 64; ++i) CHECK(push(segment.view, kOne, 0, op) == i);
    pauses = 0;
    CHECK(push(segment.view, kOne, 0, op) == kFull);
    CHECK(pauses > 0);
    segment.view.header->retired = 10;
    CHECK(push(segment.view, kOne, 0, op) == 64);
    const ring::OpEntry three[3] = {op, op, op};
    CHECK(push(segment.view, LaunchHead{ring::Gate::none, 3, 0}, 0, three) == 65);
    CHECK(segment.view.header->head == 67);
    CHECK_FALSE(recordable(segment.view, 64));
    CHECK(recordable(segment.view, 62));
}

TEST_CASE("a full ring is waited for once, until its manager gives a sign of life") {
    Segment segment(64);
    for (std::uint64_t i = 0; i < 64; ++i) push(segment.view, kOne, 0, op);
    CHECK(push(segment.view, kOne, 0, op) == kFull);
    pauses = 0;
    for (int i = 0; i < 100; ++i) CHECK(push(segment.view, kOne, 0, op) == kFull);
    CHECK(pauses == 0);
    segment.view.header->heartbeat = 2;
    CHECK(push(segment.view, kOne, 0, op) == kFull);
    CHECK(pauses > 0);
    segment.view.header->retired = 1;  // room is found without a sign
    CHECK(push(segment.view, kOne, 0, op) == 64);

    segment.view.header->heartbeat = 3;
    segment.view.header->dead_beat = 3;  // a gate has given up waiting for it
    pauses = 0;
    CHECK(push(segment.view, kOne, 0, op) == kFull);
    CHECK(pauses == 0);
}

TEST_CASE("room for several launches is waited for before the first of them is recorded, and takes no slot") {
    Segment segment(64);
    for (std::uint64_t i = 0; i < 63; ++i) push(segment.view, kOne, 0, op);
    pauses = 0;
    await_room(segment.view, 1);
    CHECK(pauses == 0);
    await_room(segment.view, 2);
    CHECK(pauses > 0);
    segment.view.header->heartbeat = 2;
    segment.view.header->retired = 1;
    pauses = 0;
    await_room(segment.view, 2);
    CHECK(pauses == 0);
    for (const std::uint64_t seq : {63, 64}) CHECK(push(segment.view, kOne, 0, op) == seq);
    CHECK(push(segment.view, kOne, 0, op) == kFull);

    segment.view.header->heartbeat = 3;
    segment.view.header->retired = 33;
    pauses = 0;
    await_room(segment.view, 1000);  // as much as a launch may take
    CHECK(pauses == 0);
}

TEST_CASE("where nothing is held nothing waits for a full ring") {
    Segment segment(64);
    process.mode = Mode::observe;
    for (std::uint64_t i = 0; i < 64; ++i) push(segment.view, kOne, 0, op);
    pauses = 0;
    for (std::uint64_t beat = 2; beat < 10; ++beat) {
        segment.view.header->heartbeat = beat;
        CHECK(push(segment.view, kOne, 0, op) == kFull);
    }
    CHECK(pauses == 0);
    process.mode = Mode::off;
}

TEST_CASE("occupied slots are passed over, and what they would have held is said to be skipped") {
    Segment segment(64);
    for (std::uint64_t i = 0; i < 64; ++i) push(segment.view, kOne, 0, op);
    segment.occupy(0);
    segment.occupy(5);
    segment.view.header->reusable = 8;
    for (const std::uint64_t seq : {65, 66, 67, 68, 70, 71}) CHECK(push(segment.view, kOne, 0, op) == seq);
    CHECK(push(segment.view, kOne, 0, op) == kFull);
    CHECK(segment.view.ready[0].skipped == 65);
    CHECK(segment.view.ready[5].skipped == 70);
    for (const std::uint64_t slot : {1, 4, 6}) CHECK(segment.view.ready[slot].skipped == 0);
    CHECK(segment.view.record(64).commit == (ring::kCommitTag | 1));  // the launch is still there

    // Several in a row, and the first of all that is free again.
    segment.view.header->reusable = 64;
    segment.occupy(11);
    segment.view.go[0].occupied = 0;
    const ring::OpEntry seven[7] = {op, op, op, op, op, op, op};
    CHECK(push(segment.view, LaunchHead{ring::Gate::none, 7, 0}, 0, seven) == 76);
    for (std::uint64_t seq = 72; seq < 76; ++seq) CHECK(segment.view.ready[seq & 63].skipped == seq + 1);
    for (std::uint64_t seq = 80; seq < 128; ++seq) CHECK(push(segment.view, kOne, 0, op) == seq);
    segment.view.header->reusable = 128;
    CHECK(push(segment.view, kOne, 0, op) == 128);
}

TEST_CASE("nothing is skipped where no slot is free") {
    Segment segment(64);
    for (std::uint64_t i = 0; i < 64; ++i) push(segment.view, kOne, 0, op);
    for (std::uint32_t slot = 0; slot < 64; ++slot) segment.occupy(slot);
    segment.view.header->reusable = 64;
    CHECK(push(segment.view, kOne, 0, op) == kFull);
    CHECK(segment.view.header->head == 64);
    segment.view.go[7].occupied = 0;
    CHECK(push(segment.view, kOne, 0, op) == 71);
}

TEST_CASE("several threads beside occupied slots take each free one once") {
    constexpr std::uint64_t kEach = 20'000;
    Segment segment(64);
    process.settings.OPUS_RING_WAIT_MS = 60'000;
    std::atomic<std::uint64_t> taken{0};
    std::vector<std::thread> threads;
    for (std::uint32_t t = 0; t < 3; ++t)
        threads.emplace_back([&, t] {
            for (std::uint64_t i = 0; i < kEach; ++i) taken += push(segment.view, kOne, t, op) != kFull;
        });
    // As a manager: each launch ends when it is read, but every seventh of the first round, which never does.
    std::set<std::uint64_t> occupied;
    std::uint64_t read = 0, launches = 0;
    bool wrong = false;
    while (launches < 3 * kEach && !wrong) {
        segment.view.header->heartbeat.fetch_add(1);
        const std::uint64_t slot = read & 63;
        if (segment.view.record(read).commit.load() == (ring::kCommitTag | (read + 1))) {
            wrong = occupied.contains(slot);
            ++launches;
            if (read < 64 && read % 7 == 0) {
                occupied.insert(slot);
                segment.occupy(std::uint32_t(slot));
            }
        } else if (segment.view.ready[slot].skipped.load() == read + 1) {
            wrong = !occupied.contains(slot);
        } else {
            std::this_thread::yield();
            continue;
        }
        segment.view.header->reusable.store(++read);
    }
    CHECK_FALSE(wrong);
    segment.view.header->open = 1;  // whoever still waits gives up
    for (std::thread& t : threads) t.join();
    CHECK(taken == 3 * kEach);
    CHECK(occupied.size() == 10);
}

TEST_CASE("numbers are whole, and fit") {
    std::uint64_t n = 5;
    CHECK(parse_number("18446744073709551", n));
    CHECK(n == 18446744073709551ull);
    for (const char* bad : {"", "-1", "1.5", "0x10", "12a", "99999999999999999999"}) CHECK_FALSE(parse_number(bad, n));
}

TEST_CASE("the manager's socket is looked for where the settings say") {
    Settings settings;
    char path[100];
    setenv("XDG_RUNTIME_DIR", "/user", 1);
    CHECK((socket_path(settings, 0, path, sizeof path) && std::string(path) == "/user/opus/manager.sock"));
    CHECK((socket_path(settings, 1, path, sizeof path) && std::string(path) == "/run/opus/manager.sock"));
    CHECK_FALSE(socket_path(settings, 2, path, sizeof path));
    unsetenv("XDG_RUNTIME_DIR");
    CHECK((socket_path(settings, 0, path, sizeof path) && std::string(path) == "/run/opus/manager.sock"));
    CHECK_FALSE(socket_path(settings, 1, path, sizeof path));
    settings.OPUS_RUNTIME_DIR = "/there";
    CHECK((socket_path(settings, 0, path, sizeof path) && std::string(path) == "/there/manager.sock"));
    settings.OPUS_SOCKET = "/here";
    CHECK((socket_path(settings, 0, path, sizeof path) && std::string(path) == "/here"));
    CHECK_FALSE(socket_path(settings, 1, path, sizeof path));
}
