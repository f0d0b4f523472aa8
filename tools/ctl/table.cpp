#include "tools/ctl/table.h"

#include <algorithm>
#include <ctime>

namespace opus::ctl {
namespace {

// Columns a text takes: bytes that continue a UTF-8 character take none.
std::size_t width(const std::string& text) {
    return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

std::string number(const char* format, double value, const char* unit) {
    char text[48];
    std::snprintf(text, sizeof text, format, value);
    return std::string(text) + unit;
}

}  // namespace

void Table::print(std::FILE* out) const {
    std::vector<std::size_t> widths;
    for (const auto& row : rows_) {
        widths.resize(std::max(widths.size(), row.size()));
        for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width(row[i]));
    }
    for (const auto& row : rows_) {
        std::string line;
        for (std::size_t i = 0; i < row.size(); ++i) {
            line += row[i];
            if (i + 1 < row.size()) line.append(widths[i] - width(row[i]) + 2, ' ');
        }
        line.erase(line.find_last_not_of(' ') + 1);
        std::fprintf(out, "%s\n", line.c_str());
    }
}

std::string duration(double ms) {
    if (ms < 1) return number("%.0f", ms * 1e3, " us");
    if (ms < 999.5) return number("%.3g", ms, " ms");
    if (ms < 120'000) return number("%.1f", ms / 1e3, " s");
    if (ms < 7'200'000) return number("%.0f", ms / 60e3, " min");
    return number("%.1f", ms / 3600e3, " h");
}

std::string time_of_day(long long realtime_ns) {
    const std::time_t seconds = static_cast<std::time_t>(realtime_ns / 1'000'000'000);
    std::tm local{};
    localtime_r(&seconds, &local);
    char text[48];
    std::snprintf(text, sizeof text, "%02d:%02d:%02d.%03lld", local.tm_hour, local.tm_min, local.tm_sec,
                  realtime_ns / 1'000'000 % 1'000);
    return text;
}

std::string bytes(unsigned long long n) {
    const char* const units[] = {" B", " KiB", " MiB", " GiB", " TiB", " PiB", " EiB"};
    std::size_t unit = 0;
    auto value = static_cast<double>(n);
    for (; value >= 1024 && unit + 1 < std::size(units); ++unit) value /= 1024;
    return number(unit == 0 || value >= 100 ? "%.0f" : "%.3g", value, units[unit]);
}

}  // namespace opus::ctl
