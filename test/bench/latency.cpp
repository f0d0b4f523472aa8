// ready -> grant -> go through real daemons, against the bare path, in alternating runs of one process.
//
//   bench_latency --near SOCKET --far SOCKET --gpus 8 --runs 7 --trips 300 --core 0
//                 --demand-bytes 120 --grant-bytes 80
//
// A communicator needs two nodes to need light. The far members are ready, and known to the controller,
// before the near ones: what is timed is the near node's way alone. near: the manager under test; far: a
// second one, on another core. Prints JSON: per path, each run's median and 99th percentile.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <vector>

#include "bare_path.h"
#include "rank_player.h"

namespace {

using namespace opus;
using namespace opus::bench;

constexpr TimeNs kLimit = 10'000'000'000;  // longer than this is a failure, not a figure
constexpr TimeNs kPause = 400'000;         // everything has gone back to sleep

struct Options {
    std::string near, far;
    unsigned gpus = 8, runs = 7, trips = 300;
    int core = 0;
    std::size_t demand_bytes = 0, grant_bytes = 0;
};

void must(bool held, const char* what) {
    if (!held) throw std::runtime_error(what);
}

// A communicator of the first `width` ranks of both nodes, near ones first.
class Group {
public:
    Group(std::vector<RankPlayer>& near, std::vector<RankPlayer>& far, std::uint32_t width, std::uint64_t id)
        : near_(near), far_(far), width_(width) {
        for (std::uint32_t i = 0; i < width; ++i) {
            index_.push_back(near[i].register_comm({0x6f70757362656e63, id}, i, 2 * width));
            far_index_.push_back(far[i].register_comm({0x6f70757362656e63, id}, width + i, 2 * width));
        }
        for (std::uint32_t i = 0; i < width; ++i) {
            must(near[i].wait_verdict(index_[i], kLimit) == Verdict::enforced, "near communicator not enforced");
            must(far[i].wait_verdict(far_index_[i], kLimit) == Verdict::enforced, "far communicator not enforced");
        }
    }

    // One collective; the time from the near ranks' ready to the last near rank's go.
    TimeNs trip() {
        std::vector<std::uint64_t> near_seq(width_), far_seq(width_);
        for (std::uint32_t i = 0; i < width_; ++i) far_seq[i] = far_[i].record(far_index_[i], n_, kBytes);
        for (std::uint32_t i = 0; i < width_; ++i) far_[i].store_ready(far_seq[i]);
        for (std::uint32_t i = 0; i < width_; ++i) far_[i].ring();
        for (std::uint32_t i = 0; i < width_; ++i) near_seq[i] = near_[i].record(index_[i], n_, kBytes);
        sleep_ns(kPause);
        const TimeNs start = now_ns();
        for (std::uint32_t i = 0; i < width_; ++i) near_[i].store_ready(near_seq[i]);
        for (std::uint32_t i = 0; i < width_; ++i) near_[i].ring();
        for (std::uint32_t i = 0; i < width_; ++i) must(near_[i].wait_go(near_seq[i], kLimit), "no go");
        const TimeNs took = now_ns() - start;
        for (std::uint32_t i = 0; i < width_; ++i) must(far_[i].wait_go(far_seq[i], kLimit), "no go for the far rank");
        for (std::uint32_t i = 0; i < width_; ++i) near_[i].done(near_seq[i]), far_[i].done(far_seq[i]);
        for (std::uint32_t i = 0; i < width_; ++i)
            must(near_[i].wait_retired(near_seq[i], kLimit) && far_[i].wait_retired(far_seq[i], kLimit), "not retired");
        sleep_ns(kPause);
        ++n_;
        return took;
    }

private:
    static constexpr std::uint64_t kBytes = 1 << 20;
    std::vector<RankPlayer>&near_, &far_;
    std::uint32_t width_;
    std::vector<std::uint32_t> index_, far_index_;
    std::uint64_t n_ = 0;
};

TimeNs bare_trip(BarePath& bare) {
    const std::uint64_t seq = bare.rank().record(0, 1, 0);
    sleep_ns(kPause);
    const TimeNs start = now_ns();
    bare.rank().ready(seq);
    must(bare.rank().wait_go(seq, kLimit), "the bare path does not answer");
    const TimeNs took = now_ns() - start;
    must(bare.rank().wait_retired(seq, kLimit), "the bare path does not retire");
    sleep_ns(kPause);
    return took;
}

struct Series {
    std::vector<double> median_us, p99_us;

    template <class Trip> void run(unsigned trips, Trip trip) {
        std::vector<TimeNs> took(trips);
        for (TimeNs& t : took) t = trip();
        std::sort(took.begin(), took.end());
        median_us.push_back(double(took[trips / 2]) / 1e3);
        p99_us.push_back(double(took[trips * 99 / 100]) / 1e3);
    }
    nlohmann::json json() const { return {{"median_us", median_us}, {"p99_us", p99_us}}; }
};

int measure(const Options& o) {
    BarePath bare(o.core, o.demand_bytes, o.grant_bytes);
    pin_to(o.core);
    if (o.near.empty()) {
        Series floor;
        for (unsigned r = 0; r < o.runs; ++r) floor.run(o.trips, [&] { return bare_trip(bare); });
        std::puts(nlohmann::json{{"bare", floor.json()}}.dump().c_str());
        return 0;
    }
    std::vector<RankPlayer> near, far;
    for (std::uint32_t g = 0; g < o.gpus; ++g) {
        near.push_back(RankPlayer::attach(o.near, g, "bench"));
        far.push_back(RankPlayer::attach(o.far, g, "bench"));
    }
    Group one(near, far, 1, 1), all(near, far, o.gpus, 2);
    for (int warm = 0; warm < 20; ++warm) bare_trip(bare), one.trip(), all.trip();
    Series bare_series, one_series, all_series;
    for (unsigned r = 0; r < o.runs; ++r) {
        bare_series.run(o.trips, [&] { return bare_trip(bare); });
        one_series.run(o.trips, [&] { return one.trip(); });
        all_series.run(o.trips, [&] { return all.trip(); });
    }
    const nlohmann::json result = {{"bare", bare_series.json()},
                                   {"one_rank", one_series.json()},
                                   {"all_ranks", all_series.json()},
                                   {"trips", o.runs * o.trips + 20}};
    std::puts(result.dump().c_str());
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    Options o;
    CLI::App app{"ready -> grant -> go through real daemons against the bare path"};
    app.add_option("--near", o.near, "socket of the manager under test; without it, the bare path alone");
    app.add_option("--far", o.far, "socket of the other node's manager");
    app.add_option("--gpus", o.gpus, "ranks of the wide gang on each node");
    app.add_option("--runs", o.runs, "alternating runs");
    app.add_option("--trips", o.trips, "round trips of a run")->check(CLI::Range(10, 100000));
    app.add_option("--core", o.core, "core of this process and of the bare path");
    app.add_option("--demand-bytes", o.demand_bytes, "size of a real demand frame")->required();
    app.add_option("--grant-bytes", o.grant_bytes, "size of a real grant frame")->required();
    CLI11_PARSE(app, argc, argv);
    try {
        return measure(o);
    } catch (const std::exception& e) {
        std::fprintf(stderr, "bench_latency: %s\n", e.what());
        return 1;
    }
}
