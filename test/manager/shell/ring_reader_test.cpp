// The ring's reader, over memory of its own.
#include "manager/shell/ring_reader.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>

#include "manager/shell/go_words.h"
#include "test/manager/shell/hostile_ring.h"

using namespace opus;
using namespace opus::manager;
using namespace opus::manager::test;

namespace {

// A ring and its reader; what a look reported, by kind.
struct Bench {
    explicit Bench(bool recovered = false) : memory(ring::Layout{64}.bytes() / 64) {
        view = ring::view_of(memory.data(), 64);
        view.header->gpu = kNone;
        if (!recovered) reader = std::make_unique<RingReader>(view, 0, false);
    }
    void comm(std::uint32_t index, std::uint32_t size = 4) {
        ring::CommEntry& entry = view.comms[index];
        entry.id = {1, index + 1};
        entry.size = size;
        entry.mode = static_cast<std::uint32_t>(Mode::enforce);
        ++entry.generation;
        entry.state = static_cast<std::uint32_t>(ring::CommState::registered);
    }
    std::uint64_t record(ring::Gate gate = ring::Gate::stream, std::uint64_t stream = 1, std::uint16_t flags = 0,
                         bool commit = true) {
        const std::uint64_t seq = view.header->head.fetch_add(1);
        ring::LaunchRecord& r = view.record(seq);
        r.gate = static_cast<std::uint16_t>(gate);
        r.op_count = 1;
        r.flags = flags;
        r.stream = stream;
        r.op = {static_cast<std::uint8_t>(OpKind::all_reduce), 0, 0, 0, seq, 1, 0, 8};
        if (commit) r.commit = ring::kCommitTag | (seq + 1);
        return seq;
    }
    // Of the launches that the last look told of: had they gone before?
    std::vector<bool> gone() const {
        std::vector<bool> found;
        for (const Event& event : events)
            if (const auto* record = std::get_if<Recorded>(&event)) found.push_back(record->go);
        return found;
    }
    void ready(std::uint64_t seq) { view.ready[seq & 63].value = seq + 1; }
    void go(std::uint64_t seq) { view.go[seq & 63].value = seq + 1; }
    void done(std::uint64_t seq) { view.done[seq & 63].value = seq + 1; }
    template <class E>
    std::vector<std::uint64_t> look() {
        events.clear();
        reader->look(events, true);
        std::vector<std::uint64_t> found;
        for (const Event& event : events)
            if (const auto* e = std::get_if<E>(&event)) {
                if constexpr (requires { e->seq; })
                    found.push_back(e->seq);
                else
                    found.push_back(e->index);
            }
        return found;
    }
    using Seqs = std::vector<std::uint64_t>;

    struct alignas(64) Line {
        std::uint64_t word[8] = {};
    };
    std::vector<Line> memory;
    ring::View view;
    std::unique_ptr<RingReader> reader;
    std::vector<Event> events;
};

bool needs_poll(RingReader& reader) {
    PollHint hint;
    reader.await(hint, 1, [](std::uint64_t) { return true; });
    return hint.any;
}

}  // namespace

TEST_CASE("records are read in order, and not past one that is not committed") {
    Bench b;
    b.comm(0);
    b.record();
    const std::uint64_t open = b.record(ring::Gate::stream, 1, 0, false);
    b.record();
    CHECK(b.look<Recorded>() == Bench::Seqs{0});
    b.view.record(open).commit = ring::kCommitTag | (open + 1);
    CHECK(b.look<Recorded>() == Bench::Seqs{1, 2});
    CHECK(b.look<Recorded>().empty());
}

TEST_CASE("launches of one stream become ready in order; those behind host gates in any") {
    Bench b;
    b.comm(0);
    for (int i = 0; i < 3; ++i) b.record(ring::Gate::stream, 1);
    for (int i = 0; i < 3; ++i) b.record(ring::Gate::host, 1);
    b.ready(1);
    b.ready(5);
    CHECK(b.look<Ready>() == Bench::Seqs{5});
    b.ready(0);
    CHECK(b.look<Ready>() == Bench::Seqs{0, 1});
    b.done(0);
    b.done(2);
    CHECK(b.look<DoneSeen>() == Bench::Seqs{0});
    b.done(1);
    CHECK(b.look<DoneSeen>() == Bench::Seqs{1, 2});
}

