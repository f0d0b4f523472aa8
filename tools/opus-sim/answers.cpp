#include "tools/opus-sim/answers.h"

#include <algorithm>
#include <map>
#include <set>

namespace opus::job {
namespace {

// The first rail that anything is on, and GPUs of it that lie evenly.
std::vector<GpuId> gpus_to_show(const Fabric& fabric, const JobLaunches& launches, const std::vector<CircuitUse>& uses) {
    std::map<std::uint32_t, std::set<GpuId>> used;  // by rail
    std::set<std::uint32_t> seen;
    for (const CircuitUse& use : uses) {
        if (!seen.insert(use.pairs).second) continue;
        for (const sim::GpuPair& pair : launches.all_pairs()[use.pairs].pairs)
            for (const GpuId gpu : {pair.first, pair.second}) used[fabric.gpus[gpu].rail].insert(gpu);
    }
    if (used.empty()) return {};
    const std::vector<GpuId> all(used.begin()->second.begin(), used.begin()->second.end());
    const std::size_t count = std::min(all.size(), kTimelineRows);
    std::vector<GpuId> shown;
    for (std::size_t i = 0; i < count; ++i) shown.push_back(all[i * all.size() / count]);
    return shown;
}

std::vector<TimelineRow> timeline_of(const JobLaunches& launches, const std::vector<CircuitUse>& uses,
                                     const std::vector<sim::Turn>& turns, Span shown_ns) {
    const Fabric& fabric = launches.map().fabric();
    std::map<GpuId, TimelineRow> rows;
    for (const GpuId gpu : gpus_to_show(fabric, launches, uses)) rows[gpu] = {gpu, fabric.gpus[gpu].name, {}};
    const auto put = [&](GpuId gpu, TimelineSpan::Kind kind, std::uint32_t label, Span span) {
        const auto row = rows.find(gpu);
        span = {std::max(span.first, shown_ns.first), std::min(span.second, shown_ns.second)};
        if (row == rows.end() || span.second <= span.first) return;
        row->second.spans.push_back({kind, label, span.first - shown_ns.first, span.second - shown_ns.first});
    };
    std::vector<GpuId> gpus;
    for (const CircuitUse& use : uses) {
        if (use.end_ns <= shown_ns.first) continue;
        gpus.clear();
        for (const sim::GpuPair& pair : launches.all_pairs()[use.pairs].pairs)
            for (const GpuId gpu : {pair.first, pair.second})
                if (rows.contains(gpu) && std::find(gpus.begin(), gpus.end(), gpu) == gpus.end()) gpus.push_back(gpu);
        for (const GpuId gpu : gpus) {
            put(gpu, TimelineSpan::Kind::held, use.label, {use.full_ns, use.begin_ns});
            put(gpu, TimelineSpan::Kind::operation, use.label, {use.begin_ns, use.end_ns});
        }
    }
    std::map<GpuId, std::vector<Span>> dark;
    for (const sim::Turn& t : turns)
        for (const PortId p : {t.a, t.b}) dark[fabric.ports[p].gpu].emplace_back(t.from_ns, t.lit_ns);
    for (auto& [gpu, spans] : dark)
        for (const Span& s : joined(std::move(spans))) put(gpu, TimelineSpan::Kind::dark, 0, s);
    std::vector<TimelineRow> all;
    for (auto& [gpu, row] : rows) all.push_back(std::move(row));
    return all;
}

double used_share(const JobLaunches& launches, const std::vector<CircuitUse>& uses, Span counted_ns) {
    std::map<GpuId, std::vector<Span>> busy;
    for (const CircuitUse& use : uses)
        for (const sim::GpuPair& pair : launches.all_pairs()[use.pairs].pairs)
            for (const GpuId gpu : {pair.first, pair.second}) busy[gpu].emplace_back(use.begin_ns, use.end_ns);
    double sum = 0;
    for (auto& [gpu, spans] : busy) sum += static_cast<double>(covered(joined(std::move(spans)), counted_ns));
    const double all = static_cast<double>(counted_ns.second - counted_ns.first) * static_cast<double>(busy.size());
    return all > 0 ? sum / all : 0;
}

}  // namespace

Answers answers_of(const JobLaunches& launches, const replay::DryRunOptions& options, const sim::PlayedVariant& variant,
                   std::uint32_t learned) {
    Answers a;
    if (!variant.ended) return a;
    const std::vector<std::int64_t> ends = variant.run.ends();
    if (ends.size() <= learned) return a;
    const Span counted{learned == 0 ? 0 : ends[learned - 1], ends.back()};
    const Span last{ends.size() == 1 ? 0 : ends[ends.size() - 2], ends.back()};
    const VariantLaunches played(variant);
    const std::vector<CircuitUse> uses = circuit_uses(launches, played, learned);
    a.any = true;
    a.rails = rail_times(launches, uses, variant.turns, counted.first, counted.second);
    a.way = longest_way(launches, options, played, uses);
    a.timeline = timeline_of(launches, uses, variant.turns, last);
    a.used = used_share(launches, uses, counted);
    const auto iterations = static_cast<double>(ends.size());
    a.messages_up = variant.frames_up / iterations, a.messages_down = variant.frames_down / iterations;
    a.decisions = variant.decided / iterations;
    a.messages_a_second = variant.total_ms > 0 ? (variant.frames_up + variant.frames_down) * 1e3 / variant.total_ms : 0;
    return a;
}

}  // namespace opus::job
