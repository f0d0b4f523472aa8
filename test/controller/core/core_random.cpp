// Random programs, thousands of them: what PROTOCOL promises, held after every event. A failing seed prints
// itself and its program; OPUS_TEST_SEED=N replays it with the whole log.
#include <cstdlib>
#include <iostream>

#include "test/controller/core/job_words.h"
#include "test/controller/core/random_job.h"

namespace opus::controller::test {
namespace {

struct Seeds {
    std::uint64_t first = 1, count = 0;
    bool replay = false;
};

Seeds seeds(std::uint64_t count) {
    if (const char* seed = std::getenv("OPUS_TEST_SEED")) return {std::strtoull(seed, nullptr, 10), 1, true};
    if (const char* many = std::getenv("OPUS_TEST_SEEDS")) return {1, std::strtoull(many, nullptr, 10), false};
    return {1, count, false};
}

bool verdict(World& world, const RandomJob& random, std::uint64_t seed, bool ended, bool replay) {
    const bool untold = world.unasked != 0 && world.core->counters().passes == 0;
    const bool good = ended && world.violations.empty() && !untold;
    if (good && !replay) return true;
    std::cout << "seed " << seed << (ended ? " ended" : " did not end") << " at " << world.now / kMs << " ms\n"
              << text_of(random);
    for (const auto& line : world.logs) std::cout << line << "\n";
    for (const auto& v : world.violations) std::cout << "VIOLATION " << v << "\n";
    if (!ended) std::cout << world.stuck();
    if (untold) std::cout << world.unasked << " launches were passed by their managers, and none by the controller\n";
    std::cout << "replay: OPUS_TEST_SEED=" << seed << "\n";
    return good;
}

}  // namespace

TEST_CASE("random programs that end without Opus end with it") {
    const Seeds s = seeds(1500);
    std::uint64_t suspensions = 0, passes = 0, launches = 0, failed = 0;
    for (std::uint64_t seed = s.first; seed < s.first + s.count && failed < 3; ++seed) {
        const RandomJob random = random_job(seed);
        World world(random.shape, random.job, seed);
        world.keep_log = s.replay;
        const bool ended = world.run();
        failed += !verdict(world, random, seed, ended, s.replay);
        suspensions += world.core->counters().suspensions;
        passes += world.core->counters().passes;
        launches += world.core->counters().demands;
    }
    CHECK(failed == 0);
    MESSAGE(launches << " launches, " << suspensions << " suspensions, " << passes << " passes");
}

TEST_CASE("they end also when sessions drop, switches fail and the controller starts anew") {
    const Seeds s = seeds(1000);
    std::uint64_t suspensions = 0, errors = 0, failed = 0;
    for (std::uint64_t seed = s.first; seed < s.first + s.count && failed < 3; ++seed) {
        const RandomJob random = random_job(seed);
        CoreOptions options;
        World world(random.shape, random.job, seed, options);
        world.keep_log = s.replay;
        std::mt19937_64 dice(seed ^ 0xfa017);
        const auto when = [&] { return static_cast<TimeNs>(dice() % 600) * kMs; };
        for (std::uint64_t i = dice() % 4; i > 0; --i)
            world.at(when(), [&world, n = static_cast<NodeIndex>(dice() % random.shape.nodes)] { world.drop_node(n); });
        for (std::uint64_t i = dice() % 3; i > 0; --i)
            world.at(when(),
                     [&world, sw = static_cast<SwitchIndex>(dice() % random.shape.gpus), t = TimeNs(dice() % 300) * kMs] {
                         if (world.switch_is_up(sw)) world.session_down(sw, t);
                     });
        if (dice() % 3 == 0) world.at(when(), [&world] { world.restart_controller(); });
        std::uint64_t faults = dice() % 4, to_come = 1 + dice() % 5;
        world.switch_fault = [&dice, faults, to_come](const Program& p) mutable {
            if (faults == 0 || to_come-- != 1) return std::pair{DriverError::none, std::size_t{0}};
            --faults;
            to_come = 1 + dice() % 3;
            constexpr DriverError kErrors[] = {DriverError::refused, DriverError::timeout, DriverError::garbage,
                                               DriverError::unreachable};
            return std::pair{kErrors[dice() % 4], static_cast<std::size_t>(dice() % (p.changes.connect.size() + 1))};
        };
        const bool ended = world.run();
        failed += !verdict(world, random, seed, ended, s.replay);
        suspensions += world.core->counters().suspensions;
        errors += world.core->counters().switch_errors;
    }
    CHECK(failed == 0);
    MESSAGE(suspensions << " suspensions, " << errors << " switch errors");
}

TEST_CASE("a new controller adopts what runs while managers, switches and it itself fail again") {
    const Seeds s = seeds(1000);
    std::uint64_t adopted = 0, errors = 0, failed = 0;
    for (std::uint64_t seed = s.first; seed < s.first + s.count && failed < 3; ++seed) {
        const RandomJob random = random_job(seed);
        CoreOptions options;
        options.runs = seed % 2 == 0;
        options.rest_ns = 0;
        World world(random.shape, random.job, seed, options);
        world.keep_log = s.replay;
        std::mt19937_64 dice(seed ^ 0xad097);
        const TimeNs dies = static_cast<TimeNs>(20 + dice() % 300) * kMs;
        const auto soon_after = [&] { return dies + static_cast<TimeNs>(dice() % 400) * kMs; };
        world.at(dies, [&] {
            for (std::size_t r = 0; r < random.job.ranks.size(); ++r)
                for (std::size_t l = 0; l < random.job.ranks[r].program.size(); ++l)
                    adopted += world.started(r, l) && !world.done(r, l);
            world.restart_controller();
        });
        if (dice() % 2 == 0) world.at(soon_after(), [&world] { world.restart_controller(); });
        for (std::uint64_t i = dice() % 4; i > 0; --i)
            world.at(soon_after(),
                     [&world, n = static_cast<NodeIndex>(dice() % random.shape.nodes)] { world.drop_node(n); });
        for (std::uint64_t i = dice() % 3; i > 0; --i)
            world.at(soon_after(),
                     [&world, sw = static_cast<SwitchIndex>(dice() % random.shape.gpus), t = TimeNs(dice() % 300) * kMs] {
                         if (world.switch_is_up(sw)) world.session_down(sw, t);
                     });
        std::uint64_t faults = dice() % 4;
        world.switch_fault = [&world, &dice, dies, faults](const Program& p) mutable {
            if (faults == 0 || world.now < dies || dice() % 2 == 0) return std::pair{DriverError::none, std::size_t{0}};
            --faults;
            constexpr DriverError kErrors[] = {DriverError::refused, DriverError::timeout, DriverError::unreachable};
            return std::pair{kErrors[dice() % 3], static_cast<std::size_t>(dice() % (p.changes.connect.size() + 1))};
        };
        const bool ended = world.run();
        failed += !verdict(world, random, seed, ended, s.replay);
        errors += world.core->counters().switch_errors;
    }
    CHECK(failed == 0);
    CHECK(adopted > s.count / 4);
    MESSAGE(adopted << " launches in flight when it died, " << errors << " switch errors");
}

TEST_CASE("they end also with runs, which are longer than any program, and faults") {
    const Seeds s = seeds(1500);
    std::uint64_t runs = 0, under_runs = 0, revocations = 0, suspensions = 0, failed = 0;
    for (std::uint64_t seed = s.first; seed < s.first + s.count && failed < 3; ++seed) {
        const RandomJob random = random_job(seed);
        CoreOptions options;
        options.runs = true;
        options.rest_ns = seed % 3 == 0 ? 20 * kMs : 0;
        World world(random.shape, random.job, seed, options);
        world.keep_log = s.replay;
        std::mt19937_64 dice(seed ^ 0x50f7);
        const auto when = [&] { return static_cast<TimeNs>(dice() % 400) * kMs; };
        if (seed % 2 == 0) {
            for (std::uint64_t i = dice() % 4; i > 0; --i)
                world.at(when(),
                         [&world, n = static_cast<NodeIndex>(dice() % random.shape.nodes)] { world.drop_node(n); });
            for (std::uint64_t i = dice() % 3; i > 0; --i)
                world.at(when(), [&world, sw = static_cast<SwitchIndex>(dice() % random.shape.gpus),
                                  t = TimeNs(dice() % 300) * kMs] {
                    if (world.switch_is_up(sw)) world.session_down(sw, t);
                });
            if (dice() % 3 == 0) world.at(when(), [&world] { world.restart_controller(); });
        }
        const bool ended = world.run();
        failed += !verdict(world, random, seed, ended, s.replay);
        runs += world.core->counters().runs;
        revocations += world.core->counters().revocations;
        suspensions += world.core->counters().suspensions;
        under_runs += world.run_starts;
    }
    CHECK(failed == 0);
    CHECK(under_runs > s.count / 4);
    MESSAGE(runs << " runs, " << under_runs << " launches under them, " << revocations << " revoked, " << suspensions
                 << " suspensions");
}

TEST_CASE("the same seed gives the same run") {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        const RandomJob random = random_job(seed);
        std::string first;
        for (int i = 0; i < 2; ++i) {
            World world(random.shape, random.job, seed);
            world.keep_log = true;
            world.run();
            std::string text = std::to_string(world.now);
            for (const auto& line : world.logs) text += line;
            if (i == 0) first = text;
            CHECK(text == first);
        }
    }
}

}  // namespace opus::controller::test
