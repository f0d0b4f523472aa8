// How soon the manager picks up a `ready` that only a GPU writes, and what it takes of a core to do so.
//
//   bench_pickup --pid MANAGER --core 1 SOCKET
//
// Plays one GPU of a rank whose communicator lies within its node: the manager answers ready with go at once, and
// asks nobody. Launches are recorded ahead, so that there always is one that is not done. Prints JSON: for each
// pattern of gaps (from a done to the next ready) the median and 90th percentile from ready to go, and the
// manager's share of a core meanwhile.
#include <time.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <random>
#include <stdexcept>
#include <vector>

#include "rank_player.h"

namespace {

using namespace opus;
using namespace opus::bench;

constexpr TimeNs kUs = 1'000, kMs = 1'000'000, kLimit = 10'000'000'000;
constexpr TimeNs kLearn = 1'500 * kMs, kWatch = 2'500 * kMs;
constexpr std::uint64_t kAhead = 4;

struct Pattern {
    const char* name;
    std::vector<TimeNs> gaps;  // again and again
    double stray;              // each is drawn from so far around itself
    bool judged = false;       // by the goal: it repeats, and leaves the manager time to rest in
};

std::vector<Pattern> patterns() {
    std::vector<TimeNs> nested;  // micro-batches of layers, then the optimizer
    for (int batch = 0; batch < 4; ++batch) {
        nested.insert(nested.end(), 8, 700 * kUs);
        nested.push_back(5 * kMs);
    }
    nested.push_back(20 * kMs);
    return {{"every 100 us", {100 * kUs}, 0.02},
            {"every 1 ms", {kMs}, 0.02},
            {"every 10 ms", {10 * kMs}, 0.02, true},
            {"every 63.5 ms (Llama3-8B's gathers)", {63'528 * kUs}, 0.01, true},
            {"nested loops, 0.7 to 20 ms", nested, 0.02},
            {"1 ms, half to one and a half", {kMs}, 0.5},
            {"10 ms, half to one and a half", {10 * kMs}, 0.5}};
}

TimeNs cpu_of(pid_t pid) {
    clockid_t clock{};
    timespec t{};
    if (::clock_getcpuclockid(pid, &clock) != 0 || ::clock_gettime(clock, &t) != 0)
        throw std::runtime_error("the manager's CPU time cannot be asked for");
    return TimeNs(t.tv_sec) * 1'000'000'000 + t.tv_nsec;
}

// To the moment, however sleepy the clock.
void wait_until(TimeNs at) {
    if (const TimeNs left = at - now_ns(); left > 300 * kUs) sleep_ns(left - 200 * kUs);
    while (now_ns() < at) {}
}

class Gpu {
public:
    Gpu(const std::string& socket, pid_t manager) : manager_(manager) {
        for (std::uint32_t g = 0; g < 2; ++g) ranks_.push_back(RankPlayer::attach(socket, g, "bench"));
        for (std::uint32_t g = 0; g < 2; ++g) index_ = ranks_[g].register_comm({0x7069636b, 1}, g, 2);
        if (ranks_[0].wait_verdict(index_, kLimit) != Verdict::intra) throw std::runtime_error("not within the node");
        for (std::uint64_t i = 0; i < kAhead; ++i) record();
    }

    nlohmann::json play(const Pattern& pattern) {
        run(pattern, kLearn);
        const TimeNs start = now_ns(), cpu = cpu_of(manager_);
        std::vector<TimeNs> took = run(pattern, kWatch);
        const double share = double(cpu_of(manager_) - cpu) / double(now_ns() - start);
        std::sort(took.begin(), took.end());
        return {{"pattern", pattern.name},
                {"launches", took.size()},
                {"median_us", double(took[took.size() / 2]) / 1e3},
                {"p90_us", double(took[took.size() * 9 / 10]) / 1e3},
                {"share", share},
                {"judged", pattern.judged}};
    }

private:
    void record() {
        seqs_.push_back(ranks_[0].record({operation(OpKind::all_reduce, index_, 1 + n_++)}, ring::Gate::stream));
        ranks_[0].ring();
    }
    std::vector<TimeNs> run(const Pattern& pattern, TimeNs duration) {
        std::vector<TimeNs> took;
        const TimeNs end = now_ns() + duration;
        for (std::size_t i = 0; now_ns() < end || took.size() < 10; ++i) {
            const TimeNs gap = pattern.gaps[i % pattern.gaps.size()];
            const double factor = 1 + pattern.stray * (2 * std::uniform_real_distribution<>()(random_) - 1);
            record();
            wait_until(done_at_ + TimeNs(double(gap) * factor));
            const std::uint64_t seq = seqs_[next_++];
            took.push_back(ranks_[0].ready_unrung(seq, kLimit));
            if (took.back() < 0) throw std::runtime_error("no go");
            wait_until(now_ns() + std::max(gap / 10, 10 * kUs));
            ranks_[0].done_unrung(seq);
            done_at_ = now_ns();
        }
        return took;
    }

    pid_t manager_;
    std::vector<RankPlayer> ranks_;
    std::uint32_t index_ = 0;
    std::uint64_t n_ = 0;
    std::vector<std::uint64_t> seqs_;
    std::size_t next_ = 0;
    TimeNs done_at_ = now_ns();
    std::mt19937 random_{1};
};

}  // namespace

int main(int argc, char** argv) {
    std::string socket;
    pid_t manager = 0;
    int core = -1;
    CLI::App app{"How soon a manager picks up what only a GPU writes"};
    app.add_option("socket", socket, "of the manager")->required();
    app.add_option("--pid", manager, "its process")->required();
    app.add_option("--core", core, "of this process");
    CLI11_PARSE(app, argc, argv);
    try {
        pin_to(core);
        Gpu gpu(socket, manager);
        nlohmann::json result = nlohmann::json::array();
        for (const Pattern& pattern : patterns()) result.push_back(gpu.play(pattern));
        std::puts(result.dump().c_str());
        return 0;
    } catch (const std::exception& e) {
        std::fprintf(stderr, "bench_pickup: %s\n", e.what());
        return 1;
    }
}
