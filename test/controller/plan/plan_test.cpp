// Laps that are learned, orders that are found for them, and jobs on their way through.
#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <limits>
#include <set>
#include <vector>

#include "controller/plan/course.h"
#include "controller/plan/interlude.h"
#include "controller/plan/lap.h"
#include "controller/plan/play.h"
#include "controller/plan/search.h"
#include "controller/plan/watch.h"

using namespace opus;
using namespace opus::controller::plan;

namespace {

constexpr TimeNs kMs = 1'000'000, kAnyhow = std::numeric_limits<TimeNs>::max();
constexpr CommId kLeft{1, 0}, kRight{2, 0};  // of ranks 0 and 1, of 1 and 2
constexpr RankName kRanks[] = {{0, 0}, {1, 0}, {2, 0}};

// Nodes of one GPU, a port or more each, one switch.
Fabric fabric_of(TimeNs dark_ns, std::uint32_t ports = 1, std::uint32_t nodes = 3) {
    Fabric f;
    Switch sw;
    sw.name = "ocs";
    sw.ingress = nodes * ports;
    sw.dark_ns = dark_ns;
    f.switches.push_back(sw);
    f.rails.push_back({"r0", {0}, {}});
    for (std::uint32_t n = 0; n < nodes; ++n) {
        f.rails[0].gpus.push_back(n);
        f.nodes.push_back({"n" + std::to_string(n), {n}});
        f.gpus.push_back({"n" + std::to_string(n) + ".g0", n, 0, 0, {}, {}, {}});
        for (std::uint32_t p = 0; p < ports; ++p) {
            f.gpus[n].ports.push_back(n * ports + p);
            f.ports.push_back({f.gpus[n].name + ".p" + std::to_string(p), n, p, 0, n * ports + p + 1});
        }
    }
    return f;
}

std::vector<Pair> pairs_of(const SeenKey& seen) { return {seen.key.comm == kLeft ? Pair{0, 1} : Pair{1, 2}}; }

Key key_of(const CommId& comm, std::uint64_t n) {
    Key key;
    key.comm = comm;
    key.n = n;
    return key;
}

// A job of laps: `left` collectives of ranks 0 and 1, then `right` of 1 and 2; each takes a millisecond and begins one after
// the one before it of its ranks.
struct Job {
    Log log;
    TimeNs now = 0;
    std::uint64_t grant = 1, seq[3] = {0, 0, 0}, next[2] = {0, 0};

    void use(const CommId& comm, OpKind op = OpKind::none, TimeNs held = 0) {
        const bool left = comm == kLeft;
        for (const std::uint32_t r : left ? std::vector<std::uint32_t>{0, 1} : std::vector<std::uint32_t>{1, 2})
            log.add(kRanks[r], {op, {{key_of(comm, next[left ? 0 : 1]), false}}, seq[r]++, grant, now, now + held, now + held + kMs});
        ++next[left ? 0 : 1];
        ++grant;
        now += held + 2 * kMs;
    }
    void lap(int left, int right) {
        for (int i = 0; i < left; ++i) use(kLeft);
        for (int i = 0; i < right; ++i) use(kRight);
        now += 10 * kMs;
    }
};

// What is known of a job by what it has done.
Lap timed(const Job& job) {
    auto lap = find_lap(job.log, pairs_of);
    REQUIRE(lap);
    REQUIRE(time_lap(*lap, job.log));
    return std::move(*lap);
}

// What is known of a job after three laps.
Lap learned(Job& job, int left, int right) {
    for (int i = 0; i < 3; ++i) job.lap(left, right);
    return timed(job);
}

Order order_of(const Lap& lap, const Fabric& fabric, std::uint32_t trials = 50) {
    return find_order({lap, std::vector<bool>(fabric.ports.size(), true), trials}, fabric);
}

}  // namespace

TEST_CASE("of many ranks fewer launches of each are remembered") {
    Log log;
    constexpr std::uint32_t kMany = 1024;
    const auto launch = [](std::uint64_t number) {
        Seen seen;
        seen.seq = number;
        return seen;
    };
    const auto all = [&log] {
        std::size_t sum = 0;
        for (const auto& [rank, launches] : log.ranks()) sum += launches.size();
        return sum;
    };
    for (std::uint32_t rank = 0; rank < kMany; ++rank)
        for (std::uint64_t n = 0; n < Log::kMostInAll / kMany + 100; ++n) log.add({0, rank}, launch(n));
    // Each is cut when a launch of its own comes: the first ones had no others beside them.
    CHECK(all() < Log::kMostInAll + Log::kMostInAll / 8);
    for (std::uint32_t rank = 0; rank < kMany; ++rank) log.add({0, rank}, launch(Log::kMostInAll));
    CHECK(all() == Log::kMostInAll);
    CHECK(log.ranks().at({0, 0}).back().seq == Log::kMostInAll);
}

TEST_CASE("what a job does twice is a lap, and what it has done once is none") {
    Job job;
    job.lap(3, 2);
    CHECK(!find_lap(job.log, pairs_of));
    job.lap(3, 2);
    job.lap(3, 2);
    auto lap = find_lap(job.log, pairs_of);
    REQUIRE(lap);
    CHECK(lap->uses.size() == 5);
    CHECK(lap->launches == 10);
    CHECK(lap->sequences.at(key_of(kLeft, 0)).uses.size() == 3);
    CHECK(lap->sequences.at(key_of(kRight, 0)).uses.size() == 2);
    REQUIRE(time_lap(*lap, job.log));
    for (const Use& use : lap->uses) CHECK(use.ns == kMs);
}

TEST_CASE("a part of a lap that comes again and again is not taken for it once the rest has been seen") {
    Job job;
    for (int i = 0; i < 3; ++i) job.lap(6, 1);
    for (int i = 0; i < 4; ++i) job.use(kLeft);
    const auto lap = find_lap(job.log, pairs_of);
    REQUIRE(lap);
    CHECK(lap->uses.size() == 7);
}

TEST_CASE("of two ranks that meet, the lap is as long as both need") {
    Job job;  // rank 0 does the same all the time; rank 1 does not
    for (int i = 0; i < 3; ++i) job.lap(4, 1);
    const auto lap = find_lap(job.log, pairs_of);
    REQUIRE(lap);
    CHECK(lap->ranks.at(kRanks[0]).launches.size() == 4);
    CHECK(lap->ranks.at(kRanks[1]).launches.size() == 5);
    CHECK(lap->ranks.at(kRanks[2]).launches.size() == 1);
}

