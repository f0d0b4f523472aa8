#include "tools/opus-sim/page_sections.h"

#include <algorithm>

#include "tools/opus-sim/page_plots.h"

namespace opus::job {
namespace {

std::string point_place(const PageInput& in, const Point* point) {
    return "/points/" + std::to_string(point - in.run.points.data());
}

std::vector<Mark> technology_marks() {
    std::vector<Mark> marks;
    for (const Technology& t : kTechnologies)
        marks.push_back({static_cast<double>(t.dark_ns) / 1e6, std::string(t.name)});
    return marks;
}

std::vector<const Point*> by_dark_time(const Run& run) {
    std::vector<const Point*> points;
    for (const Point& p : run.points) points.push_back(&p);
    std::stable_sort(points.begin(), points.end(), [](const Point* a, const Point* b) { return a->dark_ms < b->dark_ms; });
    return points;
}

std::string nice_dark(double ms) { return with_micro(dark_text(ms)); }

std::string pair_of(const std::string& figure, const std::string& table) {
    return "<div class=\"pair\"><figure>" + figure + "</figure>" + table + "</div>\n";
}

std::string within(const PageInput& in, std::optional<double> loss) {
    if (!loss) return "&ndash;";
    return *loss <= in.accept ? "<span class=\"ok\">yes</span>" : "<span class=\"not\">no</span>";
}

std::string served_text(const std::vector<std::string>& unserved) {
    if (unserved.empty()) return "all";
    return "all but " + escaped(unserved.front()) +
           (unserved.size() == 1 ? "" : " and " + std::to_string(unserved.size() - 1) + " more");
}

std::string spread_table(const PageInput& in) {
    if (in.run.seeds.empty()) return "";
    PageTable table({"dark time", "on demand: least", "mean", "most", "provisioned: least", "mean", "most"});
    for (const Point* p : by_dark_time(in.run)) {
        std::vector<std::string> row{nice_dark(p->dark_ms)};
        for (const char* variant : {"on_demand", "provisioned"})
            for (const char* what : {"least", "mean", "most"})
                row.push_back(in.figures.figure(point_place(in, p) + "/" + variant + "/spread/" + what, Shown::over));
        table.add(std::move(row));
    }
    return table.html("Of " + std::to_string(in.run.seeds.size()) +
                      " seeds, each over electrical rails with the same noise");
}

}  // namespace

PageSection times_section(const PageInput& in) {
    const double lit = in.run.electrical.iteration_ms;
    Curve split{"static split", color("c2"), "9 4", {}}, demand{"on demand", color("c1"), "", {}},
        ahead{"provisioned", color("c0"), "", {}}, best{"best found", color("c3"), "5 4", {}},
        bound{"bound", color("c7"), "2 4", {}}, electrical{"electrical", color("soft"), "1 5", {}};
    PageTable table({"dark time", "on demand", "provisioned", "best found", "bound"});
    for (const Point* p : by_dark_time(in.run)) {
        const auto put = [&](Curve& curve, double ms) {
            if (ms > 0) curve.points.emplace_back(p->dark_ms, ms / lit - 1);
        };
        put(electrical, lit), put(split, in.run.split.iteration_ms);
        put(demand, p->demand.iteration_ms), put(ahead, p->provisioned.iteration_ms), put(best, p->best_ms);
        if (p->bound_ms > 0) put(bound, std::max(p->bound_ms, lit));
        const std::string place = point_place(in, p);
        table.add({nice_dark(p->dark_ms), in.figures.figure(place + "/on_demand/over_electrical", Shown::over),
                   in.figures.figure(place + "/provisioned/over_electrical", Shown::over),
                   in.figures.figure(place + "/best_found_over_electrical", Shown::over),
                   in.figures.figure(place + "/bound_over_electrical", Shown::over)},
                  p == in.conclusion.point ? "chosen" : "");
    }
    std::vector<Curve> curves;
    for (const Curve* c : {&electrical, &bound, &best, &split, &demand, &ahead})
        if (!c->points.empty()) curves.push_back(*c);
    std::string text =
        "<p>Longer than the " + in.figures.figure("/electrical_ms", Shown::duration) +
        " of an iteration on electrical rails. <em>On demand</em>, circuits move when an operation asks for them; "
        "<em>provisioned</em>, the controller has learned the job and moves them ahead. <em>Best found</em> knows the "
        "future, "
        "and no schedule is below the <em>bound</em>.</p>";
    if (in.run.split.iteration_ms > 0)
        text += "<p>A <em>static split</em> never moves a circuit: " +
                in.figures.figure("/static_split/over_electrical", Shown::over) + " at any dark time, with " +
                escaped(split_list(in.run.split)) + " (circuits of each pair of neighbours).</p>";
    else if (in.run.split.needed_ports > in.options.ports)
        text += "<p>There is no <em>static split</em>: some GPU has " +
                in.figures.figure("/static_split/needed_ports", Shown::count) + " neighbours, and " +
                in.figures.figure("/ports", Shown::count) + (in.options.ports == 1 ? " port.</p>" : " ports.</p>");
    return {"times", "Iteration time against dark time",
            text +
                pair_of(loss_plot(curves, in.accept, technology_marks()) +
                            "<figcaption>Both axes are logarithmic; what is 0.1 % or less lies on the lowest "
                            "line.</figcaption>",
                        table.html("Over electrical rails")) +
                spread_table(in)};
}

PageSection technologies_section(const PageInput& in) {
    PageTable table({"technology", "dark time of a move", "ports of a switch", "a rail needs",
                     "windows that are longer", "on demand", "provisioned", "best found", "fast enough"});
    for (std::size_t i = 0; i < in.conclusion.technologies.size(); ++i) {
        const TechnologyFit& t = in.conclusion.technologies[i];
        const std::string place = "/conclusion/technologies/" + std::to_string(i);
        const std::string point = t.point != nullptr ? point_place(in, t.point) : "/nowhere";
        std::string rail = in.figures.figure(place + "/rail_ports", Shown::count);
        if (t.technology->ports == 0)
            rail = "no switch of its own";
        else
            rail += t.fits ? "" : " <span class=\"not\">(more than one)</span>";
        table.add({escaped(std::string(t.technology->name)) + " <span class=\"soft\">" +
                       escaped(with_micro(std::string(t.technology->note))) + "</span>",
                   nice_dark(t.dark_ms),
                   t.technology->ports != 0 ? in.figures.figure(place + "/switch_ports", Shown::count) : "&ndash;",
                   rail, in.figures.figure(place + "/windows_longer", Shown::share),
                   in.figures.figure(point + "/on_demand/over_electrical", Shown::over),
                   in.figures.figure(point + "/provisioned/over_electrical", Shown::over),
                   in.figures.figure(point + "/best_found_over_electrical", Shown::over),
                   t.point != nullptr
                       ? within(in, moved_of(t.point->demand.iteration_ms, t.point->provisioned.iteration_ms, in.run).loss)
                       : "only between jobs"},
                  t.point != nullptr && t.point == in.conclusion.point ? "chosen" : "");
    }
    return {"technologies", "With which technology",
            "<p>Fast enough: on demand or provisioned, an iteration takes no more than " +
                in.figures.figure("/accept", Shown::share) +
                " longer than on electrical rails. A rail needs a port of a switch for each port of each of its GPUs; "
                "where that is more "
                "than one switch has, a rail takes several, which join only their own ports.</p>" +
                table.html("")};
}

PageSection ports_section(const PageInput& in) {
    if (in.run.alternatives.empty() || in.conclusion.point == nullptr) return {};
    const std::size_t at = static_cast<std::size_t>(in.conclusion.point - in.run.points.data());
    struct Row {
        std::uint32_t ports;
        std::vector<std::string> cells;
    };
    std::vector<Row> rows;
    const std::string point = point_place(in, in.conclusion.point);
    rows.push_back(
        {in.options.ports,
         {in.figures.figure("/ports", Shown::count) + " (played throughout)",
          in.figures.figure("/static_split/over_electrical", Shown::over), escaped(split_list(in.run.split)),
          in.figures.figure(point + "/on_demand/over_electrical", Shown::over),
          in.figures.figure(point + "/provisioned/over_electrical", Shown::over), served_text(in.run.unserved.names)}});
    for (std::size_t i = 0; i < in.run.alternatives.size(); ++i) {
        const Alternative& a = in.run.alternatives[i];
        const std::string place = "/alternatives/" + std::to_string(i), there = place + "/points/" + std::to_string(at);
        rows.push_back(
            {a.ports,
             {in.figures.figure(place + "/ports", Shown::count),
              in.figures.figure(place + "/static_split/over_electrical", Shown::over), escaped(split_list(a.split)),
              in.figures.figure(there + "/on_demand_over_electrical", Shown::over),
              in.figures.figure(there + "/provisioned_over_electrical", Shown::over), served_text(a.unserved.names)}});
    }
    std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.ports < b.ports; });
    PageTable table({"ports of a GPU", "static split", "circuits of a pair, split", "on demand", "provisioned",
                     "operations served"});
    for (Row& row : rows) {
        if (row.cells[2].empty()) row.cells[2] = "&ndash;";
        table.add(std::move(row.cells), row.ports == in.options.ports ? "chosen" : "");
    }
    return {"ports", "How many ports",
            "<p>A GPU's ports share " + in.figures.figure("/gbits", Shown::count) +
                " Gbit/s, however many there are. On demand and provisioned at " + nice_dark(in.conclusion.point->dark_ms) +
                " a move. Operations that ports cannot serve ran as on a packet network.</p>" + table.html("")};
}

