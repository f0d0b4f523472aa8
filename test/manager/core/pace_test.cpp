// How long a rank takes for its laps, against how long they took on demand.
#include "manager/core/pace.h"

#include <doctest/doctest.h>

#include <string>

using namespace opus;
using opus::manager::Pace;

namespace {

// A rank that does one launch after the other. Each letter is one; it takes ten times as many milliseconds as `length` says.
struct Player {
    Pace pace;
    std::uint64_t seq = 0;
    TimeNs now = 1'000'000'000;
    int ready = 0, lost = 0, longer = 0, excesses = 0;
    std::vector<double> laps;  // took, of what they should

    void play(const std::string& launches, double length = 1) {
        for (const char c : launches) {
            pace.recorded(seq, std::uint64_t(c));
            now += TimeNs(length * 1e7);
            pace.ended(seq++, now);
            listen();
        }
    }
    void listen() {
        const auto news = pace.news();
        if (!news) return;
        switch (news->kind) {
            case Pace::Kind::ready: ++ready; break;
            case Pace::Kind::lost: ++lost; break;
            case Pace::Kind::longer: ++longer; break;
            case Pace::Kind::excess: ++excesses; break;
            case Pace::Kind::lap: laps.push_back(double(news->took_ns) / double(news->yardstick_ns)); break;
        }
    }
};

std::string times(int n, const std::string& s) {
    std::string all;
    for (int i = 0; i < n; ++i) all += s;
    return all;
}

// No two of its launches look alike; as long as a lap must be to be believed at once.
const std::string kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUV";
// Micro-batches within an iteration.
const std::string kNested = times(8, "fgh") + times(8, "bcd") + "opqrstuv" + times(6, "AB");

}  // namespace

TEST_CASE("a lap is known once it has come twice, and not before") {
    Player p;
    p.play(kPlain);
    CHECK(p.ready == 0);
    p.play(kPlain + kPlain.substr(0, Pace::kContext + 1));
    CHECK(p.ready == 1);
}

TEST_CASE("one launch that comes again and again is a lap, and so are few") {
    for (const char* lap : {"a", "ab", "abc", "aab", "abcde"}) {
        Player p;
        p.play(times(90, lap));
        CAPTURE(lap);
        CHECK(p.ready == 1);
        p.pace.begin(false);
        p.play(times(60, lap), 2);
        REQUIRE(!p.laps.empty());
        for (const double took : p.laps) CHECK(took == doctest::Approx(2));
        CHECK(p.longer == 0);
    }
}

TEST_CASE("laps that are short are compared several at a time") {
    Player p;
    p.play(times(80, "a"));  // 10 ms each
    p.pace.begin(false);
    p.play(times(101, "a"));
    CHECK(p.laps.size() == 4);
}

TEST_CASE("what takes twice as long as on demand is said to") {
    Player p;
    p.play(times(3, kPlain));
    REQUIRE(p.ready == 1);
    p.pace.begin(false);
    p.play(times(4, kPlain), 2);
    REQUIRE(p.laps.size() == 3);
    for (const double lap : p.laps) CHECK(lap == doctest::Approx(2));
    CHECK(p.excesses > 0);
}

TEST_CASE("what takes as long as on demand is said to, wherever the lap begins") {
    for (std::size_t shift = 0; shift < kNested.size(); shift += 7) {
        Player p;
        p.play(times(6, kNested));
        p.pace.begin(true);
        p.pace.forget();
        p.play(kNested.substr(0, shift) + kNested.substr(shift) + times(3, kNested) + kNested.substr(0, shift));
        p.pace.begin(false);
        p.play(kNested.substr(shift) + times(5, kNested));
        REQUIRE(p.laps.size() >= 3);
        for (const double lap : p.laps) CHECK(lap == doctest::Approx(1));
        CHECK(p.excesses == 0);
    }
}

TEST_CASE("micro-batches that are taken for laps are found to be parts of one") {
    Player p;
    const std::string iteration = times(60, "fgh") + times(60, "bcd") + "opqrstuv";
    p.play(times(4, iteration));
    CHECK(p.ready > 0);
    CHECK(p.longer == 1);
    p.pace.forget();
    p.play(times(2, iteration));
    const int ready = p.ready;
    CHECK(ready > 1);
    p.pace.begin(false);
    p.play(times(4, iteration));
    CHECK(p.laps.size() == 3);
    CHECK(p.longer == 1);
}

TEST_CASE("a lap in the midst of which something else comes does not count, and those after it do") {
    Player p;
    p.play(times(4, kPlain));
    p.pace.begin(false);
    p.play(times(2, kPlain));
    p.play(kPlain.substr(0, 20));
    const std::size_t before = p.laps.size();
    p.play("0123456789" + kPlain.substr(20));
    CHECK(p.laps.size() == before);
    p.play(times(3, kPlain));
    CHECK(p.laps.size() > before);
    for (const double lap : p.laps) CHECK(lap == doctest::Approx(1));
    CHECK(p.lost == 0);
}

TEST_CASE("a job that becomes another one is lost, and timed anew") {
    Player p;
    p.play(times(4, kPlain));
    p.pace.begin(false);
    const std::string other = times(2, "0123456789!$%&/()=?*+#-_.:,;<>|@");
    p.play(times(6, other));
    CHECK(p.lost == 1);
    p.pace.begin(true);
    p.play(times(4, other));
    CHECK(p.ready == 2);
}

TEST_CASE("what ends before a launch that was posted before it takes no time of its own") {
    Pace pace;
    std::vector<double> laps;
    TimeNs now = 0;
    std::uint64_t seq = 0;
    // The first of each lap, a receive posted early, ends last.
    const auto lap = [&](double length) {
        const std::uint64_t first = seq;
        for (const char c : kPlain) pace.recorded(seq++, std::uint64_t(c));
        for (std::uint64_t s = first + 1; s < seq; ++s) pace.ended(s, now += TimeNs(length * 1e7));
        pace.ended(first, now += TimeNs(length * 1e7));
        if (const auto news = pace.news(); news && news->kind == Pace::Kind::lap)
            laps.push_back(double(news->took_ns) / double(news->yardstick_ns));
    };
    for (int i = 0; i < 4; ++i) lap(1);
    pace.begin(false);
    for (int i = 0; i < 4; ++i) lap(1.5);
    REQUIRE(laps.size() >= 2);
    for (const double l : laps) CHECK(l == doctest::Approx(1.5));
}

TEST_CASE("a rank that never says how its launches end is remembered in bounded memory") {
    Pace pace;
    for (std::uint64_t seq = 0; seq < 4 * Pace::kMostPending; ++seq) pace.recorded(seq, seq % 7);
    CHECK(!pace.news());
    pace.ended(~0ull, 1);  // of one that nobody has posted
    CHECK(!pace.news());
}