TEST_CASE("a use waits for what was over each time, for as long as it did at least") {
    Job job;
    Lap lap = learned(job, 1, 1);
    const auto left = lap.find(key_of(kLeft, 2))->first, right = lap.find(key_of(kRight, 2))->first;
    const auto waits = [&](std::uint32_t use, std::uint32_t from, std::uint32_t laps) -> TimeNs {
        for (const Before& b : lap.uses[use].before)
            if (b.use == from && b.laps == laps) return b.ns;
        return -1;
    };
    const bool left_first = waits(right, left, 0) >= 0;  // where the lap is cut is for it to say
    CHECK((left_first ? waits(right, left, 0) : waits(left, right, 0)) >= 2 * kMs);
    CHECK(waits(right, right, 1) == 14 * kMs);

    // Once the right one is ready before the left one is over: it does not wait for it.
    Seen early{OpKind::none, {{key_of(kRight, 3), false}}, job.seq[1]++, job.grant, job.now, job.now, job.now + kMs};
    job.log.add(kRanks[1], early);
    early.seq = job.seq[2]++;
    job.log.add(kRanks[2], early);
    for (const std::uint32_t r : {0u, 1u})
        job.log.add(kRanks[r], {OpKind::none, {{key_of(kLeft, 3), false}}, job.seq[r]++, job.grant + 1, job.now, job.now, job.now + kMs});
    REQUIRE(time_lap(lap, job.log));
    CHECK(waits(right, left, 0) == -1);
}

TEST_CASE("a launch waits for nothing that its program makes later, and not for itself") {
    for (const bool in_order : {true, false}) {  // else nobody knows what comes later
        Job job;
        for (int i = 0; i < 3; ++i) {  // the left one first, which is ready only when the right one is over
            const std::uint64_t n = job.next[0]++;
            for (const auto& [comm, from, ranks] :
                 {std::tuple{kLeft, 5 * kMs, std::pair{0u, 1u}}, {kRight, 0 * kMs, {1u, 2u}}})
                for (const std::uint32_t r : {ranks.first, ranks.second}) {
                    Seen seen{OpKind::none,        {{key_of(comm, n), false}},
                              job.seq[r]++,        job.grant + 1 - (from > 0),
                              job.now + from,      job.now + from,
                              job.now + from + kMs};
                    seen.in_order = in_order;
                    job.log.add(kRanks[r], seen);
                }
            job.grant += 2;
            job.now += 20 * kMs;
        }
        Lap lap = timed(job);
        const auto left = lap.find(key_of(kLeft, 1)), right = lap.find(key_of(kRight, 1));
        const auto is_right = [&](const Before& b) {
            return b.use == right->first && b.laps == left->second - right->second;
        };
        CHECK(std::ranges::any_of(lap.uses[left->first].before, is_right) == !in_order);
    }
    Job job;  // what is seen late seems to take no time; rank 1 launches both as one
    for (int i = 0; i < 3; ++i) {
        const std::uint64_t n = job.next[0]++;
        for (const std::uint32_t r : {0u, 1u, 2u}) {
            Seen seen{OpKind::none, {}, job.seq[r]++, 0, job.now, job.now, job.now};
            if (r < 2) seen.keys.push_back({key_of(kLeft, n), false});
            if (r > 0) seen.keys.push_back({key_of(kRight, n), false});
            job.log.add(kRanks[r], seen);
        }
        job.now += 20 * kMs;
    }
    Lap lap = timed(job);
    CHECK(order_of(lap, fabric_of(kMs, 2)).ports.size() == 2);
}

TEST_CASE("laps by earlier plans say how long launches wait, too, and laps on demand before them do not") {
    Job job;
    const auto lap_of = [&job](TimeNs between) {
        job.use(kLeft);
        job.now += between;
        job.use(kRight);
        job.now += 10 * kMs;
    };
    for (int i = 0; i < 3; ++i) lap_of(0);
    auto lap = find_lap(job.log, pairs_of);
    REQUIRE(lap);
    for (int i = 0; i < 3; ++i) lap_of(2 * kMs);
    const std::int64_t to_fourth = 3 - static_cast<std::int64_t>(lap->ranks.at(kRanks[0]).seq);
    lap->by_plan = 7;
    lap->advance(to_fourth);
    CHECK(lap->by_plan == 7 - to_fourth);
    const auto right_waits = [&](std::int64_t by_plan) {
        lap->by_plan = by_plan;
        REQUIRE(time_lap(*lap, job.log));
        const Use& right = lap->uses[lap->sequences.at(key_of(kRight, 0)).uses.front()];
        REQUIRE(right.before.size() == 2);  // and for itself, in the lap before
        return std::ranges::find_if(right.before, [](const Before& b) { return b.laps == 0; })->ns - kMs;
    };
    CHECK(right_waits(0) == 3 * kMs);
    CHECK(right_waits(-3) == kMs);
    CHECK(right_waits(5) == 3 * kMs);
}

TEST_CASE("of the only whole lap in a log it is known how long its launches wait for each other") {
    Job job;
    TimeNs begin = 0;
    for (int i = 0; i < 3; ++i) {
        begin = job.now;
        job.use(kLeft);
        job.now += 5 * kMs;
        job.use(kRight);
        job.now += 20 * kMs;
    }
    const auto lap = find_lap(job.log, pairs_of);
    REQUIRE(lap);
    Log last;
    for (const auto& [rank, launches] : job.log.ranks())
        for (const Seen& launch : launches)
            if (launch.ready_ns >= begin) last.add(rank, launch);
    for (const Log* log : std::initializer_list<const Log*>{&job.log, &last}) {
        Lap timed = *lap;
        REQUIRE(time_lap(timed, *log));
        const std::uint32_t left = timed.find(key_of(kLeft, 0))->first;
        const Use& right = timed.uses[timed.find(key_of(kRight, 0))->first];
        const auto waits = std::ranges::find(right.before, left, &Before::use);
        REQUIRE(waits != right.before.end());
        CHECK(waits->ns == 7 * kMs);
    }
}

TEST_CASE("what a lap had beyond the least is kept, and a lap is played as each of those that were seen") {
    Job job;
    for (int i = 0; i < 4; ++i) job.lap(1, 1);
    auto lap = find_lap(job.log, pairs_of);
    REQUIRE(lap);
    job.use(kLeft);
    job.now += 6 * kMs;  // more to compute
    job.use(kRight);
    job.now += 10 * kMs;
    REQUIRE(time_lap(*lap, job.log));
    const auto right = lap->find(key_of(kRight, 2))->first;
    const auto late = [&] {
        std::vector<TimeNs> all;
        for (const Use::InLap& in_lap : lap->uses[right].in_laps) all.push_back(in_lap.late_ns);
        return all;
    };
    CHECK(late().front() == 6 * kMs);
    CHECK(std::ranges::count(late(), 0) == static_cast<std::ptrdiff_t>(late().size()) - 1);
    REQUIRE(late().size() == 2);
    // Of the three laps by which an order is timed the last and the first are like the last that was seen.
    CHECK(order_of(*lap, fabric_of(kMs / 2)).lap_ns == 18 * kMs);
}

TEST_CASE("a use takes as long as its last member does: in a run others have gone before, and wait") {
    Job job;
    Lap lap = learned(job, 1, 1);
    const auto left = lap.find(key_of(kLeft, 2))->first;
    for (std::uint64_t n = 3; n < 10; ++n) {
        job.log.add(kRanks[0], {OpKind::none, {{key_of(kLeft, n), false}}, job.seq[0]++, 0, job.now, job.now, job.now + 6 * kMs});
        job.log.add(kRanks[1], {OpKind::none, {{key_of(kLeft, n), false}}, job.seq[1]++, 0, job.now + 5 * kMs, job.now + 5 * kMs, job.now + 6 * kMs});
        job.now += 8 * kMs;
        job.use(kRight);
    }
    REQUIRE(time_lap(lap, job.log));
    CHECK(lap.uses[left].ns == kMs);
}

