#include <algorithm>
#include <cmath>

#include "tools/opus-sim/page_figures.h"
#include "tools/opus-sim/page_plots.h"

namespace opus::job {
namespace {

constexpr double kWidth = 1060, kNames = 74, kRight = 14;

// A step between ticks of 1, 2 or 5 times a power of ten, so that there are about ten.
double tick_step(double whole) {
    const double power = std::pow(10.0, std::floor(std::log10(whole / 8)));
    for (const double times : {1.0, 2.0, 5.0})
        if (whole / (power * times) <= 11) return power * times;
    return power * 10;
}

// Spans that follow each other and are too narrow to be told apart become one.
std::vector<PanelSpan> drawn(const std::vector<PanelSpan>& spans, double ms_a_place) {
    std::vector<PanelSpan> out;
    std::vector<std::size_t> last(2, ~std::size_t{0});  // of each lane
    for (const PanelSpan& s : spans) {
        std::size_t& before = last[static_cast<std::size_t>(s.lane)];
        if (before != ~std::size_t{0}) {
            PanelSpan& b = out[before];
            const bool narrow = s.to - b.from < ms_a_place || b.to - b.from < ms_a_place / 2;
            if (b.color == s.color && s.from - b.to < ms_a_place / 2 && (narrow || s.title == b.title)) {
                b.to = std::max(b.to, s.to);
                continue;
            }
        }
        before = out.size();
        out.push_back(s);
    }
    return out;
}

}  // namespace

std::string time_plot(const std::string& title, const std::vector<Panel>& panels, double row_height) {
    double whole = 0, height = 4;
    for (const Panel& p : panels) {
        whole = std::max(whole, p.end);
        height += 24 + row_height * static_cast<double>(p.rows.size());
    }
    if (whole <= 0) return "";
    Svg svg(kWidth, height + 24, title);
    const double scale = (kWidth - kNames - kRight) / whole, step = tick_step(whole);
    for (double ms = 0; ms <= whole * 1.0001; ms += step) {
        svg.line(kNames + ms * scale, 4, kNames + ms * scale, height, "grid");
        svg.text(kNames + ms * scale, height + 16,
                 whole < 5000 ? number_text("%g ms", ms) : number_text("%g s", ms / 1e3), "middle", "tick");
    }
    double top = 4;
    for (const Panel& p : panels) {
        svg.raw("<text x=\"" + at(kNames) + "\" y=\"" + at(top + 16) + "\" class=\"halo\" style=\"font-weight:600\">" +
                escaped(p.title) + "</text>");
        top += 24;
        const double begin = top;
        for (const PanelRow& row : p.rows) {
            svg.text(kNames - 8, top + row_height / 2 + 4, row.name, "end", "tick");
            const double body = row_height > 30 ? row_height - 12 : row_height * 0.62,
                         strip = row_height > 30 ? 7 : row_height * 0.22;
            for (const PanelSpan& s : drawn(row.spans, 1 / scale))
                svg.rect(kNames + s.from * scale, s.lane == 0 ? top + 1 : top + body + 2,
                         std::max((s.to - s.from) * scale, s.lane == 0 ? 0.4 : 1.0), s.lane == 0 ? body : strip,
                         s.color, s.title);
            top += row_height;
        }
        svg.line(kNames + p.end * scale, begin, kNames + p.end * scale, top, "axis");
    }
    return svg.html();
}

}  // namespace opus::job
