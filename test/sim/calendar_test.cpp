// The queue of all that plays in virtual time (tools/virtual_time).
#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <vector>

#include "tools/virtual_time/calendar.h"

using opus::virtual_time::Calendar;

TEST_CASE("what is entered comes in the order of its time, at one time in the order in which it was entered") {
    std::mt19937 random(1);
    Calendar<int> calendar;
    std::vector<int> last(20, -1);  // by time
    std::int64_t now = 0;
    for (int i = 0, left = 0; i < 20'000; ++i) {
        if (left == 0 || (i < 10'000 && random() % 3 != 0)) {
            calendar.add(std::max<std::int64_t>(now, random() % 20), i);
            ++left;
            continue;
        }
        const auto next = calendar.take();
        --left;
        REQUIRE(next.at_ns >= now);
        now = next.at_ns;
        CHECK(last[static_cast<std::size_t>(now)] < next.what);
        last[static_cast<std::size_t>(now)] = next.what;
        if (calendar.empty()) now = 0, last.assign(20, -1);
    }
}

TEST_CASE("what is due is what comes next, up to and at a time") {
    Calendar<std::unique_ptr<int>> calendar;
    CHECK_FALSE(calendar.is_due(1'000));
    calendar.add(7, std::make_unique<int>(70));
    calendar.add(5, std::make_unique<int>(50));
    CHECK(calendar.next_ns() == 5);
    CHECK_FALSE(calendar.is_due(4));
    CHECK(calendar.is_due(5));
    CHECK(*calendar.take().what == 50);
    CHECK_FALSE(calendar.is_due(6));
    CHECK(*calendar.take().what == 70);
    CHECK(calendar.empty());
}
