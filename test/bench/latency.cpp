// ready -> grant -> go through real daemons, against the bare path, in alternating runs of one process.
//
//   bench_latency --gpus 8 --runs 7 --trips 300 --core 0 --demand-bytes 120 --grant-bytes 80 NEAR FAR THIRD
//
// NEAR is the socket of the manager under test; FAR and THIRD are those of other nodes' managers, on another
// core: a communicator needs two nodes to need light. Without sockets, the bare path alone. Prints JSON: each
// run's median and 99th percentile of
//   bare    the path with nothing in it
//   alone   one rank of the near node joins a launch in flight: nobody else is told anything
//   one     a collective of one rank of the near node and one of the far node
//   all     a collective of all ranks of both
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
constexpr unsigned kWarmUp = 20;           // trips of each kind before the first run
constexpr int kSettle = 3;

struct Options {
    std::vector<std::string> sockets;
    unsigned gpus = 8, runs = 7, trips = 300;
    int core = 0;
    std::size_t demand_bytes = 0, grant_bytes = 0;
    bool only_alone = false;
};

void must(bool held, const char* what) {
    if (!held) throw std::runtime_error(what);
}

using Ranks = std::vector<RankPlayer*>;

// A communicator of these ranks, in order, and what it has done.
class Group {
public:
    Group(Ranks ranks, std::uint64_t id) : ranks_(std::move(ranks)) {
        const auto size = std::uint32_t(ranks_.size());
        for (std::uint32_t i = 0; i < size; ++i)
            index_.push_back(ranks_[i]->register_comm({0x6f70757362656e63, id}, i, size));
        for (std::uint32_t i = 0; i < size; ++i)
            must(ranks_[i]->wait_verdict(index_[i], kLimit) == Verdict::enforced, "a communicator is not enforced");
        seq_.resize(size);
    }

    std::uint32_t size() const { return std::uint32_t(ranks_.size()); }
    std::uint64_t trips() const { return trips_; }
    std::uint32_t index(std::uint32_t rank) const { return index_[rank]; }
    void record(std::uint32_t rank, const std::vector<ring::OpEntry>& ops) { seq_[rank] = ranks_[rank]->record(ops); }

    // Ranks from .. to - 1: all words first, then the doorbells.
    void ready(std::uint32_t from, std::uint32_t to) {
        for (std::uint32_t i = from; i < to; ++i) ranks_[i]->store_ready(seq_[i]);
        for (std::uint32_t i = from; i < to; ++i) ranks_[i]->ring();
    }
    void wait_go(std::uint32_t from, std::uint32_t to) {
        for (std::uint32_t i = from; i < to; ++i) must(ranks_[i]->wait_go(seq_[i], kLimit), "no go");
    }
    // From the near ranks' ready to the last near rank's go. The near ones are the first.
    TimeNs timed(std::uint32_t near) {
        sleep_ns(kPause);
        const TimeNs start = now_ns();
        ready(0, near);
        wait_go(0, near);
        return now_ns() - start;
    }
    void finish() {
        wait_go(0, size());
        for (std::uint32_t i = 0; i < size(); ++i) ranks_[i]->done(seq_[i]);
        for (std::uint32_t i = 0; i < size(); ++i) must(ranks_[i]->wait_retired(seq_[i], kLimit), "not retired");
        sleep_ns(kPause);
        ++trips_;
    }

private:
    Ranks ranks_;
    std::vector<std::uint32_t> index_;
    std::vector<std::uint64_t> seq_;
    std::uint64_t trips_ = 0;
};

// The far half is ready, and the controller knows, before the near half is.
TimeNs collective_trip(Group& group) {
    const std::uint32_t near = group.size() / 2;
    for (std::uint32_t i = 0; i < group.size(); ++i)
        group.record(i, {operation(OpKind::all_reduce, group.index(i), group.trips())});
    group.ready(near, group.size());
    const TimeNs took = group.timed(near);
    group.finish();
    return took;
}

