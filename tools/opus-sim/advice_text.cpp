#include <algorithm>
#include <cmath>
#include <cstdio>

#include "tools/opus-sim/advice.h"

namespace opus::job {
namespace {

constexpr double kLongestDarkMs = 1e4;  // beyond, a technology moves between jobs, not in them

}  // namespace

std::optional<double> loss_of(double iteration_ms, const Run& run) {
    if (iteration_ms <= 0 || run.electrical.iteration_ms <= 0) return std::nullopt;
    return iteration_ms / run.electrical.iteration_ms - 1;
}

Moved moved_of(double demand_ms, double provisioned_ms, const Run& run) {
    const Moved ahead{loss_of(provisioned_ms, run), false}, demand{loss_of(demand_ms, run), true};
    return demand.loss && (!ahead.loss || *demand.loss < *ahead.loss - kWorthIt) ? demand : ahead;
}

std::string percent_text(double part) {
    char text[32];
    const double percent = std::abs(part) < 0.0005 ? 0.0 : 100 * part;  // no minus before a zero
    std::snprintf(text, sizeof text, std::abs(percent) < 100 ? "%.1f %%" : "%.0f %%", percent);
    return text;
}

std::string dark_text(double ms) {
    char text[32];
    if (ms > 0 && ms < 1e-3)
        std::snprintf(text, sizeof text, "%g ns", ms * 1e6);
    else if (ms > 0 && ms < 1)
        std::snprintf(text, sizeof text, "%g us", ms * 1e3);
    else if (ms < 1e4)
        std::snprintf(text, sizeof text, "%g ms", ms);
    else
        std::snprintf(text, sizeof text, "%g s", ms / 1e3);
    return text;
}

std::string split_list(const StaticSplit& split) {
    std::string text;
    for (std::size_t i = 0; i < split.circuits.size(); ++i) text += (i == 0 ? "" : "; ") + split.circuits[i];
    return text;
}

std::vector<double> with_technologies(std::vector<double> dark_ms) {
    for (const Technology& t : kTechnologies)
        if (static_cast<double>(t.dark_ns) / 1e6 <= kLongestDarkMs)
            dark_ms.push_back(static_cast<double>(t.dark_ns) / 1e6);
    std::sort(dark_ms.begin(), dark_ms.end());
    dark_ms.erase(std::unique(dark_ms.begin(), dark_ms.end()), dark_ms.end());
    return dark_ms;
}

}  // namespace opus::job
