#include "tools/opus-sim/page.h"

#include "tools/opus-sim/page_sections.h"
#include "tools/opus-sim/page_style.h"

namespace opus::job {
namespace {

// Data within a script element: no "<" may be seen there.
std::string data_text(const nlohmann::json& data) {
    std::string out;
    for (const char c : data.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace))
        if (c == '<')
            out += "\\u003c";
        else
            out += c;
    return out;
}

std::string fact(const char* name, const std::string& value) {
    return "<div><dt>" + std::string(name) + "</dt><dd>" + value + "</dd></div>";
}

std::string header_of(const PageInput& in) {
    const char* const classes[] = {"yes", "changes", "no"};
    std::string out = "<header class=\"top\"><h1>Would photonic rails work for " + escaped(in.job.workload.name) +
                      "?</h1>\n<p class=\"verdict " + classes[static_cast<std::size_t>(in.conclusion.answer)] +
                      "\" id=\"verdict\">" + escaped(with_micro(in.conclusion.sentence)) + "</p>\n<dl class=\"facts\">";
    out += fact("GPUs", in.figures.figure("/ranks", Shown::count) + " on " + in.figures.figure("/nodes", Shown::count) +
                            " nodes");
    out += fact("an iteration on electrical rails", in.figures.figure("/electrical_ms", Shown::duration));
    out += fact("optical ports of a GPU", in.figures.figure("/ports", Shown::count));
    out += fact("of a GPU between nodes", in.figures.figure("/gbits", Shown::count) + " Gbit/s");
    out += fact("windows an iteration", in.figures.figure("/windows/all/per_iteration", Shown::count));
    if (in.figures.has("/cost/cheapest/power_saved") && in.figures.has("/cost/cheapest/cost_saved"))
        out += fact("circuits save, against packet switches",
                    in.figures.figure("/cost/cheapest/cost_saved", Shown::share) + " of the cost, " +
                        in.figures.figure("/cost/cheapest/power_saved", Shown::share) + " of the power");
    out += fact("read from", escaped(in.job.format));
    return out + "</dl>\n";
}

std::string changes_of(const PageInput& in) {
    std::string out = "<section id=\"changes\"><h2>What to change</h2>";
    if (in.conclusion.changes.empty())
        return out + "<p>Nothing of what was played gains more than half a percent.</p></section>\n";
    out += "<ul class=\"changes\">";
    for (const std::string& change : in.conclusion.changes) out += "<li>" + escaped(with_micro(change)) + "</li>";
    return out + "</ul><p class=\"soft\">Each of these was played; nothing here is a rule of thumb.</p></section>\n";
}

}  // namespace

std::string report_page(const JobFile& job, const Run& run, const RunOptions& options, double accept,
                        const cost::Inputs& priced) {
    const nlohmann::json data = run_json(job, run, options, accept, priced);
    const PageFigures figures(data);
    const Conclusion conclusion = conclusion_of(run, options, accept);
    const PageInput in{job, run, options, accept, conclusion, figures};
    std::vector<PageSection> sections;
    for (const auto& section : {times_section, technologies_section, ports_section, cost_section, timeline_section,
                                way_section, dark_section, windows_section, load_section, basis_section})
        sections.push_back(section(in));
    std::string out =
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; img-src "
        "data:\">\n"
        "<link rel=\"icon\" href=\"data:,\">\n<title>" +
        escaped(job.workload.name) + " on photonic rails</title>\n<style>" + kPageStyle + "</style>\n</head>\n<body>\n";
    out += header_of(in) + "<nav><a href=\"#changes\">What to change</a>";
    for (const PageSection& s : sections)
        if (!s.html.empty()) out += "<a href=\"#" + s.id + "\">" + s.title + "</a>";
    out += "</nav></header>\n<main>\n" + changes_of(in);
    for (const PageSection& s : sections)
        if (!s.html.empty()) out += "<section id=\"" + s.id + "\"><h2>" + s.title + "</h2>" + s.html + "</section>\n";
    return out +
           "</main>\n<footer><p>Made by opus-sim. The figures of this page, and more, are in it as JSON (element "
           "\"data\").</p></footer>\n"
           "<script type=\"application/json\" id=\"data\">" +
           data_text(data) + "</script>\n</body>\n</html>\n";
}

}  // namespace opus::job
