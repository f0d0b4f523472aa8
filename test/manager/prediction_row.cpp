#include "test/manager/prediction_row.h"

#include <algorithm>
#include <ctime>
#include <map>
#include <vector>

#include "manager/core/forecast.h"
#include "manager/core/predictor.h"
#include "tools/sim/job_map.h"
#include "tools/sim/switched_rails.h"

namespace opus::manager {
namespace {

using replay::StepKind;

class Describer {
public:
    Describer(const replay::Workload& w, std::uint32_t rank) : w_(w), rank_(rank) {}

    Predictor::Launch describe(const replay::RehearsedLaunch& launch) {
        std::vector<LaunchKey> keys;
        std::vector<Circuits> circuits;
        std::uint64_t bytes = 0;
        for (std::size_t i = 0; i < launch.operations.size(); ++i) {
            const replay::Step& s = *launch.operations[i];
            keys.push_back({static_cast<std::uint16_t>(s.comm), {key_of(s), 1, is_mesh(s.kind)}});
            circuits.push_back(spans_nodes(s) ? circuits_by(keys.back().range, places_of(s), w_.places[rank_].node)
                                              : Circuits{});
            bytes += static_cast<std::uint64_t>(static_cast<double>(s.bytes) * launch.lengths[i]);
        }
        return programme_of(sim::kind_of(launch.operations[0]->kind), bytes, keys, circuits);
    }

private:
    static bool is_mesh(StepKind kind) {
        return kind == StepKind::all_to_all || kind == StepKind::gather || kind == StepKind::scatter;
    }
    const std::vector<std::uint32_t>& group_of(const replay::Step& s) const {
        const replay::Comm& comm = w_.comms[s.comm];
        return comm.groups[replay::membership(comm, rank_).group];
    }
    Key key_of(const replay::Step& s) const {
        const replay::Membership m = replay::membership(w_.comms[s.comm], rank_);
        Key key;
        key.comm = {(s.comm + 1ull) << 32, m.group + 1};
        key.kind = KeyKind::coll;
        if (s.kind != StepKind::send && s.kind != StepKind::recv) return key;
        key.kind = KeyKind::p2p;
        key.src = s.kind == StepKind::send ? m.rank : s.peer;
        key.dst = s.kind == StepKind::send ? s.peer : m.rank;
        return key;
    }
    std::vector<wire::Place> places_of(const replay::Step& s) const {
        std::vector<wire::Place> places;
        for (const std::uint32_t r : group_of(s)) places.push_back({w_.places[r].node, w_.places[r].gpu});
        return places;
    }
    bool spans_nodes(const replay::Step& s) const {
        const auto& group = group_of(s);
        const std::uint32_t node = w_.places[rank_].node;
        if (s.kind == StepKind::send || s.kind == StepKind::recv) return w_.places[group[s.peer]].node != node;
        return std::any_of(group.begin(), group.end(), [&](std::uint32_t r) { return w_.places[r].node != node; });
    }

    const replay::Workload& w_;
    std::uint32_t rank_;
};

std::int64_t cpu_ns() {
    timespec t{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return std::int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

void score(PredictionRow& row, const Predictor::Forecast& f, std::uint64_t before, std::uint64_t needs) {
    const bool ends = f.sure && f.known && f.remaining == 0;
    if (needs == before) {
        row.too_early += ends;
        return;
    }
    ++row.transitions;
    if (!f.sure)
        ++row.silent;
    else if (ends && f.next.needs == needs)
        ++row.foretold;
    else
        ++row.wrong;
}

}  // namespace

PredictionRow predict(const PredictedJob& job) {
    const replay::Workload& w = job.workload;
    const replay::Rehearsal rehearsal = rehearse(w, job.options);
    PredictionRow row;
    row.name = job.name;
    row.iterations = job.options.iterations ? job.options.iterations : w.iterations;
    row.ended = rehearsal.ended;
    std::int64_t spent_ns = 0;
    for (std::uint32_t rank = 0; rank < w.world(); ++rank) {
        Describer describer(w, rank);
        std::vector<Predictor::Launch> launches;
        std::size_t learned = 0;
        for (const replay::RehearsedLaunch& l : rehearsal.ranks[rank]) {
            const Predictor::Launch launch = describer.describe(l);
            if (launch.needs == 0) continue;
            launches.push_back(launch);
            if (l.iteration < job.learned) learned = launches.size();
        }
        Predictor timed, scored;
        const std::int64_t begin = cpu_ns();
        for (const Predictor::Launch& launch : launches) timed.observe(launch);
        spent_ns += cpu_ns() - begin;
        for (std::size_t i = 0; i < launches.size(); ++i) {
            if (i >= learned && i > 0) score(row, scored.forecast(), launches[i - 1].needs, launches[i].needs);
            scored.observe(launches[i]);
        }
        row.launches += launches.size();
    }
    row.ns_a_launch = row.launches ? static_cast<double>(spent_ns) / static_cast<double>(row.launches) : 0;
    return row;
}

PredictionRow predict_on_rails(PredictedJob job, double dark_ms) {
    sim::JobMap map(job.workload, 2, static_cast<TimeNs>(dark_ms * 1e6));
    sim::SwitchedRails rails(map, {});
    job.options.gates = &rails;
    job.options.bytes_per_us *= 1024;  // the sizes of the demo, as in bench_dark_columns
    PredictionRow row = predict(job);
    row.ended &= rails.fault().empty();
    return row;
}

namespace {

replay::GenerateOptions small() {
    replay::GenerateOptions o;
    o.gpus = 1, o.layers = 4, o.micro_batches = 8;
    return o;
}

}  // namespace

std::vector<PredictedJob> predicted_jobs() {
    using Goal = PredictedJob::Goal;
    std::vector<PredictedJob> jobs;
    const std::vector<const char*> kinds = {"dp", "fsdp", "pp", "interleaved", "zero-bubble",
                                            "cp", "ep",   "3d", "4d",          "4d-moe"};
    const auto add = [&jobs](const std::string& name, PredictedJob::Goal goal, replay::Workload w,
                             std::uint32_t iterations, std::uint32_t learned = 2) {
        replay::RehearsalOptions options;
        options.iterations = iterations;
        jobs.push_back({name, goal, std::move(w), options, learned});
    };
    add("llama3-8b", Goal::all, replay::generate_llama3_8b({}), 20);
    for (const char* kind : kinds) add(kind, Goal::all, replay::generate(kind, small()), 20);
    for (const char* kind : {"4d", "4d-moe"}) {
        replay::GenerateOptions o = small();
        o.nodes = 8;
        add(std::string(kind) + ", 8 nodes", Goal::all, replay::generate(kind, o), 10);
    }
    for (const char* kind : kinds) {
        replay::GenerateOptions o = small();
        o.optimizer_every = 4;
        add(std::string(kind) + ", optimizer every 4th", Goal::all, replay::generate(kind, o), 40, 2 * o.optimizer_every);
    }
    for (const char* kind : kinds) {
        replay::GenerateOptions o = small();
        o.evaluate_every = 20, o.checkpoint_every = 100;
        add(std::string(kind) + ", interludes", Goal::most, replay::generate(kind, o), 400);
    }
    for (const char* kind : kinds) {
        replay::GenerateOptions o = small();
        o.lengths = {0.25, 0.5, 1, 2};
        add(std::string(kind) + ", lengths", Goal::all, replay::generate(kind, o), 40);
    }
    for (const char* kind : kinds) {
        add(std::string(kind) + ", noise", Goal::none, replay::generate(kind, small()), 40);
        jobs.back().options.jitter = 0.05;
    }
    return jobs;
}

}  // namespace opus::manager