TEST_CASE("what a communicator does tells its launches apart") {
    Job job;
    for (int i = 0; i < 3; ++i)
        for (const OpKind op : {OpKind::reduce_scatter, OpKind::reduce_scatter, OpKind::all_gather}) job.use(kLeft, op);
    const auto lap = find_lap(job.log, pairs_of);
    REQUIRE(lap);
    CHECK(lap->uses.size() == 3);
}

namespace {

// A lap of 30 ms: a collective of ranks 0 and 1 that is held for its light, 1 ms later one of ranks 1 and 2, for which rank 2 is
// ready all the time.
void held_lap(Job& job, TimeNs held) {
    const TimeNs go = job.now + held, right = go + 2 * kMs;
    const std::uint64_t n = job.next[0]++;
    for (const std::uint32_t r : {0u, 1u})
        job.log.add(kRanks[r], {OpKind::none, {{key_of(kLeft, n), false}}, job.seq[r]++, job.grant, job.now, go, go + kMs});
    for (const std::uint32_t r : {1u, 2u})
        job.log.add(kRanks[r], {OpKind::none, {{key_of(kRight, n), false}}, job.seq[r]++, job.grant + 1,
                                r == 1 ? right : job.now - 10 * kMs, right, right + kMs});
    job.grant += 2;
    job.now += 30 * kMs;
}

}  // namespace

TEST_CASE("that others were held is not taken for a time that a launch needs itself") {
    Job job;
    for (int i = 0; i < 4; ++i) held_lap(job, 10 * kMs);
    Lap lap = timed(job);
    const auto left = lap.find(key_of(kLeft, 2))->first, right = lap.find(key_of(kRight, 2))->first;
    const auto needs = [&](std::uint32_t use, std::uint32_t from) {
        TimeNs most = -1;
        for (const Before& b : lap.uses[use].before)
            if (b.use == from) most = std::max(most, b.ns);
        return most;
    };
    CHECK(needs(right, left) == 2 * kMs);
    CHECK(needs(right, right) == 8 * kMs);   // rank 2's own way from one to the next; rank 1 would say 30 ms
    CHECK(needs(left, right) == 18 * kMs);

    // In a lap in which nobody is held it is seen what rank 1 takes at most.
    for (int i = 0; i < 8; ++i) held_lap(job, 0);
    REQUIRE(time_lap(lap, job.log));
    CHECK(needs(right, left) == 2 * kMs);
    CHECK(needs(left, right) == 28 * kMs);
}

TEST_CASE("a launch of several keys goes on with the last of them") {
    Job job;  // rank 1 launches both collectives as one; rank 2 comes later
    for (int i = 0; i < 3; ++i) {
        const std::uint64_t n = job.next[0]++;
        const TimeNs right = job.now + 5 * kMs, end = right + kMs;
        job.log.add(kRanks[0], {OpKind::none, {{key_of(kLeft, n), false}}, job.seq[0]++, job.grant, job.now, job.now, job.now + kMs});
        job.log.add(kRanks[1], {OpKind::none, {{key_of(kLeft, n), false}, {key_of(kRight, n), false}}, job.seq[1]++, job.grant, job.now,
                                job.now, end});
        job.log.add(kRanks[2], {OpKind::none, {{key_of(kRight, n), false}}, job.seq[2]++, job.grant + 1, right, right, end});
        job.grant += 2;
        job.now += 20 * kMs;
    }
    Lap lap = timed(job);
    const auto left = lap.find(key_of(kLeft, 1)), right = lap.find(key_of(kRight, 1));
    REQUIRE(lap.uses[left->first].until.size() == 1);
    CHECK(lap.uses[left->first].until.front() ==
          Until{right->first, static_cast<std::uint32_t>(right->second - left->second)});
    CHECK(lap.uses[right->first].until.empty());
}

TEST_CASE("a use takes as long as it was seen to with as many circuits, else as its bytes take") {
    Use use;
    use.ns = 12 * kMs;
    CHECK(use.longer_ns(1) == 0);  // nothing is known
    use.took_ns = {12 * kMs};
    CHECK(use.longer_ns(2) == 0);  // but for its bytes
    use.bytes_ns = 8 * kMs;
    CHECK(use.longer_ns(1) == 0);
    CHECK(use.longer_ns(2) == -4 * kMs);
    CHECK(use.longer_ns(4) == -6 * kMs);
    use.took_ns = {0, 12 * kMs};
    CHECK(use.longer_ns(1) == 4 * kMs);
    CHECK(use.longer_ns(2) == 0);
    use.took_ns = {13 * kMs, 12 * kMs};  // the network is not what its bytes say
    CHECK(use.longer_ns(1) == kMs);
    use.until = {{1, 0}};  // how long it waits for others is no matter of its circuits
    CHECK(use.longer_ns(1) == 0);
}

TEST_CASE("how long a use takes is learned by circuits, and stays known when it has others") {
    Job job;
    const auto lap_of = [&](std::uint32_t circuits, TimeNs took) {
        for (const std::uint32_t r : {0, 1}) {
            Seen seen{OpKind::none,  {{key_of(kLeft, job.next[0]), false}}, job.seq[r]++, job.grant, job.now, job.now,
                      job.now + took};
            seen.circuits = circuits, seen.bytes_ns = 8 * kMs;
            job.log.add(kRanks[r], seen);
        }
        ++job.next[0], ++job.grant;
        job.now += 45 * kMs + took;
    };
    for (int i = 0; i < 8; ++i) lap_of(2, 5 * kMs);
    Lap lap = timed(job);
    REQUIRE(!lap.uses.empty());
    CHECK(lap.uses[0].bytes_ns == 8 * kMs);
    CHECK(lap.uses[0].longer_ns(1) == lap.uses[0].took_ns[1] - lap.uses[0].ns + 4 * kMs);
    for (int i = 0; i < 12; ++i) lap_of(1, 11 * kMs);
    REQUIRE(time_lap(lap, job.log));
    CHECK(lap.uses[0].took_ns == std::vector<TimeNs>{11 * kMs, 5 * kMs});
    CHECK(lap.uses[0].ns == 11 * kMs);
    CHECK(lap.uses[0].longer_ns(2) == -6 * kMs);
    // What it takes longer by its circuits is not beyond what a lap must take.
    for (int i = 0; i < 3; ++i) lap_of(2, 5 * kMs), lap_of(1, 11 * kMs);
    REQUIRE(time_lap(lap, job.log));
    REQUIRE(lap.uses[0].in_laps.size() > 3);
    for (const Use::InLap& in_lap : lap.uses[0].in_laps) {
        CHECK(in_lap.late_ns == 0);
        CHECK(in_lap.longer_ns == 0);
    }
    lap_of(1, 14 * kMs);
    REQUIRE(time_lap(lap, job.log));
    CHECK(lap.uses[0].in_laps.front().longer_ns == 3 * kMs);
    CHECK(lap.uses[0].in_laps.front().late_ns == 0);
}

