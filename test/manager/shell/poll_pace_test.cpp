// The pace of polling, in virtual time.
#include "manager/shell/poll_pace.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <initializer_list>
#include <random>
#include <vector>

using namespace opus;
using namespace opus::manager;

namespace {

constexpr TimeNs kUs = 1'000, kSecond = 1'000'000'000;

struct Course {
    double share = 0;       // of a core
    TimeNs mean_delay = 0;  // from an event to the look that finds it (its median, where words repeat)
};

// An event every half to one and a half `gap`, for two seconds; each look costs `cost` of CPU.
Course run(TimeNs cost, TimeNs gap) {
    PollPace pace;
    std::mt19937 random(1);
    TimeNs now = 0, last_event = 0, next_event = gap, cpu = 0, delays = 0, events = 0;
    while (now < 2 * kSecond) {
        const TimeNs passed = pace.interval(now - last_event) + cost;
        now += passed;
        cpu += cost;
        pace.looked(passed, passed);
        pace.measured(cost);
        if (now < next_event) continue;
        delays += now - next_event;
        ++events;
        last_event = now;
        next_event = now + gap / 2 + static_cast<TimeNs>(random()) % gap;
    }
    return {double(cpu) / double(now), events == 0 ? 0 : delays / events};
}

// Words of one kind, `gap` after each other, give or take `stray` of it. A sleep costs 8 us and ends `late`.
Course repeat(TimeNs gap, double stray, TimeNs late) {
    constexpr TimeNs kSleepCost = 8 * kUs, kLookCost = 2 * kUs;
    PollPace pace;
    Arrivals arrivals;
    std::mt19937 random(1);
    const auto next = [&](TimeNs from) {
        const double factor = 1 + stray * (2 * std::uniform_real_distribution<>()(random) - 1);
        return from + TimeNs(double(gap) * factor);
    };
    TimeNs now = 0, cause = 0, comes = next(0), cpu = 0, last_look = 0, counted_from = 0;
    std::vector<TimeNs> delays;
    while (now < 4 * kSecond) {
        PollHint hint;
        hint.add(cause, arrivals.window(7), now);
        const TimeNs sleep = pace.interval(hint, now);
        const TimeNs passed = sleep == 0 ? kLookCost : sleep + late + kLookCost;
        if (sleep != 0) pace.overslept(late);
        if (sleep != 0) pace.measured(kSleepCost);
        pace.looked(passed, sleep);
        now += passed;
        cpu += sleep == 0 ? kLookCost : kSleepCost;
        if (now >= comes) {
            arrivals.came(7, now - cause, now - last_look);
            delays.push_back(now - comes);
            cause = now;
            comes = next(now);
        }
        last_look = now;
        if (counted_from == 0 && now > kSecond) counted_from = now, cpu = 0, delays.clear();
    }
    REQUIRE(!delays.empty());
    std::sort(delays.begin(), delays.end());
    return {double(cpu) / double(now - counted_from), delays[delays.size() / 2]};
}

}  // namespace