// near, far, third: the far rank sends to both others in one launch, which starts when the third one's receive is
// ready; the near one's receive then joins it.
TimeNs joining_trip(Group& group) {
    const std::uint64_t n = group.trips();
    group.record(0, {operation(OpKind::recv, group.index(0), n, 1)});
    group.record(1, {operation(OpKind::send, group.index(1), n, 0), operation(OpKind::send, group.index(1), n, 2)});
    group.record(2, {operation(OpKind::recv, group.index(2), n, 1)});
    group.ready(1, 3);
    group.wait_go(1, 3);
    const TimeNs took = group.timed(1);
    group.finish();
    return took;
}

TimeNs bare_trip(BarePath& bare) {
    const std::uint64_t seq = bare.rank().record({operation(OpKind::all_reduce, 0, 1)});
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

    template <class Trip>
    void run(unsigned trips, Trip trip) {
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
    Series bare_series, alone_series, one_series, all_series;
    if (o.sockets.empty()) {
        for (unsigned r = 0; r < o.runs; ++r) bare_series.run(o.trips, [&] { return bare_trip(bare); });
        std::puts(nlohmann::json{{"bare", bare_series.json()}}.dump().c_str());
        return 0;
    }
    must(o.sockets.size() == 3, "three managers are needed");
    std::vector<RankPlayer> ranks;
    for (const std::string& socket : o.sockets)
        for (std::uint32_t g = 0; g < o.gpus; ++g) ranks.push_back(RankPlayer::attach(socket, g, "bench"));
    Ranks both;
    for (std::uint32_t i = 0; i < 2 * o.gpus; ++i) both.push_back(&ranks[i]);
    Group alone({&ranks[0], &ranks[o.gpus], &ranks[2 * o.gpus]}, 1), one({&ranks[0], &ranks[o.gpus]}, 2), all(both, 3);
    for (unsigned r = 0; r <= o.runs; ++r) {
        const unsigned trips = r == 0 ? kWarmUp : o.trips;
        bare_series.run(trips, [&] { return bare_trip(bare); });
        for (int i = 0; i < kSettle; ++i) joining_trip(alone);  // its circuits come back
        alone_series.run(trips, [&] { return joining_trip(alone); });
        if (!o.only_alone) {
            for (int i = 0; i < kSettle; ++i) collective_trip(one);
            one_series.run(trips, [&] { return collective_trip(one); });
            all_series.run(trips, [&] { return collective_trip(all); });
        }
        if (r == 0) bare_series = alone_series = one_series = all_series = {};
    }
    const nlohmann::json result = {{"bare", bare_series.json()},
                                   {"alone", alone_series.json()},
                                   {"one", one_series.json()},
                                   {"all", all_series.json()},
                                   {"gangs", {{"alone", alone.trips()}, {"one", one.trips()}, {"all", all.trips()}}}};
    std::puts(result.dump().c_str());
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    Options o;
    CLI::App app{"ready -> grant -> go through real daemons against the bare path"};
    app.add_option("sockets", o.sockets, "of the near, the far and a third manager; none: the bare path alone");
    app.add_option("--gpus", o.gpus, "ranks of the wide gang on each node");
    app.add_option("--runs", o.runs, "alternating runs");
    app.add_option("--trips", o.trips, "round trips of a run")->check(CLI::Range(10, 100000));
    app.add_option("--core", o.core, "core of this process and of the bare path");
    app.add_option("--demand-bytes", o.demand_bytes, "size of a real demand frame")->required();
    app.add_option("--grant-bytes", o.grant_bytes, "size of a real grant frame")->required();
    app.add_flag("--only-alone", o.only_alone, "the first figure and its floor: for a profiler");
    CLI11_PARSE(app, argc, argv);
    try {
        return measure(o);
    } catch (const std::exception& e) {
        std::fprintf(stderr, "bench_latency: %s\n", e.what());
        return 1;
    }
}