TEST_CASE(
    "a pair gets the circuits that make the lap short: more where bytes cost more than dark, one where light can "
    "stay") {
    Lap lap;  // of ranks 0 and 1, then of 1 and 2, each right after the other
    lap.uses.resize(2);
    for (std::uint32_t u = 0; u < 2; ++u) {
        Use& use = lap.uses[u];
        use.ns = 10 * kMs, use.bytes_ns = 10 * kMs, use.took_ns = {10 * kMs};
        use.pairs = {u == 0 ? Pair{0, 1} : Pair{1, 2}};
        use.before = {{1 - u, 1 - u, 10 * kMs}};
        use.at_ns = u * 10 * kMs;
    }
    lap.ns = 20 * kMs;
    const auto best = [&](TimeNs dark_ns) {
        const Fabric fabric = fabric_of(dark_ns, 2);
        return find_order({lap, std::vector<bool>(fabric.ports.size(), true), 100}, fabric);
    };
    const Order wide = best(kMs / 10), narrow = best(20 * kMs);
    CHECK(wide.circuits == std::vector<std::uint32_t>{2, 2});
    CHECK(wide.ports[0].size() == 2);
    CHECK(wide.lap_ns == 2 * (5 * kMs + kMs / 10));
    CHECK(narrow.circuits == std::vector<std::uint32_t>{1, 1});
    CHECK(narrow.lap_ns == 20 * kMs);
    // Rank 0 alone with rank 1: nobody else wants the ports.
    lap.uses.resize(1);
    lap.uses[0].before = {{0, 1, 10 * kMs}};
    CHECK(best(8 * kMs).circuits == std::vector<std::uint32_t>{2});
    CHECK(best(11 * kMs).circuits == std::vector<std::uint32_t>{1});  // less than half a dark time is left to chance
}

TEST_CASE("the order that is followed stays, where none is better") {
    Lap lap;  // of one pair, so that it has its light in any order
    lap.uses.resize(3);
    for (std::uint32_t u = 0; u < 3; ++u) lap.uses[u].ns = kMs, lap.uses[u].at_ns = u * kMs, lap.uses[u].pairs = {{0, 1}};
    const Fabric fabric = fabric_of(10 * kMs, 2);
    const std::vector<bool> usable(fabric.ports.size(), true);
    const std::vector<std::uint32_t> other{2, 0, 1};
    CHECK(find_order({lap, usable, 50}, fabric).place != other);
    for (const bool first_free : {false, true}) {  // with the way in which its ports were chosen
        Order followed;
        followed.place = other;
        followed.circuits.assign(other.size(), 1);
        followed.first_free = first_free;
        followed.ports.assign(other.size(), {{1, 2}});
        const Order order = find_order({lap, usable, 50, 0, followed}, fabric);
        CHECK(order.does_as(followed));
        CHECK(order.first_free == first_free);
    }
}

// Small laps that are drawn, in all orders.
TEST_CASE("of all orders of a small lap a shortest is found, or nearly") {
    constexpr std::uint32_t kUses = 5;
    const Fabric fabric = fabric_of(10 * kMs, 2, 4);
    const std::vector<bool> usable(fabric.ports.size(), true);
    std::uint64_t state = 1;
    const auto draw = [&state](std::uint64_t n) { return (state = hash_mix(state, n)) % n; };
    const auto ms = [](std::uint64_t n) { return static_cast<TimeNs>(n) * kMs; };
    int found = 0;
    for (int laps = 0; laps < 60; ++laps) {
        Lap lap;
        lap.uses.resize(kUses);
        for (std::uint32_t u = 0; u < kUses; ++u) {
            const auto a = static_cast<GpuId>(draw(4)), b = static_cast<GpuId>((a + 1 + draw(3)) % 4);
            Use& use = lap.uses[u];
            use.pairs = {{std::min(a, b), std::max(a, b)}};
            use.ns = ms(1 + draw(8));
            use.at_ns = u * kMs;
            use.before = {{u, 1, use.ns}, {kUses - 1, 1, ms(draw(20))}};
            if (u == 0 || draw(3) == 0) continue;
            const auto before = static_cast<std::uint32_t>(draw(u));
            use.before.push_back({before, 0, lap.uses[before].ns + ms(draw(10))});
        }
        Play play(lap, fabric, usable);
        std::vector<double> rank{0, 1, 2, 3, 4};
        TimeNs shortest = std::numeric_limits<TimeNs>::max();
        do
            for (const bool first_free : {false, true}) {
                play.play({rank, std::vector<std::uint32_t>(kUses, 1), first_free});
                if (play.whole()) shortest = std::min(shortest, play.lap_ns());
            }
        while (std::next_permutation(rank.begin(), rank.end()));
        const Order order = find_order({lap, usable, 200, 2000}, fabric);
        CAPTURE(laps);
        CHECK(order.lap_ns >= shortest);
        CHECK(order.lap_ns <= shortest / 5 * 6);
        found += order.lap_ns == shortest;
    }
    CHECK(found >= 50);
}

TEST_CASE("the order that is followed stays, unless a lap by another one is shorter by enough") {
    Lap lap;  // rank 1 with 0 and with 2: the first of the lap is to be the first
    lap.uses.resize(2);
    const Pair pairs[] = {{0, 1}, {1, 2}};
    for (std::uint32_t u = 0; u < 2; ++u)
        lap.uses[u].ns = kMs, lap.uses[u].at_ns = u * kMs, lap.uses[u].pairs = {pairs[u]},
        lap.uses[u].before = {{1, 1, 30 * kMs}};
    lap.uses[1].before.push_back({0, 1, kMs});
    const Fabric fabric = fabric_of(10 * kMs);
    const std::vector<bool> usable(fabric.ports.size(), true);
    const Order shortest = find_order({lap, usable, 50}, fabric);
    Order followed = shortest;
    std::swap(followed.place[0], followed.place[1]);
    const TimeNs longer = find_order({lap, usable, 50, 0, followed, 1000 * kMs}, fabric).lap_ns - shortest.lap_ns;
    REQUIRE(longer > kMs);
    CHECK(find_order({lap, usable, 50, 0, followed, longer}, fabric).does_as(shortest));
    const Order stays = find_order({lap, usable, 50, 0, followed, longer + 1}, fabric);
    CHECK(stays.does_as(followed));
    CHECK(stays.lap_ns == shortest.lap_ns + longer);
}

