// opus_sim_test: the cores under simulated faults. See docs/simulation.md.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <map>

#include "opus/assert.h"
#include "test/sim/campaign.h"
#include "test/sim/commit.h"
#include "test/sim/drawn.h"

namespace {

using namespace opus::sim;

struct Request {
    std::uint64_t seed = 0, seeds = 300, first = 1;
    std::string fault_class = "all", mutation = "none", runs = "mixed";
    std::uint32_t check_every = 1, failures = 3;
    std::vector<std::uint32_t> without;
    bool log = false, mutations = false, commit = false, drawn = false;
};

std::vector<FaultClass> classes_of(const std::string& names) {
    std::vector<FaultClass> all;
    for (std::uint32_t i = 0; i < kFaultClasses; ++i)
        if (names == "all" ||
            ("," + names + ",").find(std::string(",") + name_of(static_cast<FaultClass>(i)) + ",") != std::string::npos)
            all.push_back(static_cast<FaultClass>(i));
    return all;
}

Mutation mutation_of(const std::string& name) {
    for (std::uint32_t i = 0; i < kMutations; ++i)
        if (name == name_of(static_cast<Mutation>(i))) return static_cast<Mutation>(i);
    return Mutation::none;
}

Runs runs_of(const std::string& name) { return name == "on" ? Runs::on : name == "off" ? Runs::off : Runs::mixed; }
const char* name_of(Runs runs) { return runs == Runs::on ? "on" : runs == Runs::off ? "off" : "mixed"; }

const char* program = "opus_sim_test";

void print_failure(std::uint64_t seed, FaultClass c, Mutation m, const std::string& runs, const std::string& what) {
    std::printf("FAILED %s seed %llu (commit %s): %s\n  again: %s --class %s --seed %llu%s%s%s%s --log\n", name_of(c),
                static_cast<unsigned long long>(seed), OPUS_COMMIT, what.c_str(), program, name_of(c),
                static_cast<unsigned long long>(seed), m == Mutation::none ? "" : " --mutation ",
                m == Mutation::none ? "" : name_of(m), runs == "mixed" ? "" : " --runs ",
                runs == "mixed" ? "" : runs.c_str());
}

Campaign campaign;  // whatever is played is played by it

// Where a core finds what cannot be, the process ends: with its seed.
void say_what_was_played(const char* what) {
    const Played& p = campaign.played();
    print_failure(p.seed, p.fault_class, p.mutation, name_of(p.runs), what);
    std::fflush(stdout);
}

// Leaves out faults as long as it fails, and prints what remains.
int replay(const Request& r, FaultClass c) {
    const Mutation m = mutation_of(r.mutation);
    std::vector<std::string> log;
    std::vector<std::uint32_t> without = r.without;
    const Outcome o = campaign.play(r.seed, c, m, r.check_every, runs_of(r.runs), without, r.log ? &log : nullptr);
    if (o.failure.empty()) {
        for (const std::string& line : log) std::printf("%s\n", line.c_str());
        std::printf("%s seed %llu passes: %llu events, %llu launches, %llu suspensions, %llu passed without circuits\n",
                    name_of(c), static_cast<unsigned long long>(r.seed), static_cast<unsigned long long>(o.events),
                    static_cast<unsigned long long>(o.launches), static_cast<unsigned long long>(o.suspensions),
                    static_cast<unsigned long long>(o.passes));
        return 0;
    }
    Outcome last = o;
    const std::size_t faults = make_scenario(r.seed, c, m).faults.size();
    for (std::uint32_t f = 0; f < faults; ++f) {
        auto fewer = without;
        fewer.push_back(f);
        const Outcome again = campaign.play(r.seed, c, m, r.check_every, runs_of(r.runs), fewer, nullptr);
        if (again.failure.empty()) continue;
        without = fewer;
        last = again;
    }
    campaign.play(r.seed, c, m, r.check_every, runs_of(r.runs), without, &log);
    const std::size_t from = r.log || log.size() < 60 ? 0 : log.size() - 60;
    for (std::size_t i = from; i < log.size(); ++i) std::printf("%s\n", log[i].c_str());
    print_failure(r.seed, c, m, r.runs, last.failure);
    if (!without.empty()) {
        std::printf("  it needs none of the faults:");
        for (const std::uint32_t f : without) std::printf(" %u", f);
        std::printf(" (--without)\n");
    }
    return 1;
}

int play_all(const Request& r) {
    std::uint64_t passed = 0, failed = 0, events = 0;
    double seconds = 0;
    for (const FaultClass c : classes_of(r.fault_class)) {
        CampaignOptions options;
        options.first_seed = r.first;
        options.seeds = r.seeds;
        options.mutation = mutation_of(r.mutation);
        options.check_every = r.check_every;
        options.most_failures = r.failures;
        options.runs = runs_of(r.runs);
        const CampaignResult result = campaign.run(c, options);
        for (const auto& [seed, what] : result.failures) print_failure(seed, c, options.mutation, r.runs, what);
        if (!result.failures.empty() && r.mutation == "none") {
            Request first = r;
            first.seed = result.failures.front().first;
            replay(first, c);
        }
        std::printf(
            "%-10s %7llu schedules, %9llu events, %8llu launches, %7llu grants, %6llu suspended, %6llu passed, "
            "%5llu unroutable, %6llu moved ahead (%llu in vain), %6llu runs of %6llu "
            "launches "
            "(%llu gates released early, %llu retracted, %llu of them gone, %llu go words stored ahead), %llu waits "
            "for room in a ring: %s; %.0f "
            "schedules/s, %.0f events/s\n",
            name_of(c), static_cast<unsigned long long>(result.schedules),
            static_cast<unsigned long long>(result.events), static_cast<unsigned long long>(result.launches),
            static_cast<unsigned long long>(result.grants), static_cast<unsigned long long>(result.suspensions),
            static_cast<unsigned long long>(result.passed_launches), static_cast<unsigned long long>(result.unroutable),
            static_cast<unsigned long long>(result.speculations), static_cast<unsigned long long>(result.wrong),
            static_cast<unsigned long long>(result.runs), static_cast<unsigned long long>(result.run_launches),
            static_cast<unsigned long long>(result.released_early), static_cast<unsigned long long>(result.retracted),
            static_cast<unsigned long long>(result.raced), static_cast<unsigned long long>(result.ahead),
            static_cast<unsigned long long>(result.full_rings), result.failures.empty() ? "all held" : "FAILED",
            static_cast<double>(result.schedules) / result.seconds, static_cast<double>(result.events) / result.seconds);
        std::fflush(stdout);
        ++(result.failures.empty() ? passed : failed);
        events += result.events;
        seconds += result.seconds;
    }
    std::printf("%.0f events/s over all\n", static_cast<double>(events) / seconds);
    std::printf("%llu passed, %llu failed\n", static_cast<unsigned long long>(passed),
                static_cast<unsigned long long>(failed));
    return failed == 0 ? 0 : 1;
}

// Do the programs do all that NCCL allows? In how many of 1,000 schedules, by class. Where programs are drawn at large
// each thing must occur.
int drawn(const Request& r) {
    const std::vector<FaultClass> classes = classes_of(r.fault_class);
    std::vector<std::vector<std::uint64_t>> counts(kDrawn, std::vector<std::uint64_t>(classes.size()));
    for (std::size_t c = 0; c < classes.size(); ++c)
        for (std::uint64_t i = 0; i < r.seeds; ++i) {
            const std::uint32_t bits = drawn_in(make_scenario(r.first + i, classes[c], Mutation::none));
            for (std::uint32_t d = 0; d < kDrawn; ++d) counts[d][c] += bits >> d & 1;
        }
    std::printf("| of 1,000 schedules |");
    for (const FaultClass c : classes) std::printf(" %s |", name_of(c));
    std::printf("\n");
    int missing = 0;
    for (std::uint32_t d = 0; d < kDrawn; ++d) {
        std::printf("| %s |", name_of(static_cast<Drawn>(d)));
        for (std::size_t c = 0; c < classes.size(); ++c) {
            std::printf(" %llu |", static_cast<unsigned long long>(counts[d][c] * 1000 / r.seeds));
            const bool at_large = classes[c] != FaultClass::silence && classes[c] != FaultClass::early;
            missing += at_large && counts[d][c] == 0;
        }
        std::printf("\n");
    }
    std::printf("%d passed, %d failed\n", missing == 0 ? 1 : 0, missing == 0 ? 0 : 1);
    return missing == 0 ? 0 : 1;
}

// Each deliberate mistake is noticed. In how many of the schedules?
int mutations(const Request& r) {
    std::uint64_t passed = 0, failed = 0;
    for (std::uint32_t i = 1; i < kMutations; ++i) {
        CampaignOptions options;
        options.first_seed = r.first;
        options.seeds = r.seeds;
        options.mutation = static_cast<Mutation>(i);
        options.most_failures = ~0u;
        const bool keeps = options.mutation == Mutation::keep_runs;
        const bool needs_runs =
            options.mutation == Mutation::ignore_revoke || options.mutation == Mutation::retract_nothing ||
            options.mutation == Mutation::overlook_ahead || options.mutation == Mutation::keep_replays;
        options.runs = keeps || needs_runs ? Runs::on : runs_of(r.runs);
        const FaultClass where = keeps                                          ? FaultClass::silence
                                 : options.mutation == Mutation::overlook_ahead ? FaultClass::early
                                 : options.mutation == Mutation::keep_replays   ? FaultClass::early
                                 : options.mutation == Mutation::no_pair_keys   ? FaultClass::wide
                                                                                : FaultClass::calm;
        const CampaignResult result = campaign.run(where, options);
        std::map<std::string, int> kinds;
        for (const auto& [seed, what] : result.failures) ++kinds[what.substr(0, what.find_first_of(":\n"))];
        std::printf("%-18s noticed in %3zu of %llu schedules:", name_of(options.mutation), result.failures.size(),
                    static_cast<unsigned long long>(result.schedules));
        for (const auto& [kind, count] : kinds) std::printf(" %s (%d)", kind.c_str(), count);
        std::printf("\n");
        ++(result.failures.empty() ? failed : passed);
    }
    std::printf("%llu passed, %llu failed\n", static_cast<unsigned long long>(passed),
                static_cast<unsigned long long>(failed));
    return failed == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
    Request r;
    CLI::App app{"Plays Opus' manager and controller cores through random schedules of programs and faults."};
    app.add_option("--seed", r.seed, "play this one");
    app.add_option("--seeds", r.seeds, "schedules a class")->capture_default_str();
    app.add_option("--first", r.first, "first seed")->capture_default_str();
    app.add_option("--class", r.fault_class,
                   "calm, ranks, managers, controller, network, switches, foreign, mixed, windows, silence, early, "
                   "wide, or all; "
                   "several with commas")
        ->capture_default_str();
    app.add_option("--mutation", r.mutation, "a deliberate mistake of the harness")->capture_default_str();
    app.add_option("--runs", r.runs, "on, off, or mixed: on for odd seeds")
        ->check(CLI::IsMember({"on", "off", "mixed"}))
        ->capture_default_str();
    app.add_option("--check-every", r.check_every, "the cores' own check: every so many steps")->capture_default_str();
    app.add_option("--failures", r.failures, "stop a class after so many")->capture_default_str();
    app.add_option("--without", r.without, "with --seed: leave out these faults");
    app.add_flag("--log", r.log, "with --seed: all that happens");
    app.add_flag("--commit", r.commit, "print the commit that this plays, and nothing else");
    app.add_flag("--drawn", r.drawn, "count what the programs do, of what NCCL allows");
    app.add_flag("--mutations", r.mutations, "show that each deliberate mistake is noticed");
    CLI11_PARSE(app, argc, argv);
    program = argv[0];
    opus::last_words = say_what_was_played;
    if (r.commit) return std::puts(OPUS_COMMIT) < 0;
    if (r.seed != 0) {
        const auto classes = classes_of(r.fault_class == "all" ? "mixed" : r.fault_class);
        return classes.empty() ? 2 : replay(r, classes.front());
    }
    if (r.drawn) return drawn(r);
    return r.mutations ? mutations(r) : play_all(r);
}
