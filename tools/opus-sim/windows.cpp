#include <algorithm>
#include <map>
#include <optional>

#include "tools/opus-sim/circuit_uses.h"

namespace opus::job {
namespace {

using replay::DryRunLaunch;

struct Sample {
    std::int64_t ns = 0;  // 0: the phases overlap
    double bytes = 0;     // that it sends in the phase, or receives, whichever is more
    std::uint32_t from = 0, to = 0;
};

WindowSums sums_of(std::vector<const Sample*> samples) {
    WindowSums s;
    std::sort(samples.begin(), samples.end(), [](const Sample* a, const Sample* b) { return a->ns < b->ns; });
    double ns = 0;
    for (const Sample* one : samples) ns += static_cast<double>(one->ns), s.bytes += one->bytes;
    if (!samples.empty()) s.bytes /= static_cast<double>(samples.size());
    const auto first = std::find_if(samples.begin(), samples.end(), [](const Sample* one) { return one->ns > 0; });
    s.overlapped = static_cast<std::uint64_t>(first - samples.begin());
    s.count = static_cast<std::uint64_t>(samples.end() - first);
    if (s.count == 0) return s;
    s.least_ms = static_cast<double>((*first)->ns) / 1e6;
    s.median_ms = static_cast<double>((*(first + static_cast<std::ptrdiff_t>((s.count - 1) / 2)))->ns) / 1e6;
    s.mean_ms = ns / 1e6 / static_cast<double>(s.count);
    s.most_ms = static_cast<double>(samples.back()->ns) / 1e6;
    return s;
}

// The phases of one GPU: what its launches between nodes are, in the order in which they begin.
class GpuPhases {
public:
    GpuPhases(const JobLaunches& launches, std::uint32_t learned, std::vector<Sample>& samples)
        : launches_(launches), learned_(learned), samples_(samples) {}

