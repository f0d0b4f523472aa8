// The pace of polling, in virtual time.
#include "manager/shell/poll_pace.h"

#include <doctest/doctest.h>

#include <initializer_list>
#include <random>

using namespace opus;
using namespace opus::manager;

namespace {

constexpr TimeNs kUs = 1'000, kSecond = 1'000'000'000;

struct Course {
    double share = 0;       // of a core
    TimeNs mean_delay = 0;  // from an event to the look that finds it
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
        pace.looked(passed);
        pace.measured(cost);
        if (now < next_event) continue;
        delays += now - next_event;
        ++events;
        last_event = now;
        next_event = now + gap / 2 + static_cast<TimeNs>(random()) % gap;
    }
    return {double(cpu) / double(now), events == 0 ? 0 : delays / events};
}

}  // namespace

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
        pace.looked(0);
    }
    CHECK(pace.interval(0) <= 500 * kUs);
}