TEST_CASE("of ports that are free almost as soon that is turned whose light is needed last") {
    Lap lap;  // rank 1 with 0, with 2, with 3, and with 0 again
    lap.uses.resize(4);
    const Pair pairs[] = {{0, 1}, {1, 2}, {1, 3}, {0, 1}};
    for (std::uint32_t u = 0; u < 4; ++u) lap.uses[u].at_ns = u * kMs, lap.uses[u].pairs = {pairs[u]};
    lap.uses[0].before = lap.uses[1].before = {{3, 1, 30 * kMs}};
    lap.uses[2].before = {{0, 0, 20 * kMs}, {1, 0, 20 * kMs}};
    lap.uses[3].before = {{2, 0, 30 * kMs}};
    lap.uses[0].ns = 20 * kMs;
    for (const std::uint32_t u : {2, 3}) lap.uses[u].ns = kMs;
    const Fabric fabric = fabric_of(16 * kMs, 2, 4);
    const auto ports_of_1 = [&](TimeNs second_takes) {  // by use; the second is with rank 2
        lap.uses[1].ns = second_takes;
        Play play(lap, fabric, std::vector<bool>(fabric.ports.size(), true));
        play.play({{0, 1, 2, 3}, {1, 1, 1, 1}});
        std::vector<PortId> ports;
        for (std::uint32_t u = 0; u < 4; ++u) {
            const auto [p, q] = play.ports_of(u).at(0);
            ports.push_back(p / 2 == 1 ? p : q);
        }
        return ports;
    };
    const auto late = ports_of_1(20 * kMs + kMs / 2), far_later = ports_of_1(23 * kMs);
    CHECK(late[2] == late[1]);
    CHECK(late[3] == late[0]);
    CHECK(far_later[2] == far_later[0]);
}

TEST_CASE("a launch that goes on into the next lap begins by the ports with which it ends") {
    Lap lap;  // 0, of ranks 1 and 3, goes on with 2 of the next lap; the ring of 3, of ranks 0 to 2, needs all their ports
    lap.uses.resize(4);
    for (std::uint32_t u = 0; u < 4; ++u) lap.uses[u].at_ns = u * kMs, lap.uses[u].before = {{u, 1, kMs}};
    lap.uses[0].ns = 2 * kMs, lap.uses[1].ns = 3 * kMs, lap.uses[2].ns = 5 * kMs, lap.uses[3].ns = 2 * kMs;
    lap.uses[0].pairs = lap.uses[2].pairs = {{1, 3}}, lap.uses[1].pairs = {{1, 2}};
    lap.uses[3].pairs = {{0, 1}, {0, 2}, {1, 2}};
    lap.uses[0].before.push_back({3, 1, kMs});
    lap.uses[2].before.push_back({1, 0, kMs});
    lap.uses[3].before.insert(lap.uses[3].before.end(), {{0, 0, 2 * kMs}, {2, 0, 2 * kMs}});
    lap.uses[0].until = {{2, 1}};
    const Order order = order_of(lap, fabric_of(kMs, 2, 4));
    REQUIRE(order.ports.size() == 4);
    CHECK(order.ports[0] == order.ports[2]);
}

TEST_CASE("others have the light of a launch while it waits, and it has all of it again when it goes on") {
    Lap lap;  // 0 and 1 are of one launch, of ranks 0 and 1; 2 is of ranks 0 and 2
    lap.uses.resize(3);
    for (std::uint32_t u = 0; u < 3; ++u) lap.uses[u].ns = kMs, lap.uses[u].at_ns = u * kMs;
    lap.uses[0].pairs = lap.uses[1].pairs = {{0, 1}}, lap.uses[2].pairs = {{0, 2}};
    lap.uses[0].before = {{1, 1, 2 * kMs}, {2, 1, kMs}};
    lap.uses[1].before = {{0, 0, 9 * kMs}};
    lap.uses[2].before = {{0, 0, 2 * kMs}};
    lap.uses[0].until = {{1, 0}};
    Order order = find_order({lap, std::vector<bool>(3, true), 50}, fabric_of(kMs));
    REQUIRE(order.ports.size() == 3);
    CHECK(order.place == std::vector<std::uint32_t>{0, 2, 1});
    CHECK(order.wait[1] == 0);
    CHECK(order.lap_ns == 11 * kMs);

    // It goes on with rank 3, and is to have its light to rank 1 besides. Others need all ports of rank 0 meanwhile.
    lap.uses[1].pairs = {{0, 3}}, lap.uses[2].pairs = {{0, 2}, {0, 3}};
    order = find_order({lap, std::vector<bool>(8, true), 50}, fabric_of(kMs, 2, 4));
    REQUIRE(order.ports.size() == 3);
    CHECK(order.place == std::vector<std::uint32_t>{0, 2, 1});
    REQUIRE(order.ports[1].size() == 2);
    CHECK(std::ranges::count_if(order.ports[1],
                                [](const auto& ports) { return ports.first / 2 == 0 && ports.second / 2 == 1; }) == 1);
}

TEST_CASE("a job that has done something else is found again after a lap") {
    Job job;
    Lap lap = learned(job, 3, 2);
    const auto before = *lap.find(key_of(kLeft, 9));
    job.log.mark();
    job.lap(1, 0);  // an interlude of one use
    CHECK(!find_again(lap, job.log));
    job.lap(3, 2);
    REQUIRE(find_again(lap, job.log));
    CHECK(lap.find(key_of(kLeft, 10))->first == before.first);  // the ninth was the interlude's
    CHECK(lap.ranks.at(kRanks[0]).fits(job.seq[0], signature_of(OpKind::none, {{key_of(kLeft, 0), false}})));
    job.log.mark();
    job.lap(2, 0);  // and another, from which it is found as well
    job.lap(3, 2);
    REQUIRE(find_again(lap, job.log));
    CHECK(lap.find(key_of(kLeft, job.next[0]))->first == before.first);
    CHECK(lap.find(key_of(kLeft, job.next[0]))->second == 1);
    job.log.mark();
    job.lap(2, 3);
    CHECK(!find_again(lap, job.log));
}

namespace {

// The lap that begins with the next launch of each rank, and the lap before it is over.
Lap from_now(const Lap& lap, const Job& job) {
    Lap left = lap;
    left.advance(lap.ranks.at(kRanks[0]).lap_of(job.seq[0]));
    for (std::uint32_t r = 0; r < 3; ++r) REQUIRE(left.ranks.at(kRanks[r]).seq == job.seq[r]);
    return left;
}

constexpr OpKind kOther = OpKind::broadcast;

}  // namespace