TEST_CASE("what repeats is found within 20 us, for a twentieth of a core") {
    for (const TimeNs gap : {2'000 * kUs, 10'000 * kUs, 63'500 * kUs})
        for (const double stray : {0.0, 0.005, 0.01})
            for (const TimeNs late : {3 * kUs, 45 * kUs}) {
                CAPTURE(gap);
                CAPTURE(stray);
                CAPTURE(late);
                const Course course = repeat(gap, stray, late);
                CHECK(course.mean_delay <= 20 * kUs);
                CHECK(course.share < 0.06);
            }
}

TEST_CASE("a word that comes much earlier than it used to is found within milliseconds, and then expected earlier") {
    Arrivals arrivals;
    PollPace pace;
    for (int i = 0; i < 50; ++i) arrivals.came(7, 60'000 * kUs, 2 * kUs);
    const TimeNs usual = arrivals.window(7).from;
    CHECK(usual > 55'000 * kUs);
    PollHint hint;
    hint.add(0, arrivals.window(7), 1'000 * kUs);
    CHECK(pace.interval(hint, 1'000 * kUs) <= 4'000 * kUs);
    for (int i = 0; i < 8; ++i) arrivals.came(7, 20'000 * kUs, 4'000 * kUs);
    CHECK(arrivals.window(7).from < 20'000 * kUs);
}

TEST_CASE("kinds that were never seen are looked for from the start") {
    const Arrivals arrivals;
    CHECK(arrivals.window(7).from == 0);
    CHECK(arrivals.window(7).to == 0);
}

TEST_CASE("polling takes no more than a twentieth of a core where a look costs what it should") {
    for (const TimeNs gap : {1'000 * kUs, 3'000 * kUs, 10'000 * kUs, 100'000 * kUs, 10 * kSecond}) {
        CAPTURE(gap);
        CHECK(run(2 * kUs, gap).share < 0.065);
    }
}

TEST_CASE("while nothing comes, polling takes no more than a twentieth of a core, whatever a look costs") {
    for (const TimeNs cost : {kUs, 4 * kUs, 8 * kUs, 20 * kUs}) {
        for (const TimeNs gap : {300'000 * kUs, 10 * kSecond}) {
            CAPTURE(cost);
            CAPTURE(gap);
            CHECK(run(cost, gap).share < 0.056);
        }
    }
}

TEST_CASE("what comes within milliseconds is found within 40 us, whatever a look costs") {
    for (const TimeNs cost : {2 * kUs, 8 * kUs})
        for (const TimeNs gap : {100 * kUs, 300 * kUs, 1'000 * kUs, 2'000 * kUs}) {
            CAPTURE(cost);
            CAPTURE(gap);
            CHECK(run(cost, gap).mean_delay <= 40 * kUs);
        }
}

TEST_CASE("the pace is never slower than 500 us and never faster than 10 us") {
    PollPace pace;
    CHECK(pace.interval(0) == 10 * kUs);
    CHECK(pace.interval(100 * kSecond) == 500 * kUs);
    for (int i = 0; i < 1'000; ++i) {
        pace.measured(kSecond);
        pace.looked(0, 1);
    }
    CHECK(pace.interval(0) <= 500 * kUs);
}

TEST_CASE("where looks wait for a core, the others get it") {
    constexpr TimeNs kMs = 1'000 * kUs;
    PollHint due;
    due.add(kMs, {1, 2 * kMs}, 2 * kMs);  // watched for
    PollPace calm, crowded;
    for (int i = 0; i < 40; ++i) {
        calm.waited(kMs, 0);
        crowded.waited(kMs, kMs);
    }
    CHECK(calm.interval(due, 2 * kMs) == 0);
    CHECK(crowded.interval(due, 2 * kMs) > 0);
    for (const TimeNs quiet : {10 * kUs, 500 * kUs, 5 * kMs, 50 * kMs}) {
        CHECK(calm.interval(quiet) == PollPace().interval(quiet));
        CHECK(crowded.interval(quiet) >= std::min(4 * calm.interval(quiet), kMs));
        CHECK(crowded.interval(quiet) <= kMs);
    }
    for (int i = 0; i < 200; ++i) crowded.waited(kMs, 0);
    CHECK(crowded.interval(due, 2 * kMs) == 0);
}

TEST_CASE(
    "what nobody waits for is looked at seldom, and records ring meanwhile; the next of a flurry is not to ring") {
    constexpr TimeNs kMs = 1'000 * kUs;
    PollPace pace, crowded;
    for (int i = 0; i < 40; ++i) crowded.waited(kMs, kMs);
    PollHint hint;
    hint.any = hint.unawaited = true;
    hint.quiet = 10 * kUs;
    CHECK(pace.interval(hint, kMs) < 100 * kUs);
    CHECK(crowded.interval(hint, kMs) >= 4 * kMs);
    hint.quiet = kMs;
    CHECK(pace.interval(hint, kMs) == kMs);
    hint.add(500 * kUs, {}, kMs);  // and another is awaited
    CHECK(pace.interval(hint, kMs) == pace.interval(500 * kUs));
}

TEST_CASE("what goes without us and holds back nobody is looked at every 16 ms, unless something else is due") {
    constexpr TimeNs kMs = 1'000 * kUs;
    const PollPace pace;
    PollHint hint;
    hint.any = hint.unawaited = hint.rests = true;
    hint.quiet = 10 * kUs;
    CHECK(pace.interval(hint, kMs) == 16 * kMs);
    PollHint later = hint;
    later.next = 3 * kMs;
    CHECK(pace.interval(later, kMs) == 2 * kMs);
    later.next = 10 * kMs;
    CHECK(pace.interval(later, kMs) == 4 * kMs);
    hint.add(500 * kUs, {}, kMs);  // another is awaited
    CHECK(pace.interval(hint, kMs) == pace.interval(500 * kUs));
}