TEST_CASE("what several streams have reached since the last look is reported in the order of the program") {
    Bench b;
    b.comm(0);
    for (const std::uint64_t stream : {3, 2, 1, 2, 3, 1}) b.record(ring::Gate::stream, stream);
    for (std::uint64_t seq = 0; seq < 6; ++seq) b.ready(seq);
    CHECK(b.look<Ready>() == Bench::Seqs{0, 1, 2, 3, 4, 5});
    for (std::uint64_t seq = 0; seq < 6; ++seq) b.done(seq);
    CHECK(b.look<DoneSeen>() == Bench::Seqs{0, 1, 2, 3, 4, 5});
}

TEST_CASE("a communicator that comes and goes between two looks is reported before and after its launches") {
    Bench b;
    b.comm(0);
    b.record();
    b.view.comms[0].state = static_cast<std::uint32_t>(ring::CommState::retired);
    b.look<CommUp>();
    REQUIRE(b.events.size() == 3);
    CHECK(std::holds_alternative<CommUp>(b.events[0]));
    CHECK(std::holds_alternative<Recorded>(b.events[1]));
    CHECK(std::holds_alternative<CommDown>(b.events[2]));
    CHECK(b.look<CommUp>().empty());
    b.reader->comm_freed(0, 1);
    CHECK(b.look<CommUp>().empty());  // still its last life
    b.comm(0);
    CHECK(b.look<CommUp>() == Bench::Seqs{0});
    CHECK(!b.reader->broken());
}

TEST_CASE("the end of a communicator is not reported before its last launch is read") {
    Bench b;
    b.comm(0);
    b.comm(1);
    CHECK(b.look<CommUp>().size() == 2);
    const std::uint64_t open = b.record(ring::Gate::stream, 1, 0, false);
    b.record();
    b.view.comms[0].state = static_cast<std::uint32_t>(ring::CommState::retired);
    CHECK(b.look<CommDown>().empty());
    b.view.record(open).commit = ring::kCommitTag | (open + 1);
    CHECK(b.look<CommDown>() == Bench::Seqs{0});
}

TEST_CASE("words of launches that come again are expected when they came before") {
    constexpr TimeNs kMs = 1'000'000;
    Bench b;
    b.comm(0);
    b.look<Ready>();
    TimeNs now = kMs;
    const auto look = [&] {
        b.events.clear();
        b.reader->look(b.events, false, now);
    };
    PollHint hint;
    for (int i = 0; i < 20; ++i) {
        const std::uint64_t seq = b.record();
        look();
        hint = {};
        b.reader->await(hint, now, [](std::uint64_t) { return true; });
        CHECK(hint.any);
        CHECK((hint.next != 0) == (i > 2));  // two before it, and itself
        if (i > 2) CHECK(std::abs(hint.next - now - 5 * kMs) < 2 * kMs);
        now += 5 * kMs - 10'000;
        look();
        now += 10'000;
        b.ready(seq);
        look();
        b.go(seq);
        hint = {};
        b.reader->await(hint, now, [](std::uint64_t) { return true; });
        now += 3 * kMs;
        b.done(seq);
        look();
    }
    CHECK(!needs_poll(*b.reader));
}