TEST_CASE("what comes between laps is known when it comes again, and the laps behind it go on at once") {
    Job job;
    Lap lap = learned(job, 3, 2);
    const auto evaluate = [&] {  // it begins as a lap does
        job.use(kLeft);
        job.use(kRight, kOther);
        job.use(kRight, kOther);
    };
    const Lap left = from_now(lap, job);
    job.log.mark();
    evaluate();
    job.lap(3, 2);
    job.lap(3, 2);
    REQUIRE(find_again(lap, job.log));
    auto all = Interlude::between(left, lap, job.log);
    REQUIRE(all.size() == 1);
    Interlude& known = all.front();
    CHECK(lap.sequences.at(key_of(kLeft, 0)).first == left.sequences.at(key_of(kLeft, 0)).first + 1);  // both laps are behind it
    CHECK(lap.sequences.at(key_of(kRight, 0)).first == left.sequences.at(key_of(kRight, 0)).first + 2);
    job.lap(3, 2);

    Lap from = from_now(lap, job);
    known.begin_at(from);
    const std::uint64_t begin = job.seq[0], begin_2 = job.seq[2];
    CHECK(known.ranks().size() == 3);
    CHECK(known.fits(kRanks[0], begin - 1, 7));  // of the lap before, whatever it was
    CHECK(known.fits(kRanks[0], begin, signature_of(OpKind::none, {{key_of(kLeft, 0), false}})));
    CHECK(!known.fits(kRanks[0], begin + 1, signature_of(OpKind::none, {{key_of(kLeft, 0), false}})));
    CHECK(!known.fits(kRanks[2], begin_2, signature_of(OpKind::none, {{key_of(kRight, 0), false}})));
    CHECK(known.fits(kRanks[2], begin_2 + 1, signature_of(kOther, {{key_of(kRight, 0), false}})));
    CHECK(!known.ends_with(kRanks[2], begin_2));
    CHECK(known.ends_with(kRanks[2], begin_2 + 1));
    known.skip(from);
    const auto first = *lap.find(key_of(kLeft, lap.sequences.at(key_of(kLeft, 0)).first));
    evaluate();
    CHECK(from.find(key_of(kLeft, job.next[0]))->first == first.first);
    CHECK(from.find(key_of(kLeft, job.next[0]))->second == 0);
    CHECK(from.ranks.at(kRanks[1]).seq == job.seq[1]);

    // The same again is the same, and something else is not.
    const auto again = [&](const std::function<void()>& between) {
        const Lap before = from_now(lap, job);
        job.log.mark();
        between();
        job.lap(3, 2);
        REQUIRE(find_again(lap, job.log));
        auto found = Interlude::between(before, lap, job.log);
        REQUIRE(found.size() == 1);
        return std::move(found.front());
    };
    lap = from;
    job.lap(3, 2);
    CHECK(again(evaluate).does_as(known));
    CHECK(!again([&] { job.use(kRight, kOther); }).does_as(known));
}

TEST_CASE("between two interludes there may be laps") {
    for (const int laps : {0, 1, 3}) {
        CAPTURE(laps);
        Job job;
        Lap lap = learned(job, 3, 2);
        Lap left = from_now(lap, job);
        left.advance(-1);  // one more: it is no part of it
        job.log.mark();
        job.use(kRight, kOther);
        for (int i = 0; i < laps; ++i) job.lap(3, 2);
        job.use(kLeft, kOther);
        job.use(kLeft, kOther);
        const std::uint64_t seq = job.seq[0];
        for (int i = 0; i < 2; ++i) job.lap(3, 2);
        REQUIRE(find_again(lap, job.log));
        const auto all = Interlude::between(left, lap, job.log);
        CHECK(lap.ranks.at(kRanks[0]).seq == seq);
        REQUIRE(all.size() == (laps == 0 ? 1 : 2));
        CHECK(all.front().ranks().size() == (laps == 0 ? 3 : 2));
        if (laps != 0) CHECK(all.back().ranks() == std::vector<RankName>{kRanks[0], kRanks[1]});
    }
}

TEST_CASE("an operation that some ranks come to before a lap and others behind it is in two interludes") {
    Job job;
    Lap lap = learned(job, 3, 2);
    const Lap left = from_now(lap, job);
    job.log.mark();
    const auto everyone = [&](std::uint32_t rank) {
        job.log.add(
            kRanks[rank],
            {kOther, {{{CommId{9, 9}, KeyKind::coll, 0, 0, 0}, false}}, job.seq[rank]++, job.grant, job.now, job.now, job.now + kMs});
    };
    everyone(0);
    everyone(1);
    job.lap(3, 2);
    everyone(2);
    const std::uint64_t seq = job.seq[0];
    for (int i = 0; i < 2; ++i) job.lap(3, 2);
    REQUIRE(find_again(lap, job.log));
    const auto all = Interlude::between(left, lap, job.log);
    REQUIRE(all.size() == 2);
    CHECK(lap.ranks.at(kRanks[0]).seq == seq);
    CHECK(all[0].ranks() == std::vector{kRanks[0], kRanks[1]});
    CHECK(all[1].ranks() == std::vector{kRanks[2]});
}

TEST_CASE("an interlude whose begin is not in the log any more is not known") {
    Job job;
    Lap lap = learned(job, 3, 2);
    Lap left = from_now(lap, job);
    Log log;  // of what comes now
    std::swap(log, job.log);
    job.use(kRight, kOther);
    job.lap(3, 2);
    REQUIRE(find_again(lap, job.log));
    left.advance(-1);
    CHECK(Interlude::between(left, lap, job.log).empty());
}

TEST_CASE("where some ranks have begun the next lap and others have not, all are numbered by the same lap") {
    Job job;
    Lap lap = learned(job, 3, 2);
    job.log.mark();
    job.use(kRight, kOther);
    job.lap(3, 2);
    job.use(kLeft);  // of the first two ranks
    REQUIRE(find_again(lap, job.log));
    lap.advance(-1);  // the one that all have done
    for (const std::uint32_t r : {0u, 2u}) {
        const auto& seen = job.log.ranks().at(kRanks[r]);
        const auto first = std::ranges::find(seen, lap.ranks.at(kRanks[r]).seq, &Seen::seq);
        REQUIRE(first != seen.end());
        CHECK(first->keys.front().key.n == lap.sequences.at(sequence_of(first->keys.front().key)).first);
    }
}

TEST_CASE("a launch that was posted early and is not over hides no lap") {
    Job job;
    for (int i = 0; i < 4; ++i) job.use(kLeft), job.use(kLeft, kOther), job.use(kRight), job.use(kRight, kOther);
    Log log;
    for (const auto& [name, seen] : job.log.ranks())
        for (const Seen& s : seen)
            if (name != kRanks[1] || s.seq != job.seq[1] - 3) log.add(name, s);  // the second of the last lap is open
    const auto lap = find_lap(log, pairs_of);
    REQUIRE(lap);
    CHECK(lap->uses.size() == 4);
}

TEST_CASE("a lap is a part of another one where all that its ranks do is done there, too") {
    Job shorter, longer, other;
    const Lap part = learned(shorter, 2, 1), whole = learned(longer, 3, 2);
    CHECK(part.is_part_of(whole));
    CHECK(!whole.is_part_of(part));
    CHECK(!whole.is_part_of(whole));
    std::optional<Lap> found;
    for (int i = 0; i < 3; ++i) other.use(kLeft, kOther), other.use(kRight, kOther);
    found = find_lap(other.log, pairs_of);
    REQUIRE(found);
    CHECK(!found->is_part_of(whole));
}

