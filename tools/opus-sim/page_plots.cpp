#include "tools/opus-sim/page_plots.h"

#include <algorithm>
#include <cmath>

#include "tools/opus-sim/page_figures.h"

namespace opus::job {
namespace {

constexpr double kWidth = 640, kHeight = 340;
struct Frame {
    double left = 52, right = 118, top = 30, bottom = 40;
    double x0() const { return left; }
    double x1() const { return kWidth - right; }
    double y0() const { return kHeight - bottom; }
    double y1() const { return top; }
};

// Logarithmic, from one power of ten to another.
struct LogScale {
    double low = 0, high = 1;  // powers
    double a = 0, b = 1;       // places
    double operator()(double value) const {
        const double power = value > 0 ? std::log10(value) : low;
        return a + (std::clamp(power, low, high) - low) / (high - low) * (b - a);
    }
};

std::string tick_ms(double ms) {
    if (ms < 0.9e-3) return number_text("%g ns", std::round(ms * 1e6));
    if (ms < 0.9) return number_text("%g µs", std::round(ms * 1e3));
    if (ms < 900) return number_text("%g ms", std::round(ms));
    return number_text("%g s", std::round(ms / 1e3));
}

void time_axis(Svg& svg, const LogScale& x, const Frame& f, const std::string& name) {
    const int step = x.high - x.low > 7 ? 2 : 1;
    for (int power = static_cast<int>(x.low); power <= static_cast<int>(x.high); power += step) {
        const double place = x(std::pow(10.0, power));
        svg.line(place, f.y0(), place, f.y1(), "grid");
        svg.text(place, f.y0() + 18, tick_ms(std::pow(10.0, power)), "middle", "tick");
    }
    svg.text((f.x0() + f.x1()) / 2, kHeight - 4, name, "middle", "soft");
}

// Names of marks above a plot, in rows where they would touch.
void put_marks(Svg& svg, const LogScale& x, const Frame& f, const std::vector<Mark>& marks) {
    std::vector<double> ends(3, -1e9);
    for (const Mark& m : marks) {
        if (std::log10(m.at) < x.low || std::log10(m.at) > x.high) continue;
        const double place = x(m.at), half = 3.1 * static_cast<double>(m.name.size());
        svg.line(place, f.y0(), place, f.y1(), "mark");
        for (std::size_t row = 0; row < ends.size(); ++row)
            if (place - half > ends[row] + 4) {
                svg.text(place, f.y1() - 5 - 12.0 * static_cast<double>(row), m.name, "middle", "tick");
                ends[row] = place + half;
                break;
            }
    }
}

std::string path_of(const std::vector<std::pair<double, double>>& places) {
    std::string d;
    for (const auto& [x, y] : places) d += (d.empty() ? "M" : "L") + at(x) + " " + at(y);
    return d;
}

}  // namespace

std::string at(double value) {
    std::string text = number_text("%.2f", value);
    while (text.back() == '0') text.pop_back();
    if (text.back() == '.') text.pop_back();
    return text == "-0" ? "0" : text;
}
std::string color(const char* name) { return std::string("var(--") + name + ")"; }
std::string color(std::size_t number) { return "var(--c" + std::to_string(std::min<std::size_t>(number, 7)) + ")"; }

Svg::Svg(double width, double height, const std::string& title)
    : body_("<svg viewBox=\"0 0 " + at(width) + " " + at(height) + "\" role=\"img\" aria-label=\"" + escaped(title) +
            "\">") {}

void Svg::rect(double x, double y, double width, double height, const std::string& fill, const std::string& title) {
    body_ += "<rect x=\"" + at(x) + "\" y=\"" + at(y) + "\" width=\"" + at(width) + "\" height=\"" + at(height) +
             "\" fill=\"" + fill + "\"";
    body_ += title.empty() ? "/>" : "><title>" + escaped(title) + "</title></rect>";
}

void Svg::line(double x1, double y1, double x2, double y2, const std::string& css_class) {
    body_ += "<line x1=\"" + at(x1) + "\" y1=\"" + at(y1) + "\" x2=\"" + at(x2) + "\" y2=\"" + at(y2) + "\" class=\"" +
             css_class + "\"/>";
}

void Svg::text(double x, double y, const std::string& text, const std::string& anchor, const std::string& css_class) {
    body_ += "<text x=\"" + at(x) + "\" y=\"" + at(y) + "\"";
    if (anchor != "start") body_ += " text-anchor=\"" + anchor + "\"";
    if (!css_class.empty()) body_ += " class=\"" + css_class + "\"";
    body_ += ">" + escaped(text) + "</text>";
}

std::string loss_plot(const std::vector<Curve>& curves, double accept, const std::vector<Mark>& technologies) {
    double least = 1e300, most = 0, loss = accept;
    for (const Curve& c : curves)
        for (const auto& [x, y] : c.points) {
            if (x > 0) least = std::min(least, x);
            most = std::max(most, x), loss = std::max(loss, y);
        }
    if (most <= 0) least = most = 1;
    Frame f;
    f.top = 46;
    LogScale x{std::floor(std::log10(least)), std::ceil(std::log10(most)), f.x0(), f.x1()};
    if (x.high <= x.low) x.high = x.low + 1;
    const LogScale y{-3, std::max(-1.0, std::ceil(std::log10(loss))), f.y0() - 8, f.y1()};
    Svg svg(kWidth, kHeight, "Iteration time over electrical rails against dark time");
    time_axis(svg, x, f, "dark time of a move");
    for (int power = -3; power <= static_cast<int>(y.high); ++power) {
        const double place = y(std::pow(10.0, power));
        svg.line(f.x0(), place, f.x1(), place, "grid");
        svg.text(f.x0() - 8, place + 4,
                 (power == -3 ? "≤ " : "+") + number_text("%g %%", std::round(std::pow(10.0, power + 3)) / 10), "end",
                 "tick");
    }
    put_marks(svg, x, f, technologies);
    svg.line(f.x0(), y(accept), f.x1(), y(accept), "mark");
    svg.text(f.x1() + 10, y(accept) + 4, number_text("%g %% may be lost", 100 * accept), "start", "soft");
    std::vector<std::pair<double, const Curve*>> ends;
    for (const Curve& c : curves) {
        std::vector<std::pair<double, double>> places;
        for (const auto& [px, py] : c.points) places.emplace_back(x(px), y(py));
        if (places.empty()) continue;
        svg.raw("<path class=\"curve\" d=\"" + path_of(places) + "\" style=\"stroke:" + c.color + "\"" +
                (c.dash.empty() ? "" : " stroke-dasharray=\"" + c.dash + "\"") + "/>");
        if (c.dash.empty())
            for (const auto& [px, py] : places)
                svg.raw("<circle cx=\"" + at(px) + "\" cy=\"" + at(py) + "\" r=\"3\" fill=\"" + c.color + "\"/>");
        ends.emplace_back(places.back().second, &c);
    }
    std::stable_sort(ends.begin(), ends.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    double free = -1e9;  // names keep clear of that of the line across, too
    const double across = y(accept);
    for (auto& [place, c] : ends)
        if (std::abs(place - across) < 15) place = place < across ? across - 15 : across + 15;
    for (auto& [place, c] : ends) place = std::max(place, free), free = place + 15;
    const double over = free - 15 - (f.y0() + 4);  // all that lies below the plot goes up, in order
    double below = f.y0() + 4;
    if (over > 0)
        for (std::size_t i = ends.size(); i-- > 0;)
            ends[i].first = std::min(ends[i].first, below), below = ends[i].first - 15;
    for (const auto& [place, c] : ends)
        svg.raw("<text x=\"" + at(f.x1() + 10) + "\" y=\"" + at(place + 4) + "\" style=\"fill:" + c->color +
                ";font-weight:600\">" + escaped(c->name) + "</text>");
    return svg.html();
}

std::string cdf_plot(const std::vector<double>& cdf, const std::vector<Mark>& technologies) {
    Frame f;
    f.right = 20, f.top = 46;
    LogScale x{std::floor(std::log10(cdf.front())), std::ceil(std::log10(cdf.back())), f.x0(), f.x1()};
    if (x.high <= x.low) x.high = x.low + 1;
    Svg svg(kWidth, kHeight, "How long windows are: the share of windows that are not longer");
    time_axis(svg, x, f, "length of a window");
    const auto y = [&](double percent) { return f.y0() - percent / 100 * (f.y0() - f.y1()); };
    for (int percent = 0; percent <= 100; percent += 25) {
        svg.line(f.x0(), y(percent), f.x1(), y(percent), "grid");
        svg.text(f.x0() - 8, y(percent) + 4, number_text("%g %%", percent), "end", "tick");
    }
    put_marks(svg, x, f, technologies);
    std::vector<std::pair<double, double>> places{{f.x0(), y(0)}, {x(cdf.front()), y(0)}};
    for (std::size_t i = 1; i < cdf.size(); ++i) {
        places.emplace_back(x(cdf[i]), y(static_cast<double>(i) - 1));
        places.emplace_back(x(cdf[i]), y(static_cast<double>(i)));
    }
    places.emplace_back(f.x1(), y(100));
    svg.raw("<path class=\"curve\" d=\"" + path_of(places) + "\" style=\"stroke:" + color("c0") + "\"/>");
    return svg.html();
}

std::string bar_plot(const std::string& title, const std::vector<Bar>& bars, double whole) {
    constexpr double kNames = 190, kValues = 70, kRow = 26;
    double longest = whole;
    for (const Bar& b : bars) {
        double sum = 0;
        for (const BarPart& p : b.parts) sum += p.value;
        if (whole == 0) longest = std::max(longest, sum);
    }
    Svg svg(kWidth, kRow * static_cast<double>(bars.size()) + 4, title);
    for (std::size_t i = 0; i < bars.size(); ++i) {
        const double top = 2 + kRow * static_cast<double>(i);
        svg.text(kNames - 10, top + 16, bars[i].name, "end");
        double place = kNames;
        for (const BarPart& p : bars[i].parts) {
            const double width = longest > 0 ? p.value / longest * (kWidth - kNames - kValues) : 0;
            if (width > 0.05) svg.rect(place, top + 4, width, kRow - 10, p.color, p.title);
            place += width;
        }
        if (!bars[i].value.empty()) svg.text(place + 8, top + 16, bars[i].value, "start", "soft");
    }
    return svg.html();
}

std::string legend(const std::vector<std::pair<std::string, std::string>>& entries) {
    std::string out = "<ul class=\"legend\">";
    for (const auto& [name, fill] : entries)
        out += "<li><i style=\"background:" + fill + "\"></i>" + escaped(name) + "</li>";
    return out + "</ul>\n";
}

}  // namespace opus::job
