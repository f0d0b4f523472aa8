#include "tools/opus-sim/page_figures.h"

#include <cmath>

#include "tools/ctl/table.h"

namespace opus::job {

std::string escaped(const std::string& text) {
    std::string out;
    for (const char c : text) switch (c) {
            case '&': out += "&amp;"; break;
            case '<': out += "&lt;"; break;
            case '>': out += "&gt;"; break;
            case '"': out += "&quot;"; break;
            default: out += c;
        }
    return out;
}

std::string duration_text(double ms) {
    if (ms > 0 && ms < 1e-3) return number_text("%.0f ns", ms * 1e6);
    return with_micro(ctl::duration(ms));
}

std::string with_micro(std::string text) {
    for (std::size_t at = 0; (at = text.find(" us", at)) != text.npos; ++at)
        if (at > 0 && text[at - 1] >= '0' && text[at - 1] <= '9') text.replace(at, 3, " µs");
    return text;
}

namespace {

std::string count_text(double value) {
    return grouped(number_text(value < 100 && value != std::floor(value) ? "%.1f" : "%.0f", value));
}

std::string shown_text(double value, Shown shown) {
    switch (shown) {
        case Shown::over: {
            const std::string text = number_text("%+.2f %%", 100 * value);
            return text == "-0.00 %" ? "+0.00 %" : text;
        }
        case Shown::share: return number_text(value < 0.0995 && value > 0 ? "%.1f %%" : "%.0f %%", 100 * value);
        case Shown::duration: return duration_text(value);
        case Shown::count: return count_text(value);
        case Shown::usd: return count_text(value) + " USD";
        case Shown::watts: return count_text(value) + " W";
        case Shown::bytes: return ctl::bytes(static_cast<unsigned long long>(std::llround(value)));
    }
    return "";
}

}  // namespace

bool PageFigures::has(const std::string& place) const {
    const nlohmann::json::json_pointer at(place);
    return data_.contains(at) && !data_.at(at).is_null();
}

std::string PageFigures::figure(const std::string& place, Shown shown) const {
    if (!has(place)) return "&ndash;";
    const nlohmann::json& value = (*this)[place];
    return "<data value=\"" + value.dump() + "\" data-json=\"" + escaped(place) + "\">" +
           escaped(shown_text(value.get<double>(), shown)) + "</data>";
}

std::string PageTable::html(const std::string& caption) const {
    std::string out = "<div class=\"scroll\"><table>";
    if (!caption.empty()) out += "<caption>" + caption + "</caption>";
    out += "<thead><tr>";
    for (const std::string& cell : header_) out += "<th scope=\"col\">" + cell + "</th>";
    out += "</tr></thead><tbody>\n";
    for (const Row& row : rows_) {
        out += row.row_class.empty() ? "<tr>" : "<tr class=\"" + row.row_class + "\">";
        for (std::size_t i = 0; i < row.cells.size(); ++i)
            out += i == 0 ? "<th scope=\"row\">" + row.cells[i] + "</th>" : "<td>" + row.cells[i] + "</td>";
        out += "</tr>\n";
    }
    return out + "</tbody></table></div>\n";
}

}  // namespace opus::job