TEST_CASE("each lap is timed once, when its ranks have done it, and who is silent is not waited for") {
    Job job;
    const Lap lap = learned(job, 2, 1);
    Watch watch(lap);
    for (const auto& [name, seen] : job.log.ranks())
        for (const Seen& s : seen) watch.ended(name, s.seq, s.done_ns);
    CHECK(watch.unbegun() == 2);  // counted from the last but one; there is one before it
    const TimeNs usual = 3 * 2 * kMs + 10 * kMs;
    const auto took = [&](std::int64_t lap, TimeNs ns) {
        const auto next = watch.next();
        REQUIRE(next);
        CHECK(next->lap == lap);
        CHECK(next->ns == ns);
    };
    took(0, usual);
    took(1, usual);
    CHECK(!watch.next());
    std::uint64_t before[3] = {};
    const auto next_lap = [&](TimeNs more, bool all) {
        std::copy(std::begin(job.seq), std::end(job.seq), before);
        job.now += more;
        job.lap(2, 1);
        for (std::uint32_t r = 0; r < 3; ++r)
            for (const Seen& s : job.log.ranks().at(kRanks[r]))
                if (s.seq >= before[r] && (all || r != 2)) watch.ended(kRanks[r], s.seq, s.done_ns);
    };
    next_lap(5 * kMs, true);
    took(2, usual + 5 * kMs);
    CHECK(!watch.next());
    for (int i = 0; i < 3; ++i) next_lap(0, false);  // of the third rank nothing is told any more
    took(3, usual);
    CHECK(!watch.next());  // it may yet be told of the fourth
    for (const Seen& s : job.log.ranks().at(kRanks[2])) watch.ended(kRanks[2], s.seq, s.done_ns);  // what it has done meanwhile
    took(4, usual);
    took(5, usual);
    CHECK(!watch.next());
}

TEST_CASE("a lap is timed from where what was before it had ended, though some of it ends in the next one") {
    Job job;
    Lap lap = learned(job, 2, 1);
    std::erase_if(lap.ranks, [](const auto& rank) { return rank.first != kRanks[0]; });
    Watch watch(lap);
    const auto ended = [&](std::uint64_t of_lap, std::uint64_t launch, TimeNs done_ns) {
        const RankLap& rank = lap.ranks.at(kRanks[0]);
        watch.ended(kRanks[0], rank.seq + of_lap * rank.seqs + launch, done_ns);
    };
    const auto took = [&](std::int64_t of_lap, TimeNs ns) {
        const auto next = watch.next();
        REQUIRE(next);
        CHECK(next->lap == of_lap);
        CHECK(next->ns == ns);
    };
    watch.ended(kRanks[0], lap.ranks.at(kRanks[0]).seq - 1, 10 * kMs);  // something else
    ended(0, 0, 50 * kMs);
    CHECK(!watch.next());
    ended(1, 0, 80 * kMs);
    CHECK(!watch.next());
    ended(0, 1, 90 * kMs);
    took(0, 80 * kMs);
    ended(1, 1, 120 * kMs);
    took(1, 30 * kMs);
    ended(2, 0, 150 * kMs);  // its other launch is not told of
    ended(3, 0, 180 * kMs);
    ended(3, 1, 190 * kMs);
    ended(4, 0, 200 * kMs);
    CHECK(!watch.next());
    ended(4, 1, 260 * kMs);
    took(4, 70 * kMs);
    CHECK(!watch.next());
}

TEST_CASE("an order has light made while nobody uses the port, and says how long each use waits") {
    Job job;
    Lap lap = learned(job, 3, 2);
    const Fabric quick = fabric_of(kMs / 2), slow = fabric_of(5 * kMs);
    const Order hidden = order_of(lap, quick), shown = order_of(lap, slow);
    REQUIRE(hidden.ports.size() == lap.uses.size());
    CHECK(*std::max_element(hidden.wait.begin(), hidden.wait.end()) == 0);
    // Between the left ones and the right ones there is a millisecond; from lap to lap eleven.
    CHECK(*std::max_element(shown.wait.begin(), shown.wait.end()) == 4 * kMs);
    CHECK(shown.lap_ns == hidden.lap_ns + 4 * kMs);
    CHECK(std::set<std::uint32_t>(shown.place.begin(), shown.place.end()).size() == shown.place.size());
    std::vector<bool> fenced(slow.ports.size(), true);
    fenced[1] = false;
    CHECK(find_order({lap, fenced, 10}, slow).ports.empty());
}

TEST_CASE("ports come to their turns together, and turn for the next use when the one before has begun") {
    Job job;
    Lap lap = learned(job, 2, 1);
    const Order order = order_of(lap, fabric_of(kMs));
    REQUIRE(!order.ports.empty());
    Course course(lap, order, [&](const Key& sequence) { return job.next[sequence.comm == kLeft ? 0 : 1]; });
    CHECK(course.next(1)->peer == 0);  // two of the left
    CHECK(course.next(0)->instance == course.next(1)->instance);
    CHECK(course.next(2)->instance != course.next(1)->instance);
    CHECK(course.share_port(course.next(0)->instance, course.next(2)->instance));  // port 1
    course.serve(1);
    course.serve(1);
    CHECK(course.kept_for(0) == 2);
    CHECK(course.next(1)->peer == 2);
    CHECK(course.next(2)->instance == course.next(1)->instance);
    course.begin(key_of(kLeft, job.next[0]));
    CHECK(course.kept_for(1) == 1);
    CHECK(course.kept_for(0) == 1);

    // Its light goes to others: the second of the left comes again.
    course.lose(1);
    course.lose(0);
    CHECK(course.kept_for(1) == 0);
    CHECK(course.next(1)->peer == 0);
    // The second begins before the first, and then the light is lost.
    Course other(lap, order, [&](const Key& sequence) { return job.next[sequence.comm == kLeft ? 0 : 1]; });
    other.serve(1);
    other.serve(1);
    other.begin(key_of(kLeft, job.next[0] + 1));  // and with it the first: keys of a sequence begin in their order
    CHECK(other.kept_for(1) == 0);
    other.lose(1);
    CHECK(other.next(1)->peer == 2);

    // It begins all the same, without a turn.
    course.begin(key_of(kLeft, job.next[0] + 1));
    CHECK(course.next(1)->peer == 2);
    // What has begun has; what is to come has not.
    CHECK(course.has_begun(*course.find(key_of(kLeft, job.next[0]))));
    CHECK(!course.has_begun(*course.find(key_of(kRight, job.next[1]))));
}

TEST_CASE("a plan says which pair has a port when, with what slack, and which uses began without its light") {
    Job job;
    Lap lap = learned(job, 2, 1);
    const Order order = order_of(lap, fabric_of(kMs / 2));
    REQUIRE(!order.ports.empty());
    Course course(lap, order, [&](const Key& sequence) { return job.next[sequence.comm == kLeft ? 0 : 1]; });
    auto plan = course.plan_of(1, kMs / 2);
    REQUIRE(plan.size() == 3);
    CHECK(plan[0].peer == 0);
    CHECK(plan[0].moves);
    CHECK(plan[0].begin_ns == 0);
    CHECK(plan[0].key.comm == kLeft);
    CHECK(!plan[1].moves);
    CHECK(plan[2].peer == 2);
    CHECK(plan[2].moves);
    CHECK(plan[2].begin_ns == 4 * kMs);
    CHECK(plan[2].lasts_ns == kMs);
    CHECK(plan[2].slack_ns == kMs / 2);  // a millisecond after the second of the left, of which half is dark
    CHECK(course.next_turn(1) == 0);

    course.serve(1);
    CHECK(course.next_turn(1) == 1);
    course.begin(key_of(kLeft, job.next[0]));
    course.begin(key_of(kLeft, job.next[0] + 1));  // nobody has turned a port for it
    plan = course.plan_of(1, kMs / 2);
    CHECK(plan[0].left == 0);
    CHECK(plan[1].left == 1);
    CHECK(plan[1].left_last);
    CHECK(plan[2].left == 0);
    course.serve(1);
    course.begin(key_of(kRight, job.next[1]));
    course.serve(1);
    course.serve(1);
    course.begin(key_of(kLeft, job.next[0] + 3));
    plan = course.plan_of(1, kMs / 2);
    CHECK(plan[1].left == 1);
    CHECK(!plan[1].left_last);
    CHECK(plan[2].left == 0);
    const auto other_end = course.plan_of(0, kMs / 2);  // its peer is always the same, and turns away from it
    REQUIRE(other_end.size() == 2);
    CHECK(other_end[0].moves);
    CHECK(!other_end[1].moves);
    CHECK(course.plan_of(9, kMs).empty());  // no port of it
}

