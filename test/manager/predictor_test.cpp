// The predictor on programs whose next phase is known.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include "manager/core/predictor.h"

#include <doctest/doctest.h>

#include <random>
#include <string>
#include <vector>

using opus::manager::Predictor;

namespace {

Predictor::Launch launch(char name) {
    // Upper case: FSDP's communicator (one pair of circuits); lower case: the pipeline's. Digits: others.
    const auto id = static_cast<std::uint64_t>(name);
    const std::uint64_t needs = name >= 'A' && name <= 'Z' ? 1 : name >= 'a' && name <= 'z' ? 2 : 100 + id;
    return {id * 0x9e3779b97f4a7c15ull, needs};
}

void play(Predictor& p, const std::string& names) {
    for (const char c : names) p.observe(launch(c));
}

Predictor::Accuracy since(const Predictor& p, const Predictor::Accuracy& before) {
    const auto& now = p.accuracy();
    return {now.transitions - before.transitions, now.foretold - before.foretold, now.wrong - before.wrong,
            now.silent - before.silent};
}

std::string repeat(const std::string& s, int n) {
    std::string out;
    for (int i = 0; i < n; ++i) out += s;
    return out;
}

// One iteration of a pipeline stage under FSDP: micro-batches between gathers, a scatter phase, an optimizer step.
std::string iteration() {
    return "sr" + repeat("A", 17) + "sr" + repeat("A", 17) + "s" + repeat("A", 17) + repeat("R", 16) + "r" +
           repeat("R", 16) + "s" + "O";
}

}  // namespace

TEST_CASE("every phase change is foretold from the third iteration on") {
    Predictor p;
    play(p, iteration() + iteration());
    const auto before = p.accuracy();
    play(p, repeat(iteration(), 20));
    const auto seen = since(p, before);
    CHECK(seen.transitions > 100);
    CHECK(seen.foretold == seen.transitions);
    CHECK(seen.wrong == 0);
}

TEST_CASE("one that should have come later is passed over where it came, and learned where it comes then") {
    const auto r = launch('r');
    Predictor p;
    for (int i = 0; i < 4; ++i) {
        play(p, "AAr");
        if (i == 3) p.regret();  // of the last one, when the next is about to start
        play(p, "AAAs");
    }
    CHECK(p.turn_of(r.signature) == Predictor::Turn::after_others);
    play(p, "AA");
    CHECK(p.turn_of(r.signature) == Predictor::Turn::passed_over);
    CHECK(p.due().signature == launch('A').signature);
    CHECK(p.forecast().remaining == 3);
    play(p, "A");
    CHECK(p.turn_of(r.signature) == Predictor::Turn::passed_over);
    play(p, "AA");
    CHECK(p.forecast().remaining == 0);
    CHECK(p.due().needs == r.needs);
    Predictor::Start let_wait;
    let_wait.patience = Predictor::Patience::shown;
    p.observe(r, let_wait, nullptr);
    play(p, "s");
    CHECK(p.turn_of(r.signature) == Predictor::Turn::after_others);  // the fifth A's, as it came
    play(p, "AAAA");
    CHECK(p.turn_of(r.signature) == Predictor::Turn::after_others);
    CHECK(p.expected(1).signature == r.signature);
    p.never_let_wait(r.signature);
    CHECK(p.turn_of(r.signature) == Predictor::Turn::now);
}

// Send and gather come at one moment, in either order.
TEST_CASE("what streams do at one moment may change places") {
    Predictor p;
    Predictor::Start together;
    together.contested = true;
    const auto step = [&](bool swapped, const Predictor::Posted& posted) {
        p.observe(launch(swapped ? 'A' : 's'), {}, posted);
        const Predictor::Forecast next = p.forecast();
        p.observe(launch(swapped ? 's' : 'A'), together, posted);
        play(p, "AAAr");
        return next;
    };
    const Predictor::Posted posted = [](std::uint64_t) { return true; };
    for (int i = 0; i < 20; ++i) step(false, posted);
    for (int i = 0; i < 20; ++i) {
        const bool swapped = i % 3 == 0;
        const auto before = p.accuracy();
        const Predictor::Forecast next = step(swapped, posted);
        CHECK(next.sure);
        CHECK(next.next.needs == launch(swapped ? 's' : 'A').needs);
        CHECK(p.forecast().sure);
        CHECK(since(p, before).silent == 0);
    }
    SUBCASE("not where what was expected is not posted: it may not come at all") {
        step(true, [](std::uint64_t) { return false; });
        CHECK_FALSE(p.forecast().sure);
    }
}