TEST_CASE("only what a GPU may change is polled") {
    Bench b;
    b.comm(0);
    b.look<Ready>();
    CHECK(!needs_poll(*b.reader));
    SUBCASE("a stream gate, until it is reached, and again while it runs") {
        const std::uint64_t seq = b.record();
        b.look<Ready>();
        CHECK(needs_poll(*b.reader));
        b.ready(seq);
        b.look<Ready>();
        CHECK(!needs_poll(*b.reader));
        b.go(seq);
        CHECK(needs_poll(*b.reader));
        b.done(seq);
        b.look<Ready>();
        CHECK(!needs_poll(*b.reader));
    }
    SUBCASE("a host gate, while it runs on a GPU") {
        const std::uint64_t seq = b.record(ring::Gate::host);
        b.look<Ready>();
        CHECK(!needs_poll(*b.reader));
        b.ready(seq);
        b.go(seq);
        b.look<Ready>();
        CHECK(needs_poll(*b.reader));
    }
    SUBCASE("not where the host rings for its end") {
        const std::uint64_t seq = b.record(ring::Gate::host, 1, ring::kLaunchHostDone);
        b.ready(seq);
        b.go(seq);
        b.look<Ready>();
        CHECK(!needs_poll(*b.reader));
    }
    SUBCASE("not for connections, wherever they stand") {
        b.record(ring::Gate::host, 0, ring::kLaunchConn);
        b.look<Ready>();
        CHECK(!needs_poll(*b.reader));
    }
}

TEST_CASE("a recovered ring is read from where it was retired, and tells what had gone") {
    Bench b(true);
    b.comm(0);
    b.view.comms[0].verdict = static_cast<std::uint32_t>(Verdict::enforced);
    for (int i = 0; i < 4; ++i) b.record();
    b.view.header->retired = 1;
    b.go(1);
    b.ready(1);
    b.ready(2);
    b.reader = std::make_unique<RingReader>(b.view, 0, true);
    CHECK(b.look<Recorded>() == Bench::Seqs{1, 2, 3});
    for (const Event& event : b.events) {
        if (const auto* r = std::get_if<Recorded>(&event)) CHECK(r->go == (r->seq == 1));
        if (const auto* c = std::get_if<CommUp>(&event)) CHECK(c->verdict == Verdict::enforced);
    }
}

