#include "tools/opus-sim/run_json.h"

#include <algorithm>

namespace opus::job {
namespace {

using nlohmann::json;

constexpr std::size_t kSegments = 2000;  // of a longest way; beyond, the sums alone

json maybe(double ms) { return ms > 0 ? json(ms) : json(); }

json json_of(const PortShares& s) { return {{"busy", s.busy}, {"idle", s.idle}, {"dark", s.dark}, {"unlit", s.unlit}}; }

json json_of(const WindowSums& s, double iterations) {
    return {{"per_iteration", iterations > 0 ? static_cast<double>(s.count) / iterations : 0},
            {"overlapped_per_iteration", iterations > 0 ? static_cast<double>(s.overlapped) / iterations : 0},
            {"least_ms", s.least_ms},
            {"median_ms", s.median_ms},
            {"mean_ms", s.mean_ms},
            {"most_ms", s.most_ms},
            {"next_bytes", s.bytes}};
}

json json_of(const Windows& w, const std::vector<std::string>& labels) {
    json transitions = json::array(), volumes = json::array(), rails = json::array();
    for (const Windows::Transition& t : w.transitions) {
        json one = json_of(t.sums, w.iterations);
        one["from"] = labels[t.from], one["to"] = labels[t.to];
        transitions.push_back(std::move(one));
    }
    for (std::size_t i = 0; i < w.by_volume.size(); ++i) {
        json one = json_of(w.by_volume[i], w.iterations);
        one["from_bytes"] = i == 0 ? 0 : kVolumes[i - 1];
        one["to_bytes"] = i < kVolumes.size() ? json(kVolumes[i]) : json();
        volumes.push_back(std::move(one));
    }
    for (const Windows::Rail& r : w.rails) {
        json one = json_of(r.sums, w.iterations);
        one["rail"] = r.rail;
        rails.push_back(std::move(one));
    }
    return {{"gpus", w.gpus},       {"all", json_of(w.all, w.iterations)},
            {"cdf_ms", w.cdf_ms},   {"transitions", transitions},
            {"by_volume", volumes}, {"rails", rails}};
}

const char* name_of(WaySegment::Kind kind) {
    constexpr const char* names[kWayKinds] = {"compute", "host", "on_node", "operation", "dark", "occupied", "control"};
    return names[static_cast<std::size_t>(kind)];
}

json json_of(const LongestWay& way, const std::vector<std::string>& labels) {
    json sums = json::object(), segments = json::array();
    for (std::size_t k = 0; k < kWayKinds; ++k) {
        const auto kind = static_cast<WaySegment::Kind>(k);
        sums[name_of(kind)] = way.of_kind(kind);
    }
    for (std::size_t i = 0; i < way.segments.size() && i < kSegments; ++i) {
        const WaySegment& s = way.segments[i];
        const bool named = s.kind != WaySegment::Kind::compute && s.kind != WaySegment::Kind::host;
        segments.push_back({{"kind", name_of(s.kind)},
                            {"operation", named ? json(labels[s.label]) : json()},
                            {"rank", s.rank},
                            {"from_ms", static_cast<double>(s.from_ns) / 1e6},
                            {"to_ms", static_cast<double>(s.to_ns) / 1e6},
                            {"ms", static_cast<double>(s.to_ns - s.from_ns) / 1e6}});
    }
    return {{"iteration", way.iteration},
            {"ms", way.ms},
            {"ms_by_kind", sums},
            {"segments", segments},
            {"segments_left_out", way.segments.size() - segments.size()}};
}

json json_of(const Answers& a, const std::vector<std::string>& labels, double iterations) {
    if (!a.any) return {};
    json phases = json::array(), rails = json::array();
    for (const DarkPhase& p : a.rails.phases) {
        if (p.operations == 0) continue;
        phases.push_back({{"operation", labels[p.label]},
                          {"operations", static_cast<double>(p.operations) / iterations},
                          {"moved", static_cast<double>(p.moved) / iterations},
                          {"dark_ms", p.dark_ms / iterations},
                          {"exposed_ms", p.exposed_ms / iterations},
                          {"hidden_ms", (p.dark_ms - p.exposed_ms) / iterations},
                          {"held_ms", p.held_ms / iterations}});
    }
    for (const PortShares& rail : a.rails.rails) rails.push_back(json_of(rail));
    return {{"communicating", a.used},
            {"ports", json_of(a.rails.all)},
            {"ports_by_rail", rails},
            {"phases", phases},
            {"unused_moves", static_cast<double>(a.rails.unused) / iterations},
            {"longest_way", json_of(a.way, labels)},
            {"load",
             {{"messages_up", a.messages_up},
              {"messages_down", a.messages_down},
              {"messages_a_second", a.messages_a_second},
              {"decisions", a.decisions}}}};
}

json json_of(const VariantFigures& v, double lit) {
    return {{"iteration_ms", v.iteration_ms}, {"over_electrical", lit > 0 ? v.iteration_ms / lit - 1 : 0},
            {"held_ms", v.held_ms},           {"reconfigurations", v.reconfigurations},
            {"dark_hidden", v.hidden},        {"messages", v.messages},
            {"crowded", v.crowded},           {"unroutable", v.unroutable}};
}

json over(double ms, double lit) { return ms > 0 && lit > 0 ? json(ms / lit - 1) : json(); }

json json_of(const StaticSplit& split, double lit) {
    return {{"iteration_ms", maybe(split.iteration_ms)},
            {"over_electrical", over(split.iteration_ms, lit)},
            {"needed_ports", split.needed_ports},
            {"circuits", split.circuits},
            {"tried", split.tried}};
}

json json_of(const Spread& s) { return {{"least", s.least}, {"mean", s.mean}, {"most", s.most}}; }

json alternatives_json(const Run& run) {
    json all = json::array();
    for (const Alternative& a : run.alternatives) {
        json points = json::array();
        for (const Alternative::At& at : a.points)
            points.push_back({{"dark_ms", at.dark_ms},
                              {"on_demand_ms", maybe(at.demand_ms)},
                              {"on_demand_over_electrical", over(at.demand_ms, run.electrical.iteration_ms)},
                              {"provisioned_ms", maybe(at.provisioned_ms)},
                              {"provisioned_over_electrical", over(at.provisioned_ms, run.electrical.iteration_ms)}});
        all.push_back({{"ports", a.ports},
                       {"static_split", json_of(a.split, run.electrical.iteration_ms)},
                       {"unserved", a.unserved.names},
                       {"unserved_share", a.unserved.share},
                       {"points", points}});
    }
    return all;
}

// Of the windows; from their distribution, in steps of a percent.
json longer(const Windows& w, double ms) {
    if (w.cdf_ms.empty()) return {};
    const auto first = std::upper_bound(w.cdf_ms.begin() + 1, w.cdf_ms.end(), ms);
    return static_cast<double>(w.cdf_ms.end() - first) / 100;
}

json conclusion_json(const Conclusion& v, const Run& run) {
    constexpr const char* answers[] = {"yes", "with changes", "no"};
    json technologies = json::array();
    for (const TechnologyFit& t : v.technologies)
        technologies.push_back({{"name", t.technology->name},
                                {"dark_ms", t.dark_ms},
                                {"switch_ports", t.technology->ports},
                                {"rail_ports", t.rail_ports},
                                {"fits", t.fits},
                                {"windows_longer", longer(run.windows, t.dark_ms)},
                                {"point", t.point != nullptr ? json(t.point - run.points.data()) : json()}});
    return {{"answer", answers[static_cast<std::size_t>(v.answer)]},
            {"sentence", v.sentence},
            {"dark_ms", v.point != nullptr ? json(v.point->dark_ms) : json()},
            {"point", v.point != nullptr ? json(v.point - run.points.data()) : json()},
            {"changes", v.changes},
            {"technologies", technologies}};
}

json points_json(const Run& run) {
    json points = json::array();
    const double lit = run.electrical.iteration_ms;
    for (std::size_t i = 0; i < run.points.size(); ++i) {
        const Point& p = run.points[i];
        json point = {
            {"dark_ms", p.dark_ms}, {"on_demand", json_of(p.demand, lit)}, {"provisioned", json_of(p.provisioned, lit)}};
        if (p.demand_answers.any) point["on_demand"].update(json_of(p.demand_answers, run.labels, run.counted));
        if (p.provisioned_answers.any)
            point["provisioned"].update(json_of(p.provisioned_answers, run.labels, run.counted));
        if (!run.seeds.empty()) {
            point["on_demand"]["spread"] = json_of(spread_of(run.seeds, i, &SeedTimes::At::demand_ms));
            point["provisioned"]["spread"] = json_of(spread_of(run.seeds, i, &SeedTimes::At::provisioned_ms));
        }
        point["best_found_ms"] = maybe(p.best_ms);
        point["best_found_over_electrical"] = over(p.best_ms, lit);
        point["bound_ms"] = maybe(p.bound_ms);
        point["bound_over_electrical"] = over(p.bound_ms > 0 ? std::max(p.bound_ms, lit) : 0, lit);
        points.push_back(std::move(point));
    }
    return points;
}

}  // namespace

json run_json(const JobFile& job, const Run& run, const RunOptions& o, double accept, const cost::Inputs& priced) {
    json all = {{"name", job.workload.name},
                {"format", job.format},
                {"static_split", json_of(run.split, run.electrical.iteration_ms)},
                {"ranks", job.workload.world()},
                {"ports", o.ports},
                {"iterations", run.iterations},
                {"counted", run.counted},
                {"rails_alike", run.rails},
                {"nodes", run.nodes},
                {"gbits", o.out_gbits},
                {"packet_gbits", o.packet_gbits ? json(*o.packet_gbits) : json()},
                {"accept", accept},
                {"electrical_ms", run.electrical.iteration_ms},
                {"points", points_json(run)},
                {"assumed", job.assumed}};
    if (!run.lit_answers.any) return all;
    all["unserved"] = run.unserved.names, all["unserved_share"] = run.unserved.share;
    all["electrical"] = {{"communicating", run.lit_answers.used}, {"longest_way", json_of(run.lit_answers.way, run.labels)}};
    all["windows"] = json_of(run.windows, run.labels);
    all["alternatives"] = alternatives_json(run);
    const Conclusion conclusion = conclusion_of(run, o, accept);
    all["conclusion"] = conclusion_json(conclusion, run);
    all["cost"] = job_cost_json(job, run, o, conclusion, priced);
    return all;
}

}  // namespace opus::job