    bool add(std::uint32_t rank, const std::vector<DryRunLaunch>& all) {
        const std::size_t before = samples_.size();
        std::optional<std::uint64_t> now;  // communicator, collectives or transfers
        std::uint32_t label = 0;
        std::int64_t busy_until = 0;
        double sent = 0, received = 0;  // in the phase
        for (const DryRunLaunch& l : all) {
            const JobLaunches::Operation* first = nullptr;
            double out = 0, in = 0;
            for (const auto* o = launches_.begin(rank, l.seq); o != launches_.end(rank, l.seq); ++o) {
                if (!launches_.crosses(*o->step, rank)) continue;
                if (first == nullptr) first = o;
                const double length = l.lengths[static_cast<std::size_t>(o - launches_.begin(rank, l.seq))];
                const double bytes = launches_.sent_bytes(*o->step, rank, length);
                if (o->step->kind != replay::StepKind::recv) out += bytes;
                if (o->step->kind != replay::StepKind::send) in += bytes;
            }
            if (first == nullptr) continue;
            const replay::Step& step = *first->step;
            const bool transfer = step.kind == replay::StepKind::send || step.kind == replay::StepKind::recv;
            const std::uint64_t phase = std::uint64_t{step.comm} << 1 | (transfer ? 1 : 0);
            const std::uint32_t called = launches_.label(step, rank);
            const bool fresh = now && *now != phase;
            if (fresh || !now) sent = received = 0;
            sent += out, received += in;
            if (fresh && l.iteration >= learned_)
                samples_.push_back({std::max<std::int64_t>(0, l.begin_ns - busy_until), 0, label, called});
            if (samples_.size() > before) samples_.back().bytes = std::max(sent, received);
            now = phase, label = called;
            busy_until = std::max(busy_until, l.end_ns);
        }
        return now.has_value();
    }

private:
    const JobLaunches& launches_;
    std::uint32_t learned_;
    std::vector<Sample>& samples_;
};

std::vector<double> cdf_of(const std::vector<Sample>& samples) {
    std::vector<std::int64_t> ns;
    for (const Sample& s : samples)
        if (s.ns > 0) ns.push_back(s.ns);
    std::sort(ns.begin(), ns.end());
    std::vector<double> cdf;
    for (std::size_t percent = 0; percent <= 100 && !ns.empty(); ++percent)
        cdf.push_back(static_cast<double>(ns[percent == 0 ? 0 : (percent * ns.size() + 99) / 100 - 1]) / 1e6);
    return cdf;
}

// What begins before `counted_ns` is not counted; the first window begins with it.
void add_rails(const JobLaunches& launches, const std::vector<CircuitUse>& uses, std::int64_t counted_ns, Windows& windows) {
    std::map<std::uint32_t, std::vector<Sample>> samples;
    struct Rail {
        bool any = false;
        std::uint32_t label = 0;
        std::int64_t busy_until = 0;
    };
    std::map<std::uint32_t, Rail> rails;
    std::vector<std::uint32_t> here;
    for (const CircuitUse& use : uses) {
        here.clear();
        for (const sim::GpuPair& pair : launches.all_pairs()[use.pairs].pairs)
            for (const GpuId gpu : {pair.first, pair.second}) here.push_back(launches.map().fabric().gpus[gpu].rail);
        std::sort(here.begin(), here.end());
        here.erase(std::unique(here.begin(), here.end()), here.end());
        for (const std::uint32_t r : here) {
            Rail& rail = rails[r];
            if (rail.any && rail.label != use.label && use.begin_ns >= counted_ns)
                samples[r].push_back({std::max<std::int64_t>(0, use.begin_ns - rail.busy_until), 0, rail.label, use.label});
            rail.any = true, rail.label = use.label;
            rail.busy_until = std::max(rail.busy_until, use.end_ns);
        }
    }
    for (const auto& [rail, of_rail] : samples) {
        std::vector<const Sample*> all;
        for (const Sample& s : of_rail) all.push_back(&s);
        windows.rails.push_back({rail, sums_of(std::move(all))});
    }
}

}  // namespace

Windows windows_of(const JobLaunches& launches, const sim::PlayedVariant& electrical, std::uint32_t learned) {
    Windows w;
    std::vector<Sample> samples;
    GpuPhases phases(launches, learned, samples);
    for (std::uint32_t rank = 0; rank < launches.workload().world(); ++rank)
        w.gpus += phases.add(rank, electrical.run.ranks[rank]) ? 1 : 0;
    w.iterations =
        electrical.run.iterations.empty() ? 0 : static_cast<double>(electrical.run.iterations.front().size() - learned);
    w.cdf_ms = cdf_of(samples);
    std::vector<const Sample*> all;
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::vector<const Sample*>> by_transition;
    std::array<std::vector<const Sample*>, 5> by_volume;
    for (const Sample& s : samples) {
        all.push_back(&s);
        by_transition[{s.from, s.to}].push_back(&s);
        const auto limit = std::upper_bound(kVolumes.begin(), kVolumes.end(), s.bytes);
        by_volume[static_cast<std::size_t>(limit - kVolumes.begin())].push_back(&s);
    }
    w.all = sums_of(std::move(all));
    for (auto& [labels, of_them] : by_transition)
        w.transitions.push_back({labels.first, labels.second, sums_of(std::move(of_them))});
    const auto time = [](const Windows::Transition& t) { return t.sums.mean_ms * static_cast<double>(t.sums.count); };
    std::stable_sort(w.transitions.begin(), w.transitions.end(),
                     [&](const auto& a, const auto& b) { return time(a) > time(b); });
    for (std::size_t i = 0; i < by_volume.size(); ++i) w.by_volume[i] = sums_of(std::move(by_volume[i]));
    const std::int64_t counted_ns = learned == 0 ? 0 : electrical.run.ends()[learned - 1];
    add_rails(launches, circuit_uses(launches, VariantLaunches(electrical), learned == 0 ? 0 : learned - 1), counted_ns, w);
    return w;
}

}  // namespace opus::job