PageSection windows_section(const PageInput& in) {
    const Windows& w = in.run.windows;
    if (w.cdf_ms.empty())
        return {"windows", "Windows", "<p>No GPU has idle time between operations of different communicators.</p>"};
    PageTable transitions({"between", "and", "an iteration", "median", "longest", "then sent or received"});
    constexpr std::size_t kShown = 10;
    for (std::size_t i = 0; i < w.transitions.size() && i < kShown; ++i) {
        const std::string place = "/windows/transitions/" + std::to_string(i);
        if (w.transitions[i].sums.count == 0) continue;
        transitions.add({escaped(in.run.labels[w.transitions[i].from]), escaped(in.run.labels[w.transitions[i].to]),
                         in.figures.figure(place + "/per_iteration", Shown::count),
                         in.figures.figure(place + "/median_ms", Shown::duration),
                         in.figures.figure(place + "/most_ms", Shown::duration),
                         in.figures.figure(place + "/next_bytes", Shown::bytes)});
    }
    PageTable volumes({"then sent or received", "an iteration", "median", "longest"});
    const char* names[] = {"less than 1 MB", "1 to 10 MB", "10 to 100 MB", "100 MB to 1 GB", "1 GB or more"};
    for (std::size_t i = 0; i < w.by_volume.size(); ++i) {
        const std::string place = "/windows/by_volume/" + std::to_string(i);
        if (w.by_volume[i].count == 0) continue;
        volumes.add({names[i], in.figures.figure(place + "/per_iteration", Shown::count),
                     in.figures.figure(place + "/median_ms", Shown::duration),
                     in.figures.figure(place + "/most_ms", Shown::duration)});
    }
    return {
        "windows", "Windows: where a move can hide",
        "<p>A window is the time for which a GPU's ports are idle between two phases of its communication, on "
        "electrical rails. There are " +
            in.figures.figure("/windows/all/per_iteration", Shown::count) + " an iteration on " +
            in.figures.figure("/windows/gpus", Shown::count) + " GPUs; half of them last " +
            in.figures.figure("/windows/all/median_ms", Shown::duration) + " or longer, the longest " +
            in.figures.figure("/windows/all/most_ms", Shown::duration) + ".</p>" +
            pair_of(cdf_plot(w.cdf_ms, technology_marks()) + "<figcaption>Share of windows that are not longer. "
                                                             "Windows to the right of a technology's line hide a whole "
                                                             "move.</figcaption>",
                    volumes.html("By what follows")) +
            transitions.html("By transition, those with most time first" +
                             std::string(w.transitions.size() > kShown ? "; the rest is in the page's data" : ""))};
}

}  // namespace opus::job
