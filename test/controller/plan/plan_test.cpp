// Laps that are learned, orders that are found for them, and jobs on their way through.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "controller/plan/course.h"
#include "controller/plan/lap.h"
#include "controller/plan/search.h"
#include "controller/plan/watch.h"

using namespace opus;
using namespace opus::controller::plan;

namespace {

constexpr TimeNs kMs = 1'000'000;
constexpr CommId kLeft{1, 0}, kRight{2, 0};  // of ranks 0 and 1, of 1 and 2
constexpr RankName kRanks[] = {{0, 0}, {1, 0}, {2, 0}};

// Three nodes of one GPU, one port each, one switch.
Fabric fabric_of(TimeNs dark_ns) {
    Fabric f;
    Switch sw;
    sw.name = "ocs";
    sw.ingress = 3;
    sw.dark_ns = dark_ns;
    f.switches.push_back(sw);
    f.rails.push_back({"r0", {0}, {0, 1, 2}});
    for (std::uint32_t n = 0; n < 3; ++n) {
        f.nodes.push_back({"n" + std::to_string(n), {n}});
        f.gpus.push_back({"n" + std::to_string(n) + ".g0", n, 0, 0, {}, {}, {n}});
        f.ports.push_back({f.gpus[n].name + ".p0", n, 0, 0, n + 1});
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

    void use(const CommId& comm) {
        const bool left = comm == kLeft;
        for (const std::uint32_t r : left ? std::vector<std::uint32_t>{0, 1} : std::vector<std::uint32_t>{1, 2})
            log.add(kRanks[r], {{{key_of(comm, next[left ? 0 : 1]), false}}, seq[r]++, grant, now, now, now + kMs});
        ++next[left ? 0 : 1];
        ++grant;
        now += 2 * kMs;
    }
    void lap(int left, int right) {
        for (int i = 0; i < left; ++i) use(kLeft);
        for (int i = 0; i < right; ++i) use(kRight);
        now += 10 * kMs;
    }
};

// What is known of a job after three laps.
Lap learned(Job& job, int left, int right) {
    for (int i = 0; i < 3; ++i) job.lap(left, right);
    auto lap = find_lap(job.log, pairs_of);
    REQUIRE(lap);
    REQUIRE(time_lap(*lap, job.log));
    return *lap;
}

Order order_of(const Lap& lap, const Fabric& fabric, std::uint32_t trials = 50) {
    return find_order({lap, std::vector<bool>(fabric.ports.size(), true), trials}, fabric);
}

}  // namespace

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
    Seen early{{{key_of(kRight, 3), false}}, job.seq[1]++, job.grant, job.now, job.now, job.now + kMs};
    job.log.add(kRanks[1], early);
    early.seq = job.seq[2]++;
    job.log.add(kRanks[2], early);
    for (const std::uint32_t r : {0u, 1u})
        job.log.add(kRanks[r], {{{key_of(kLeft, 3), false}}, job.seq[r]++, job.grant + 1, job.now, job.now, job.now + kMs});
    REQUIRE(time_lap(lap, job.log));
    CHECK(waits(right, left, 0) == -1);
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
    CHECK(lap.ranks.at(kRanks[0]).fits(job.seq[0], signature_of({{key_of(kLeft, 0), false}})));
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

TEST_CASE("each lap is timed once, by where its ranks were in the one before, whoever else is silent") {
    Job job;
    const Lap lap = learned(job, 2, 1);
    Watch watch(lap);
    for (const auto& [name, seen] : job.log.ranks())
        for (const Seen& s : seen) watch.ended(name, s.seq, s.done_ns);
    CHECK(watch.unbegun() == 2);  // counted from the last but one; there is one before it
    const TimeNs usual = 3 * 2 * kMs + 10 * kMs;
    auto took = watch.next();
    REQUIRE(took);
    CHECK(took->lap == 0);
    CHECK(took->ns == usual);
    CHECK(!watch.next());  // the last is not known to be over
    std::uint64_t before[3] = {};
    const auto next_lap = [&](TimeNs more, bool all) {
        std::copy(std::begin(job.seq), std::end(job.seq), before);
        job.now += more;
        job.lap(2, 1);
        for (std::uint32_t r = 0; r < 3; ++r)
            for (const Seen& s : job.log.ranks().at(kRanks[r]))
                if (s.seq >= before[r] && (all || r != 2)) watch.ended(kRanks[r], s.seq, s.done_ns);
    };
    next_lap(0, true);
    took = watch.next();
    REQUIRE(took);
    CHECK(took->lap == 1);
    CHECK(took->ns == usual);
    CHECK(!watch.next());
    next_lap(5 * kMs, true);
    CHECK(watch.since_lap_before() == usual + 5 * kMs);
    took = watch.next();
    REQUIRE(took);
    CHECK(took->ns == usual);
    for (int i = 0; i < 3; ++i) next_lap(0, false);  // of the third rank nothing is told any more
    took = watch.next();
    REQUIRE(took);
    CHECK(took->lap == 3);
    CHECK(took->ns == usual + 5 * kMs);
    took = watch.next();
    REQUIRE(took);
    CHECK(took->ns == usual);
    for (const Seen& s : job.log.ranks().at(kRanks[2])) watch.ended(kRanks[2], s.seq, s.done_ns);  // what it has done meanwhile
    took = watch.next();
    REQUIRE(took);
    CHECK(took->lap == 5);
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