TEST_CASE("what breaks the contract is named, tells its communicators lost, and ends the reading") {
    Bench b;
    b.comm(0);
    b.record();
    b.look<Recorded>();
    const std::uint64_t seq = b.record();
    ring::LaunchRecord& record = b.view.record(seq);
    std::string expected;
    SUBCASE("no operations") { record.op_count = 0, expected = "launch 1: 0 operations"; }
    SUBCASE("too many operations") { record.op_count = 20'000, expected = "launch 1: 20000 operations"; }
    SUBCASE("beyond the head") { record.op_count = 7, expected = "beyond the head"; }
    SUBCASE("a gate nobody knows") { record.gate = 9, expected = "gate 9"; }
    SUBCASE("an operation nobody knows") { record.op.kind = 99, expected = "launch 1, operation 0: kind 99"; }
    SUBCASE("a communicator that is not there") { record.op.comm = 7, expected = "entry 7 is free"; }
    SUBCASE("a communicator that cannot be") { record.op.comm = 700, expected = "entry 700"; }
    SUBCASE("a peer that is not there") {
        record.op.kind = static_cast<std::uint8_t>(OpKind::send);
        record.op.peer = 4, expected = "peer 4 of 4";
    }
    SUBCASE("no keys") { record.op.count = 0, expected = "count 0"; }
    SUBCASE("a number out of range") { record.op.n = ~0ull, expected = "number"; }
    SUBCASE("a head that ran away") { b.view.header->head = 1'000'000, expected = "head 1000000"; }
    SUBCASE("a head that went back") { b.view.header->head = 0, expected = "head 0"; }
    CHECK(b.look<CommLost>() == Bench::Seqs{0});
    CHECK(b.reader->broken());
    INFO(b.reader->fault());
    CHECK(b.reader->fault().find(expected) != std::string::npos);
    b.record();
    CHECK(b.look<Recorded>().empty());
    b.done(0);
    CHECK(b.look<DoneSeen>() == Bench::Seqs{0});  // what was known ends all the same
}

TEST_CASE(
    "a launch of more keys than a message holds passes without keys: its communicators are lost, the ring is not") {
    Bench b;
    b.comm(0);
    b.comm(1);
    const std::uint64_t seq = b.record();
    b.view.record(seq).op.count = 1u << 30;
    b.record();
    CHECK(b.look<CommLost>() == Bench::Seqs{0});
    CHECK(!b.reader->broken());
    std::vector<bool> keyless;
    for (const Event& event : b.events)
        if (const auto* r = std::get_if<Recorded>(&event)) keyless.push_back(r->keyless);
    CHECK(keyless == std::vector<bool>{true, false});
    b.ready(seq);
    b.done(seq);
    CHECK(b.look<DoneSeen>() == Bench::Seqs{seq});
}

TEST_CASE("a communicator that breaks the contract is named") {
    Bench b;
    b.comm(0);
    b.comm(1);
    std::string expected;
    SUBCASE("no id") { b.view.comms[1].id = {}, expected = "entry 1 has no id"; }
    SUBCASE("no size") { b.view.comms[1].size = 0, expected = "rank 0 of 0"; }
    SUBCASE("a rank beyond its size") { b.view.comms[1].rank = 4, expected = "rank 4 of 4"; }
    SUBCASE("a mode nobody knows") { b.view.comms[1].mode = 3, expected = "mode 3"; }
    b.look<CommUp>();
    CHECK(b.reader->fault().find(expected) != std::string::npos);
}

TEST_CASE("an entry that is used again before it is free breaks the ring") {
    Bench b;
    b.comm(0);
    b.look<CommUp>();
    b.comm(0);
    b.look<CommUp>();
    CHECK(b.reader->fault().find("changed while it was registered") != std::string::npos);
}

TEST_CASE("random stores of a hostile shim never make a frame that the controller refuses") {
    std::mt19937_64 random(7);
    std::size_t broken = 0, recorded = 0;
    for (int round = 0; round < 300; ++round) {
        std::vector<std::uint8_t> bytes(11 * (1 + random() % 100));
        for (auto& byte : bytes) byte = static_cast<std::uint8_t>(random() >> 8);
        // Mostly small numbers: the interesting ones.
        for (std::size_t i = 3; i + 8 <= bytes.size(); i += 11)
            if (random() % 4 != 0) std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(i) + 1, 7, 0);
        HostileRing ring;
        const std::string fault = ring.play(bytes.data(), bytes.size());
        CHECK(fault == "");
        broken += ring.reader().broken();
        recorded += ring.core().counters().recorded;
    }
    CHECK(broken > 30);   // it does reach what is forbidden,
    CHECK(broken < 300);  // and what is not
    CHECK(recorded > 1'000);
}

TEST_CASE("a manager that comes after another retracts what was released early, unless it has gone") {
    Bench b(true);
    b.comm(0);
    b.record(ring::Gate::stream, 1, ring::kLaunchFenced);
    b.record(ring::Gate::stream, 1, ring::kLaunchFenced);
    b.record(ring::Gate::stream, 1, ring::kLaunchFenced);
    b.go(0);
    b.ready(0);
    b.go(1);
    b.reader = std::make_unique<RingReader>(b.view, 0, true);
    CHECK(b.look<Recorded>() == Bench::Seqs{0, 1, 2});
    CHECK(b.gone() == std::vector<bool>{true, false, false});
    CHECK(b.view.go[0].value == 1);
    CHECK(b.view.go[1].value < 2);
    CHECK(b.view.go[2].value == 0);
}

TEST_CASE("go words of communicators that lay ahead are taken back, but for what has gone") {
    constexpr std::uint16_t by_comm = ring::kLaunchFenced | ring::kLaunchCommGo;
    Bench b;
    b.comm(0);
    const auto store = [&b] {
        b.view.comms[0].go = 40;
        for (int i = 0; i < 3; ++i) b.record(ring::Gate::stream, 1, by_comm);
        b.ready(0);
        b.ready(1);
    };
    SUBCASE("by the manager that comes after") {
        store();
        b.reader = std::make_unique<RingReader>(b.view, 0, true);
        CHECK(b.look<Recorded>() == Bench::Seqs{0, 1, 2});
        CHECK(b.gone() == std::vector<bool>{true, true, false});
    }
    SUBCASE("by the one that ends, seen or not") {
        b.look<CommUp>();
        store();
        b.reader->take_back();
    }
    CHECK(b.view.comms[0].go == 2);  // both that are ready
    CHECK(b.view.go[1].value == 2);
    CHECK(b.view.go[2].value < 3);
}

TEST_CASE("a place in the ring that is not committed yet hides what is behind it, and that is known") {
    Bench b;
    b.comm(0);
    b.record();
    const std::uint64_t hole = b.view.header->head.fetch_add(1);
    b.record();
    b.ready(hole + 1);
    const std::uint64_t head = b.reader->head();
    CHECK(b.look<Recorded>() == Bench::Seqs{0});
    CHECK_FALSE(b.reader->has_read(head));
    CHECK(b.reader->reached_from(0).empty());
    b.view.ready[hole].skipped = hole + 1;  // its thread has found that it is no launch
    CHECK(b.look<Recorded>() == Bench::Seqs{hole + 1});
    CHECK(b.reader->has_read(head));
    CHECK(b.reader->reached_from(0) == Bench::Seqs{hole + 1});
}

TEST_CASE("a manager that ends retracts what it has released early") {
    Bench b;
    b.comm(0);
    b.record(ring::Gate::stream, 1, ring::kLaunchFenced);
    b.record(ring::Gate::stream, 1, ring::kLaunchFenced);
    b.look<Recorded>();
    b.go(0);
    b.go(1);
    b.ready(0);
    b.reader->take_back();
    CHECK(b.view.go[0].value == 1);
    CHECK(b.view.go[1].value < 2);
}

TEST_CASE("a member that enters NCCL's creation without a place is reported, and again when it has its place") {
    Bench b;
    ring::CommEntry& entry = b.view.comms[0];
    entry.id = {1, 1};
    entry.rank = entry.size = kNone;
    entry.mode = static_cast<std::uint32_t>(Mode::enforce);
    entry.generation = 1;
    entry.creation = static_cast<std::uint32_t>(CreationState::entered);
    entry.state = static_cast<std::uint32_t>(ring::CommState::entering);
    CHECK(b.look<CommEntering>() == Bench::Seqs{0});
    CHECK(b.look<CommEntering>().empty());
    SUBCASE("its creation returns") {
        entry.rank = 1;
        entry.size = 3;
        entry.creation = static_cast<std::uint32_t>(CreationState::returned);
        entry.state = static_cast<std::uint32_t>(ring::CommState::registered);
        CHECK(b.look<CommUp>() == Bench::Seqs{0});
        const auto& up = std::get<CommUp>(b.events[0]);
        CHECK(up.member.size == 3);
        CHECK(up.member.creation == CreationState::returned);
        CHECK(b.look<CommCreated>().empty());
    }
    SUBCASE("it returns and is destroyed between two looks") {
        entry.rank = 1;
        entry.size = 3;
        b.record();
        entry.state = static_cast<std::uint32_t>(ring::CommState::retired);
        CHECK(b.look<CommUp>() == Bench::Seqs{0});
        REQUIRE(b.events.size() == 3);
        CHECK(std::holds_alternative<CommDown>(b.events[2]));
    }
    SUBCASE("its creation fails") {
        entry.state = static_cast<std::uint32_t>(ring::CommState::free);
        CHECK(b.look<CommDown>() == Bench::Seqs{0});
        CHECK(b.events.size() == 1);
        CHECK(b.look<CommDown>().empty());
        entry.rank = 0;
        b.comm(0);
        CHECK(b.look<CommUp>() == Bench::Seqs{0});
    }
    SUBCASE("its creation fails, and the entry is another's at the next look") {
        entry.rank = 0;
        b.comm(0);
        CHECK(b.look<CommUp>() == Bench::Seqs{0});
        REQUIRE(b.events.size() == 2);
        CHECK(std::holds_alternative<CommDown>(b.events[0]));
    }
    CHECK(!b.reader->broken());
}

TEST_CASE("a creation that began and failed between two looks is nothing to tell") {
    Bench b;
    ring::CommEntry& entry = b.view.comms[0];
    entry.id = {1, 1};
    entry.rank = entry.size = kNone;
    entry.generation = 1;
    b.look<CommUp>();
    CHECK(b.events.empty());
    entry.rank = 0;
    b.comm(0);
    CHECK(b.look<CommUp>() == Bench::Seqs{0});
    CHECK(!b.reader->broken());
}

TEST_CASE("NCCL's return is reported once, for a member that was registered before") {
    Bench b;
    b.comm(0);
    b.view.comms[0].creation = static_cast<std::uint32_t>(CreationState::entered);
    CHECK(b.look<CommUp>() == Bench::Seqs{0});
    CHECK(std::get<CommUp>(b.events[0]).member.creation == CreationState::entered);
    CHECK(b.look<CommCreated>().empty());
    b.view.comms[0].creation = static_cast<std::uint32_t>(CreationState::returned);
    CHECK(b.look<CommCreated>() == Bench::Seqs{0});
    CHECK(b.look<CommCreated>().empty());
}

TEST_CASE("a launch that was passed over keeps its slot, and the shim's word that it has gone on is read") {
    Bench b;
    b.comm(0);
    for (int i = 0; i < 64; ++i) b.record(ring::Gate::stream, 1 + (i == 0), ring::kLaunchSkips);
    CHECK(b.look<Recorded>().size() == 64);
    b.reader->retired({0, 64, {{0, 1}}, {}});
    CHECK(b.view.go[0].occupied == 1);
    CHECK(b.view.header->retired == 0);
    CHECK(b.view.header->reusable == 64);
    b.view.header->head = 65;
    CHECK(b.look<Recorded>().empty());  // the shim has not said yet what comes
    b.view.ready[0].skipped = 65;
    b.record();
    CHECK(b.look<Recorded>() == Bench::Seqs{65});
    b.ready(0);
    b.done(0);
    CHECK(b.look<DoneSeen>() == Bench::Seqs{0});
    b.reader->retired({0, 0, {}, {{0, 1}}});
    CHECK(b.view.go[0].occupied == 0);
    CHECK(b.view.header->reusable == 65);  // there was no launch 64
    b.reader->retired({0, 66, {}, {}});
    CHECK(b.view.header->retired == 0);
    CHECK(b.view.header->reusable == 66);
    for (int i = 0; i < 63; ++i) b.record();
    CHECK(b.look<Recorded>().back() == 128);  // in the slot that was occupied
    CHECK_FALSE(b.reader->broken());
}

// A shim that passed over most of a small ring found no room for a launch of three slots beyond it, until one was over that
// waited for it (random program 1000205, a ring of 64).
TEST_CASE("a sequence without a launch is free as soon as all before it is") {
    Bench b;
    b.comm(0);
    for (int i = 0; i < 64; ++i) b.record(ring::Gate::stream, 1, ring::kLaunchSkips);
    CHECK(b.look<Recorded>().size() == 64);
    b.reader->retired({0, 62, {{0, 8}}, {}});
    b.view.header->head = 72;
    for (int i = 0; i < 8; ++i) b.view.ready[i].skipped = 65 + i;
    b.record();
    CHECK(b.look<Recorded>() == Bench::Seqs{72});
    CHECK(b.view.header->reusable == 62);  // not the two before it
    SUBCASE("which was not when it was read") {
        b.reader->retired({0, 64, {}, {{0, 8}}});
        CHECK(b.view.header->reusable == 72);
    }
    SUBCASE("and no further") {
        b.reader->retired({0, 63, {}, {}});
        CHECK(b.view.header->reusable == 63);
        b.reader->retired({0, 73, {}, {}});
        CHECK(b.view.header->reusable == 73);
    }
    CHECK_FALSE(b.reader->broken());
}

TEST_CASE("a launch in a slot that is occupied breaks the ring") {
    Bench b;
    b.comm(0);
    for (int i = 0; i < 64; ++i) b.record(ring::Gate::stream, 1, ring::kLaunchSkips);
    b.look<Recorded>();
    b.reader->retired({0, 64, {{0, 1}}, {}});
    b.view.go[0].occupied = 0;  // whatever the rank makes of the mark
    b.record();
    CHECK(b.look<Recorded>().empty());
    CHECK(b.reader->broken());
}

TEST_CASE("a manager that comes after another finds what that one had passed over") {
    Bench b(true);
    b.comm(0);
    b.comm(1);
    for (int i = 0; i < 70; ++i) b.record(ring::Gate::stream, 1, ring::kLaunchSkips);  // 0 to 5 are overwritten
    b.view.header->retired = 3;
    b.view.header->reusable = 60;
    for (const int slot : {9, 20, 62, 3}) b.view.go[slot].occupied = 1;  // the last two never came to count
    b.go(9);
    b.reader = std::make_unique<RingReader>(b.view, 0, true);
    CHECK(b.look<Recorded>() == Bench::Seqs{9, 20, 60, 61, 62, 63, 64, 65, 66, 67, 68, 69});
    for (const Event& event : b.events)
        if (const auto* record = std::get_if<Recorded>(&event)) {
            CHECK(record->occupied == (record->seq < 60));
            CHECK(record->go == (record->seq == 9));
        }
    CHECK(b.view.go[9].occupied == 1);
    CHECK(b.view.go[20].occupied == 1);
    CHECK(b.view.go[62].occupied == 0);
    CHECK(b.view.go[3].occupied == 0);
    b.reader->retired({0, 62, {}, {{9, 1}}});
    CHECK(b.view.header->retired == 3);
    CHECK(b.view.header->reusable == 62);
    CHECK(b.view.go[9].occupied == 0);
}

TEST_CASE("a captured launch is recorded once, and each of its replays is a launch with keys of its own") {
    Bench b;
    b.comm(0);
    const std::uint64_t seq = b.record(ring::Gate::stream, 1, ring::kLaunchReplayed);
    b.view.record(seq).op.n = 5;
    b.view.record(seq).op.count = 2;
    CHECK(b.look<Recorded>() == Bench::Seqs{seq, replay_launch(seq, 0)});  // the next is there before its gate is reached
    CHECK(needs_poll(*b.reader));
    for (std::uint64_t replay = 0; replay < 3; ++replay) {
        const std::uint64_t launch = replay_launch(seq, replay);
        const auto found = std::find_if(b.events.begin(), b.events.end(), [launch](const Event& e) {
            return std::holds_alternative<Recorded>(e) && std::get<Recorded>(e).seq == launch;
        });
        REQUIRE(found != b.events.end());
        const Recorded r = std::get<Recorded>(*found);
        b.view.ready[seq].replays = replay + 1;
        CHECK(b.look<Ready>() == Bench::Seqs{launch});
        CHECK(r.slots == 0);
        REQUIRE(r.ops.size() == 2);
        CHECK(r.ops[0].n == replayed_key(5, replay));
        CHECK(r.ops[1].n == replayed_key(6, replay));
        store_go(b.view, launch);
        CHECK(b.view.go[seq].replays == replay + 1);
        b.view.done[seq].replays = replay + 1;
        CHECK(b.look<DoneSeen>() == Bench::Seqs{launch});
    }
    SUBCASE("and the graph is gone") { CHECK(true); }
    SUBCASE("and the graph is gone, by a shim that clears its counts then") {
        b.view.ready[seq].replays = 0;
        b.view.done[seq].replays = 0;
    }
    b.done(seq);
    CHECK(b.look<DoneSeen>() == Bench::Seqs{seq});
    CHECK_FALSE(needs_poll(*b.reader));
    store_go(b.view, replay_launch(seq, 2));  // it is told of, and let go, with the end of its graph
    b.reader->retired({0, seq + 1, {}, {}});
    CHECK(b.view.go[seq].replays == 0);
}

TEST_CASE("a replay that was let go, and whose graph is gone before anybody looked, is told of") {
    Bench b;
    b.comm(0);
    b.record(ring::Gate::stream, 1, ring::kLaunchReplayed);
    b.look<Recorded>();
    store_go(b.view, replay_launch(0, 0));
    b.view.ready[0].replays = 1;
    b.view.done[0].replays = 1;
    b.done(0);
    CHECK(b.look<DoneSeen>() == Bench::Seqs{replay_launch(0, 0), 0});
}

TEST_CASE("the go of a replay is taken back unless its gate was reached") {
    Bench b;
    b.comm(0);
    b.record(ring::Gate::stream, 1, ring::kLaunchReplayed);
    b.look<Recorded>();
    const std::uint64_t first = replay_launch(0, 0);
    const auto stored = [&b] { return b.view.go[0].replays.load(); };
    store_go(b.view, first);
    SUBCASE("by the manager") {
        retract_go(b.view, first);
        CHECK(stored() == 0);
        CHECK_FALSE(is_reached(b.view, first));
        b.view.ready[0].replays = 1;
        CHECK(is_reached(b.view, first));
    }
    SUBCASE("when the manager ends") {
        b.reader->take_back();
        CHECK(stored() == 0);
    }
    SUBCASE("when the manager ends, and it has gone") {
        b.view.ready[0].replays = 1;
        b.reader->take_back();
        CHECK(stored() == 1);
    }
    SUBCASE("by the manager that comes next") {
        b.reader = std::make_unique<RingReader>(b.view, 0, true);
        CHECK(b.look<Recorded>() == Bench::Seqs{0, first});
        CHECK(stored() == 0);
        CHECK(b.look<Ready>().empty());
    }
}

TEST_CASE("a replay is reported once the one before it is done") {
    Bench b;
    b.comm(0);
    b.record(ring::Gate::stream, 1, ring::kLaunchReplayed);
    b.look<Recorded>();
    b.view.ready[0].replays = 2;  // of two executables of one graph
    CHECK(b.look<Ready>() == Bench::Seqs{replay_launch(0, 0)});
    CHECK(b.look<Ready>().empty());
    b.view.done[0].replays = 1;
    CHECK(b.look<Ready>() == Bench::Seqs{replay_launch(0, 1)});
}

TEST_CASE("replays that nobody has seen pass, and so does their communicator") {
    Bench b;
    b.comm(0);
    b.record(ring::Gate::stream, 1, ring::kLaunchReplayed);
    b.look<Recorded>();
    b.view.ready[0].replays = 1000;
    b.view.done[0].replays = 999;
    CHECK(b.look<CommLost>() == Bench::Seqs{0});
    CHECK(b.look<Ready>() == Bench::Seqs{replay_launch(0, 999)});
}

TEST_CASE("a manager that comes after another goes on where the replays of a graph are") {
    Bench b(true);
    b.comm(0);
    const std::uint64_t seq = b.record(ring::Gate::stream, 1, ring::kLaunchReplayed);
    b.view.ready[seq].replays = 8;
    b.view.done[seq].replays = 7;
    b.view.go[seq].replays = 8;
    b.reader = std::make_unique<RingReader>(b.view, 0, true);
    CHECK(b.look<Recorded>() == Bench::Seqs{seq, replay_launch(seq, 7)});
    std::vector<Recorded> reported;
    for (const Event& e : b.events)
        if (const auto* r = std::get_if<Recorded>(&e)) reported.push_back(*r);
    CHECK(reported[0].replays == 7);
    CHECK(reported[1].go);
}