TEST_CASE("what was overtaken and belongs to the phase is of what remains of it") {
    Predictor p;
    const Predictor::Posted posted = [](std::uint64_t) { return true; };
    for (int i = 0; i < 20; ++i) play(p, "rsAAAA");
    p.observe(launch('s'), {}, posted);
    CHECK(p.forecast().sure);
    CHECK(p.forecast().remaining == 1);  // r
    p.observe(launch('r'), {}, posted);
    CHECK(p.forecast().remaining == 0);
    CHECK(p.forecast().next.needs == launch('A').needs);
}

TEST_CASE("a run's remaining launches are counted down to the phase change") {
    Predictor p;
    play(p, repeat(iteration(), 3) + "sr" + "A");
    CHECK(p.forecast().known);
    CHECK(p.forecast().remaining == 16);
    play(p, repeat("A", 10));
    CHECK(p.forecast().remaining == 6);
    play(p, repeat("A", 6));
    CHECK(p.forecast().remaining == 0);
    CHECK(p.forecast().next.needs == launch('s').needs);
}

TEST_CASE(
    "a phase may last for ever, or longer than is foretold at once: the past is not gone over again at each launch") {
    Predictor p;
    std::string layers;
    for (int i = 0; i < 100; ++i) layers += "ABCD"[i % 4], layers += static_cast<char>('E' + i % 7);
    SUBCASE("for ever") {
        play(p, repeat(layers, 100));
        CHECK_FALSE(p.forecast().known);
        CHECK(p.looked() < 4 * 100 * layers.size());
    }
    SUBCASE("longer than is foretold at once") {
        const std::string round = repeat(layers, 30) + "s";
        REQUIRE(round.size() > Predictor::kMaxRun);
        play(p, repeat(round, 2));
        const auto before = p.accuracy();
        play(p, repeat(round, 4));
        CHECK(since(p, before).transitions == 8);
        CHECK(since(p, before).foretold == 8);
        CHECK(p.looked() < 4 * 6 * round.size());
    }
}

TEST_CASE("an interlude is survived: the job goes on where it was") {
    Predictor p;
    play(p, repeat(iteration(), 3));
    for (int round = 0; round < 30; ++round) {
        const auto before = p.accuracy();
        play(p, "1" + repeat("E", 9) + "2" + repeat("E", 9) + "3");  // evaluation, then a checkpoint
        const auto interlude = since(p, before);
        (void)interlude;
        const auto back = p.accuracy();
        play(p, iteration());
        const auto seen = since(p, back);
        // The change from the interlude's last phase cannot be known the first time.
        if (round > 0) CHECK(seen.foretold >= seen.transitions - 1);
        CHECK(seen.wrong <= 1);
    }
}

TEST_CASE("over 99 % with an optimizer step every fourth iteration and evaluation every tenth") {
    Predictor p;
    const auto step = [](int i) {
        return iteration() + (i % 4 == 3 ? "PQPQp" : "") + (i % 10 == 9 ? "1" + repeat("E", 9) + "2" : "");
    };
    for (int i = 0; i < 20; ++i) play(p, step(i));
    const auto before = p.accuracy();
    for (int i = 20; i < 220; ++i) play(p, step(i));
    const auto seen = since(p, before);
    CHECK(seen.foretold * 100 > seen.transitions * 99);
}

TEST_CASE("what no longer holds is forgotten") {
    Predictor p;
    play(p, repeat(iteration(), 5));
    const std::string other = repeat("A", 5) + "r" + repeat("R", 3) + "s" + repeat("A", 2) + "r";
    play(p, repeat(other, 3));
    const auto before = p.accuracy();
    play(p, repeat(other, 20));
    const auto seen = since(p, before);
    CHECK(seen.foretold == seen.transitions);
}

TEST_CASE("noise is met with silence more than with wrong forecasts") {
    Predictor p;
    std::mt19937 draw(7);
    for (int i = 0; i < 20000; ++i) p.observe(launch("Aar1234"[draw() % 7]));
    CHECK(p.accuracy().wrong * 4 < p.accuracy().transitions);
}

TEST_CASE("memory is bounded, whatever comes") {
    Predictor p;
    std::mt19937_64 draw(1);
    for (int i = 0; i < 200000; ++i) p.observe({draw(), draw()});
    CHECK(Predictor::kBytes <= 64 * 1024);
    play(p, repeat(iteration(), 3));
    const auto before = p.accuracy();
    play(p, repeat(iteration(), 3));
    CHECK(since(p, before).foretold == since(p, before).transitions);
}