TEST_CASE("what has the same light may follow unasked, up to the next turn, or a launch that goes on elsewhere") {
    Job job;
    Lap lap = learned(job, 3, 1);
    const Order order = order_of(lap, fabric_of(kMs));
    REQUIRE(!order.ports.empty());
    const auto reached = [&](const Key& sequence) { return job.next[sequence.comm == kLeft ? 0 : 1]; };
    const std::vector<PortId> ports = {0, 1};
    Course course(lap, order, reached);
    CHECK(course.kept_keys(ports, kAnyhow).empty());
    for (int i = 0; i < 3; ++i) course.serve(1);
    course.begin(key_of(kLeft, job.next[0]));
    auto keys = course.kept_keys(ports, kAnyhow);
    REQUIRE(keys.size() == 1);
    CHECK(keys.begin()->first == key_of(kLeft, 0));
    CHECK(keys.begin()->second.begin == job.next[0] + 1);
    CHECK(keys.begin()->second.end == job.next[0] + 3);
    CHECK(!keys.begin()->second.mesh);
    // The other end has lost its light: nothing is kept by both.
    course.lose(0);
    CHECK(course.kept_keys(ports, kAnyhow).empty());

    // The members of the second of the three are ready one after the other.
    const auto second = lap.find(key_of(kLeft, job.next[0] + 1));
    lap.uses[second->first].apart_ns = 2 * kMs;
    for (const TimeNs most : {kMs, 2 * kMs}) {
        Course apart(lap, order, reached);
        for (int i = 0; i < 3; ++i) apart.serve(1);
        apart.begin(key_of(kLeft, job.next[0]));
        CHECK(apart.kept_keys(ports, most).empty() == (most == kMs));
    }

    // It is a launch that goes on with another use.
    const auto right = lap.find(key_of(kRight, job.next[1]));
    lap.uses[second->first].until.push_back({right->first, 0});
    Course other(lap, order, reached);
    for (int i = 0; i < 3; ++i) other.serve(1);
    other.begin(key_of(kLeft, job.next[0]));
    CHECK(other.kept_keys(ports, kAnyhow).empty());
}

TEST_CASE("nothing follows unasked beyond the next turn of a port whose light is to be used unasked, too") {
    Lap lap;  // ranks 0 to 2 twice, ranks 1 and 2 twice, and rank 0 with rank 3
    lap.uses.resize(5);
    lap.uses[0].pairs = lap.uses[1].pairs = {{0, 1}, {0, 2}, {1, 2}};
    lap.uses[2].pairs = lap.uses[3].pairs = {{1, 2}};
    lap.uses[4].pairs = {{0, 3}};
    constexpr CommId kRing{3, 0};
    lap.sequences[key_of(kRing, 0)].uses = {0, 1};
    lap.sequences[key_of(kRight, 0)].uses = {2, 3};
    lap.sequences[key_of(kLeft, 0)].uses = {4};
    const std::vector<std::pair<PortId, PortId>> ring = {{0, 2}, {1, 4}, {3, 5}};
    const Order order{{0, 2, 1, 3, 4}, {ring, ring, {{3, 5}}, {{3, 5}}, {{1, 6}}}, std::vector<TimeNs>(5, 0)};
    Course course(lap, order, [](const Key&) { return 0; });
    for (const auto& [p, q] : ring) course.serve(p), course.serve(p);
    for (int i = 0; i < 2; ++i) course.serve(3);  // between the two of the ring, and behind them
    course.begin(key_of(kRing, 0));
    const std::vector<PortId> ports = {0, 1, 2, 3, 4, 5};
    auto keys = course.kept_keys(ports, kAnyhow);
    REQUIRE(keys.size() == 2);
    CHECK(keys.at(key_of(kRing, 0)).end == 2);
    CHECK(keys.at(key_of(kRight, 0)).end == 1);  // port 1 turns before the second of them
    course.begin(key_of(kRight, 0));
    course.begin(key_of(kRing, 1));
    keys = course.kept_keys(ports, kAnyhow);  // port 1 is nothing to who is told now
    REQUIRE(keys.size() == 1);
    CHECK(keys.at(key_of(kRight, 0)).begin == 1);
    CHECK(keys.at(key_of(kRight, 0)).end == 2);
}

TEST_CASE(
    "nothing follows unasked beyond the turn of a second circuit of its pair, though that circuit is kept for "
    "nothing") {
    Lap lap;  // ranks 0 and 1 by one circuit, and then twice by another; between the two the first one turns
    lap.uses.resize(4);
    lap.uses[0].pairs = lap.uses[1].pairs = lap.uses[3].pairs = {{0, 1}};
    lap.uses[2].pairs = {{0, 2}};
    lap.sequences[key_of(kLeft, 0)].uses = {0, 1, 3};
    lap.sequences[key_of(kRight, 0)].uses = {2};
    const Order order{{0, 1, 2, 3}, {{{0, 2}}, {{1, 3}}, {{0, 4}}, {{1, 3}}}, std::vector<TimeNs>(4, 0)};
    Course course(lap, order, [](const Key&) { return 0; });
    for (const PortId p : {0, 1, 1}) course.serve(p);
    course.begin(key_of(kLeft, 0));
    auto keys = course.kept_keys({0, 1, 2, 3}, kAnyhow);
    REQUIRE(keys.size() == 1);
    CHECK(keys.at(key_of(kLeft, 0)).begin == 1);
    CHECK(keys.at(key_of(kLeft, 0)).end == 2);
    CHECK(course.kept_keys({1, 3}, kAnyhow).at(key_of(kLeft, 0)).end == 3);  // that circuit alone
}

TEST_CASE("a course may be lost and found for many laps without growing") {
    Job job;
    Lap lap = learned(job, 2, 1);
    Course course(lap, order_of(lap, fabric_of(kMs)),
                  [&](const Key& sequence) { return job.next[sequence.comm == kLeft ? 0 : 1]; });
    std::uint64_t left = job.next[0], right = job.next[1];
    for (int laps = 0; laps < 1000; ++laps) {
        for (int i = 0; i < 2; ++i) {
            if (laps % 3 != 0) course.serve(1);
            if (laps % 5 == 0) course.lose(1), course.lose(0);
            course.begin(key_of(kLeft, left++));
        }
        if (laps % 2 != 0) course.serve(2);
        course.begin(key_of(kRight, right++));
        CHECK(course.kept_for(1) == 0);
    }
    CHECK(course.begun() == 3000);
}
