// Plots of a report's page, as SVG within it. Colours are variables of its style.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace opus::job {

// One picture; places are of its own width.
class Svg {
public:
    Svg(double width, double height, const std::string& title);
    void rect(double x, double y, double width, double height, const std::string& fill, const std::string& title = "");
    void line(double x1, double y1, double x2, double y2, const std::string& css_class);
    // anchor: start, middle, end
    void text(double x, double y, const std::string& text, const std::string& anchor = "start",
              const std::string& css_class = "");
    void raw(const std::string& text) { body_ += text; }
    std::string html() const { return body_ + "</svg>"; }

private:
    std::string body_;
};
std::string at(double value);           // a place in a picture
std::string color(const char* name);    // "var(--name)"
std::string color(std::size_t number);  // of eight

struct Curve {
    std::string name, color, dash;                  // dash: of the line, such as "6 4"
    std::vector<std::pair<double, double>> points;  // x, y
};
struct Mark {
    double at = 0;
    std::string name;
};

// Losses over electrical rails (as parts) against dark times (ms), both by their logarithms. `accept`: a line across.
std::string loss_plot(const std::vector<Curve>& curves, double accept, const std::vector<Mark>& technologies);
// cdf[i]: i % of all are not longer (ms).
std::string cdf_plot(const std::vector<double>& cdf, const std::vector<Mark>& technologies);

// Bars that are cut into parts, one below the other.
struct BarPart {
    double value = 0;
    std::string color, title;
};
struct Bar {
    std::string name;
    std::vector<BarPart> parts;
    std::string value;  // behind it; may be empty
};
// `whole`: what the full width is; 0: the longest bar.
std::string bar_plot(const std::string& title, const std::vector<Bar>& bars, double whole);

// Spans of time in rows; several panels over the same time.
struct PanelSpan {
    double from = 0, to = 0;  // ms
    int lane = 0;             // 0: the row's body; 1: the strip below it
    std::string color, title;
};
struct PanelRow {
    std::string name;
    std::vector<PanelSpan> spans;
};
struct Panel {
    std::string title;
    std::vector<PanelRow> rows;
    double end = 0;  // a line is drawn there
};
std::string time_plot(const std::string& title, const std::vector<Panel>& panels, double row_height);

// name and colour.
std::string legend(const std::vector<std::pair<std::string, std::string>>& entries);

}  // namespace opus::job
