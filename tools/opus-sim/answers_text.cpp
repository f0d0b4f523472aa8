// What `opus-sim run` prints below its table.
#include <algorithm>
#include <cstdio>

#include "tools/ctl/table.h"
#include "tools/opus-sim/advice.h"
#include "tools/opus-sim/commands.h"
#include "tools/opus-sim/number_text.h"

namespace opus::job {
namespace {

// Beyond, --json.
constexpr std::size_t kTransitions = 6, kPhases = 6;

void print_windows(const Run& run) {
    const Windows& w = run.windows;
    if (w.all.count == 0) {
        std::printf("\nwindows: none; no GPU has idle time between operations of different communicators\n");
        return;
    }
    const double count = static_cast<double>(w.all.count) / w.iterations;
    std::printf(
        "\nwindows (idle time of a GPU's ports between phases, on electrical rails): %.0f an iteration on %.0f GPUs, "
        "%.1f each; median %s, longest %s\n",
        count, w.gpus, count / std::max(1.0, w.gpus), ctl::duration(w.all.median_ms).c_str(),
        ctl::duration(w.all.most_ms).c_str());
    ctl::Table table({"window between", "and", "an iteration", "median", "mean", "then a GPU sends or receives"});
    for (std::size_t i = 0; i < w.transitions.size() && i < kTransitions; ++i) {
        const Windows::Transition& t = w.transitions[i];
        if (t.sums.count == 0) continue;
        table.add({run.labels[t.from], run.labels[t.to],
                   number_text("%.0f", static_cast<double>(t.sums.count) / w.iterations), ctl::duration(t.sums.median_ms),
                   ctl::duration(t.sums.mean_ms), ctl::bytes(static_cast<unsigned long long>(t.sums.bytes))});
    }
    table.print(stdout);
    if (w.transitions.size() > kTransitions) std::printf("%zu more: --json\n", w.transitions.size() - kTransitions);
}

void print_phases(const Run& run, const Point& p) {
    std::vector<const DarkPhase*> phases;
    for (const DarkPhase& phase : p.provisioned_answers.rails.phases)
        if (phase.moved != 0) phases.push_back(&phase);
    if (phases.empty()) return;
    std::stable_sort(phases.begin(), phases.end(),
                     [](const DarkPhase* a, const DarkPhase* b) { return a->dark_ms > b->dark_ms; });
    std::printf("\ndark time at %s, provisioned, of an iteration, summed over operations:\n", dark_text(p.dark_ms).c_str());
    ctl::Table table({"before", "operations", "moved for", "dark", "hidden", "waited for"});
    for (std::size_t i = 0; i < phases.size() && i < kPhases; ++i) {
        const DarkPhase& d = *phases[i];
        table.add({run.labels[d.label], number_text("%.0f", static_cast<double>(d.operations) / run.counted),
                   number_text("%.0f", static_cast<double>(d.moved) / run.counted), ctl::duration(d.dark_ms / run.counted),
                   ctl::duration((d.dark_ms - d.exposed_ms) / run.counted), ctl::duration(d.exposed_ms / run.counted)});
    }
    table.print(stdout);
}

void print_way(const char* what, const Answers& a) {
    if (!a.any) return;
    using Kind = WaySegment::Kind;
    std::printf(
        "  %-12s computing %s, on nodes %s, between nodes %s, dark %s, ports in use by others %s, messages %s\n", what,
        ctl::duration(a.way.of_kind(Kind::compute) + a.way.of_kind(Kind::host)).c_str(),
        ctl::duration(a.way.of_kind(Kind::on_node)).c_str(), ctl::duration(a.way.of_kind(Kind::operation)).c_str(),
        ctl::duration(a.way.of_kind(Kind::dark)).c_str(), ctl::duration(a.way.of_kind(Kind::occupied)).c_str(),
        ctl::duration(a.way.of_kind(Kind::control)).c_str());
}

void print_ports(const char* what, const Answers& a) {
    if (!a.any) return;
    const PortShares& s = a.rails.all;
    std::printf(
        "  %-12s busy %.0f %%, lit and idle %.0f %%, dark %.0f %%, unlit %.0f %%; %.0f messages and %.0f decisions an "
        "iteration, %.0f messages a second\n",
        what, 100 * s.busy, 100 * s.idle, 100 * s.dark, 100 * s.unlit, a.messages_up + a.messages_down, a.decisions,
        a.messages_a_second);
}

void print_spread(const Run& run) {
    if (run.seeds.empty()) return;
    std::printf("\n%zu seeds, over electrical rails with the same noise: least, mean, most\n", run.seeds.size());
    ctl::Table table({"dark time", "on demand", "provisioned"});
    const auto text = [&](std::size_t point, double SeedTimes::At::*variant) {
        const Spread s = spread_of(run.seeds, point, variant);
        return number_text("%+.2f %%", 100 * s.least) + number_text("  %+.2f %%", 100 * s.mean) +
               number_text("  %+.2f %%", 100 * s.most);
    };
    for (std::size_t i = 0; i < run.points.size(); ++i)
        table.add({dark_text(run.points[i].dark_ms), text(i, &SeedTimes::At::demand_ms),
                   text(i, &SeedTimes::At::provisioned_ms)});
    table.print(stdout);
}

}  // namespace

void print_answers(const Run& run, const RunOptions& o, double accept) {
    print_spread(run);
    if (!run.lit_answers.any || run.points.empty()) return;
    const Conclusion conclusion = conclusion_of(run, o, accept);
    const Point& p = conclusion.point != nullptr ? *conclusion.point : run.points.front();
    print_windows(run);
    print_phases(run, p);
    std::printf("\nthe longest way through an iteration, at %s:\n", dark_text(p.dark_ms).c_str());
    print_way("electrical", run.lit_answers);
    print_way("on demand", p.demand_answers);
    print_way("provisioned", p.provisioned_answers);
    std::printf("ports and controller, at %s:\n", dark_text(p.dark_ms).c_str());
    print_ports("on demand", p.demand_answers);
    print_ports("provisioned", p.provisioned_answers);
    std::printf("\n%s\n", conclusion.sentence.c_str());
    for (const std::string& change : conclusion.changes) std::printf("- %s\n", change.c_str());
}

}  // namespace opus::job
