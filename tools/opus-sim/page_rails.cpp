// Sections that look at one iteration: rails, the longest way through it, dark time, ports.
#include <algorithm>
#include <map>
#include <numeric>

#include "tools/opus-sim/page_plots.h"
#include "tools/opus-sim/page_sections.h"

namespace opus::job {
namespace {

using Kind = WaySegment::Kind;

struct Variants {
    const char* name;
    const char* place;  // in the JSON, below the point; of electrical rails: from the top
    const Answers* answers;
};

std::vector<Variants> variants_of(const PageInput& in) {
    const Point& p = *in.conclusion.point;
    std::vector<Variants> all;
    for (const Variants& v : {Variants{"electrical", "/electrical", &in.run.lit_answers},
                              Variants{"on demand", "/on_demand", &p.demand_answers},
                              Variants{"provisioned", "/provisioned", &p.provisioned_answers}})
        if (v.answers->any) all.push_back(v);
    return all;
}
std::string place_of(const PageInput& in, const Variants& v) {
    const std::string point = "/points/" + std::to_string(in.conclusion.point - in.run.points.data());
    return v.answers == &in.run.lit_answers ? v.place : point + v.place;
}
std::string at_dark_time(const PageInput& in) {
    return " at " + with_micro(dark_text(in.conclusion.point->dark_ms)) + " a move";
}

constexpr const char* kKindNames[kWayKinds] = {"computing",
                                               "host",
                                               "operations on nodes",
                                               "operations between nodes",
                                               "dark: circuits are being turned",
                                               "ports serve others",
                                               "messages, and plans"};
constexpr const char* kKindColors[kWayKinds] = {"compute", "host",     "onnode", "operation",
                                                "waited",  "occupied", "control"};
constexpr const char* kKindPlaces[kWayKinds] = {"compute", "host",     "on_node", "operation",
                                                "dark",    "occupied", "control"};

// Colours of operations: those that take most time have one each.
std::map<std::uint32_t, std::size_t> label_colors(const Answers& a) {
    std::map<std::uint32_t, std::int64_t> ns;
    for (const TimelineRow& row : a.timeline)
        for (const TimelineSpan& s : row.spans)
            if (s.kind == TimelineSpan::Kind::operation) ns[s.label] += s.to_ns - s.from_ns;
    std::vector<std::pair<std::int64_t, std::uint32_t>> order;
    for (const auto& [label, sum] : ns) order.emplace_back(-sum, label);
    std::sort(order.begin(), order.end());
    std::map<std::uint32_t, std::size_t> colors;
    for (std::size_t i = 0; i < order.size(); ++i) colors[order[i].second] = std::min<std::size_t>(i, 7);
    return colors;
}

Panel panel_of(const PageInput& in, const Variants& v, const std::map<std::uint32_t, std::size_t>& colors) {
    Panel panel;
    panel.title = v.name, panel.end = v.answers->way.ms;
    for (const TimelineRow& row : v.answers->timeline) {
        PanelRow& out = panel.rows.emplace_back();
        out.name = row.name;
        for (const TimelineSpan& s : row.spans) {
            const double from = static_cast<double>(s.from_ns) / 1e6, to = static_cast<double>(s.to_ns) / 1e6;
            const std::string length = ", " + duration_text(to - from);
            if (s.kind == TimelineSpan::Kind::dark)
                out.spans.push_back({from, to, 1, color("waited"), "dark" + length});
            else if (s.kind == TimelineSpan::Kind::operation) {
                const auto at = colors.find(s.label);
                out.spans.push_back(
                    {from, to, 0, color(at == colors.end() ? 7 : at->second), in.run.labels[s.label] + length});
            }
        }
    }
    return panel;
}

std::string longest_waits(const PageInput& in, const Variants& v) {
    std::vector<std::size_t> waits;
    const std::vector<WaySegment>& all = v.answers->way.segments;
    constexpr std::size_t kShown = 8, kInData = 2000;
    for (std::size_t i = 0; i < all.size() && i < kInData; ++i)
        if (all[i].kind >= Kind::dark) waits.push_back(i);
    std::stable_sort(waits.begin(), waits.end(), [&](std::size_t a, std::size_t b) {
        return all[a].to_ns - all[a].from_ns > all[b].to_ns - all[b].from_ns;
    });
    if (waits.size() > kShown) waits.resize(kShown);
    std::sort(waits.begin(), waits.end());
    PageTable table({"waits", "for", "from", "lasts"});
    for (const std::size_t i : waits) {
        const std::string place = place_of(in, v) + "/longest_way/segments/" + std::to_string(i);
        table.add({escaped(in.run.labels[all[i].label]) + ", rank " + std::to_string(all[i].rank),
                   kKindNames[static_cast<std::size_t>(all[i].kind)], in.figures.figure(place + "/from_ms", Shown::duration),
                   in.figures.figure(place + "/ms", Shown::duration)});
    }
    return table.empty() ? "" : table.html("The longest waits on it, " + std::string(v.name));
}

}  // namespace

PageSection timeline_section(const PageInput& in) {
    const std::vector<Variants> variants = variants_of(in);
    if (variants.empty() || variants[0].answers->timeline.empty()) return {};
    const std::map<std::uint32_t, std::size_t> colors = label_colors(*variants[0].answers);
    std::vector<Panel> panels;
    for (const Variants& v : variants) panels.push_back(panel_of(in, v, colors));
    std::vector<std::pair<std::string, std::string>> entries;
    for (std::size_t c = 0; c < 8; ++c)
        for (const auto& [label, number] : colors)
            if (number == c) {
                if (c == 7)
                    entries.emplace_back("other operations", color(7));
                else
                    entries.emplace_back(in.run.labels[label], color(c));
                break;
            }
    entries.emplace_back("a port of the GPU is dark", color("waited"));
    return {"rails", "A rail over an iteration",
            "<p>What GPUs of one rail do in the last iteration that was played, between nodes," + at_dark_time(in) +
                ". Each row is a GPU" +
                (panels[0].rows.size() == kTimelineRows ? " (of more, " + std::to_string(kTimelineRows) + " that lie evenly)"
                                                        : "") +
                "; the strip below it shows its ports being turned.</p><figure>" +
                time_plot("A rail over an iteration", panels, 17) + legend(entries) + "</figure>"};
}

PageSection way_section(const PageInput& in) {
    const std::vector<Variants> variants = variants_of(in);
    if (variants.empty()) return {};
    std::vector<Panel> panels;
    std::vector<std::string> header{"of the longest way"};
    for (const Variants& v : variants) {
        Panel& panel = panels.emplace_back();
        panel.title = v.name, panel.end = v.answers->way.ms;
        PanelRow& row = panel.rows.emplace_back();
        row.name = duration_text(v.answers->way.ms);
        for (const WaySegment& s : v.answers->way.segments) {
            const auto kind = static_cast<std::size_t>(s.kind);
            const double from = static_cast<double>(s.from_ns) / 1e6, to = static_cast<double>(s.to_ns) / 1e6;
            std::string title = kKindNames[kind];
            if (s.kind != Kind::compute && s.kind != Kind::host) title += ": " + in.run.labels[s.label];
            title += ", rank " + std::to_string(s.rank) + ", " + duration_text(to - from);
            row.spans.push_back({from, to, 0, color(kKindColors[kind]), title});
            if (s.kind == Kind::dark) row.spans.push_back({from, to, 1, color("waited"), title});
        }
        header.emplace_back(v.name);
    }
    PageTable table(header);
    std::vector<std::pair<std::string, std::string>> entries;
    for (std::size_t k = 0; k < kWayKinds; ++k) {
        std::vector<std::string> row{kKindNames[k]};
        bool any = false;
        for (const Variants& v : variants) {
            any |= v.answers->way.of_kind(static_cast<Kind>(k)) > 0;
            row.push_back(in.figures.figure(place_of(in, v) + "/longest_way/ms_by_kind/" + kKindPlaces[k], Shown::duration));
        }
        if (!any) continue;
        table.add(std::move(row));
        entries.emplace_back(kKindNames[k], color(kKindColors[k]));
    }
    std::vector<std::string> sum{"the iteration"};
    for (const Variants& v : variants)
        sum.push_back(in.figures.figure(place_of(in, v) + "/longest_way/ms", Shown::duration));
    table.add(std::move(sum));
    return {"way", "The longest way through the iteration",
            "<p>From the end of the last iteration back to its beginning, always to what was awaited last," +
                at_dark_time(in) +
                ". Whatever is not on it costs nothing. Dark time on it is marked below the bar. An operation that has "
                "fewer circuits than its "
                "GPUs have ports takes longer than on electrical rails.</p><figure>" +
                time_plot("The longest way through the iteration", panels, 44) + legend(entries) + "</figure>" +
                "<div class=\"pair\">" + table.html("") + longest_waits(in, variants.back()) + "</div>"};
}

PageSection dark_section(const PageInput& in) {
    const Answers& a = in.conclusion.point->provisioned_answers;
    if (!a.any) return {};
    const std::string point = "/points/" + std::to_string(in.conclusion.point - in.run.points.data());
    std::vector<const DarkPhase*> phases;
    std::map<const DarkPhase*, std::size_t> number;  // in the JSON, which lists those with operations
    for (const DarkPhase& phase : a.rails.phases) {
        if (phase.operations == 0) continue;
        number[&phase] = number.size();
        phases.push_back(&phase);
    }
    std::stable_sort(phases.begin(), phases.end(), [](const auto* x, const auto* y) { return x->dark_ms > y->dark_ms; });
    std::vector<Bar> bars;
    PageTable table({"before", "operations", "moved for", "dark", "hidden", "waited for"});
    for (const DarkPhase* phase : phases) {
        const std::string place = point + "/provisioned/phases/" + std::to_string(number[phase]);
        table.add({escaped(in.run.labels[phase->label]), in.figures.figure(place + "/operations", Shown::count),
                   in.figures.figure(place + "/moved", Shown::count), in.figures.figure(place + "/dark_ms", Shown::duration),
                   in.figures.figure(place + "/hidden_ms", Shown::duration),
                   in.figures.figure(place + "/exposed_ms", Shown::duration)});
        if (phase->moved == 0) continue;
        const double exposed = phase->exposed_ms / in.run.counted, dark = phase->dark_ms / in.run.counted;
        bars.push_back({in.run.labels[phase->label],
                        {{exposed, color("waited"), "waited for: " + duration_text(exposed)},
                         {dark - exposed, color("hidden"), "hidden: " + duration_text(dark - exposed)}},
                        duration_text(dark)});
    }
    if (bars.empty())
        return {"dark", "Dark time by phase",
                "<p>Nothing moves in an iteration once the job is learned.</p>" + table.html("Provisioned")};
    return {"dark", "Dark time by phase",
            "<p>Of an iteration, provisioned," + at_dark_time(in) +
                ", summed over operations: how long circuits were being turned for them, and how much of that they "
                "waited for once "
                "all their members were there.</p>" +
                "<div class=\"pair\"><figure>" + bar_plot("Dark time by phase", bars, 0) +
                legend({{"waited for", color("waited")}, {"hidden in windows", color("hidden")}}) + "</figure>" +
                table.html("") + "</div>"};
}

PageSection load_section(const PageInput& in) {
    std::vector<Bar> bars;
    PageTable table({"dark time", "variant", "busy", "lit, idle", "dark", "unlit", "moves", "messages", "decisions",
                     "messages a second"});
    for (std::size_t i = 0; i < in.run.points.size(); ++i) {
        const Point& p = in.run.points[i];
        for (const bool ahead : {false, true}) {
            const Answers& a = ahead ? p.provisioned_answers : p.demand_answers;
            if (!a.any) continue;
            const std::string place = "/points/" + std::to_string(i) + (ahead ? "/provisioned" : "/on_demand");
            const PortShares& s = a.rails.all;
            const std::string dark = with_micro(dark_text(p.dark_ms)), name = ahead ? "provisioned" : "on demand";
            bars.push_back({dark + ", " + name,
                            {{s.busy, color("busy"), number_text("busy: %.1f %%", 100 * s.busy)},
                             {s.idle, color("idle"), number_text("lit and idle: %.1f %%", 100 * s.idle)},
                             {s.dark, color("waited"), number_text("dark: %.1f %%", 100 * s.dark)},
                             {s.unlit, color("unlit"), number_text("unlit: %.1f %%", 100 * s.unlit)}},
                            ""});
            const auto share = [&](const char* what) {
                return in.figures.figure(place + "/ports/" + what, Shown::share);
            };
            const auto load = [&](const char* what) { return in.figures.figure(place + "/load/" + what, Shown::count); };
            const auto& up = in.figures.figure(place + "/load/messages_up", Shown::count);
            table.add({dark, name, share("busy"), share("idle"), share("dark"), share("unlit"),
                       in.figures.figure(place + "/reconfigurations", Shown::count), up + " + " + load("messages_down"),
                       load("decisions"), load("messages_a_second")},
                      &p == in.conclusion.point ? "chosen" : "");
        }
    }
    if (bars.empty()) return {};
    return {
        "load", "Ports and controller",
        "<p>What all optical ports of the job do, of all their time; and what the controller has to do for an "
        "iteration: moves of circuits, messages of "
        "managers + its own, events that it decides about. On electrical rails a GPU communicates between nodes for " +
            in.figures.figure("/electrical/communicating", Shown::share) + " of the time.</p><figure>" +
            bar_plot("Port use", bars, 1) +
            legend({{"busy", color("busy")}, {"lit and idle", color("idle")}, {"dark", color("waited")}, {"unlit", color("unlit")}}) +
            "</figure>" + table.html("")};
}

PageSection basis_section(const PageInput& in) {
    std::string text =
        "<p>Played in virtual time by the cores of Opus's manager and controller: " +
        in.figures.figure("/iterations", Shown::count) +
        (in.run.iterations == 1 ? " iteration, " : " iterations, of which the last ") +
        (in.run.iterations == 1 ? "which counts" : in.figures.figure("/counted", Shown::count) + " count") +
        ". Between nodes " + in.figures.figure("/gbits", Shown::count) + " Gbit/s a GPU and " +
        number_text("%g", in.options.out_us) + " µs a step; within a node " +
        number_text("%g", in.options.node_gbytes) + " GB/s and " + number_text("%g", in.options.node_us) + " µs.";
    if (in.run.rails > 1)
        text += " The " + in.figures.figure("/rails_alike", Shown::count) +
                " GPUs of a node do the same, each on a rail of its own: one rail was played for all.";
    text += "</p>";
    if (in.figures.has("/cost"))
        text += "<p>Cost and power are counted by the method of the papers on photonic rails; prices are " +
                escaped(in.figures["/cost/prices/source"].get<std::string>()) + ".</p>";
    if (!in.job.assumed.empty()) {
        text += "<p>What the job's files do not say was assumed:</p><ul>";
        for (const std::string& line : in.job.assumed) text += "<li>" + escaped(line) + "</li>";
        text += "</ul>";
    }
    return {"basis", "What this rests on", text};
}

}  // namespace opus::job
