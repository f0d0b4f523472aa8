// Text and figures of a report's page. A figure is taken from the run's JSON and carries its place in it, so that it cannot differ.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/opus-sim/number_text.h"

namespace opus::job {

std::string escaped(const std::string& text);  // for HTML and SVG
std::string duration_text(double ms);          // "12.5 ms"
std::string with_micro(std::string text);      // of plain text, which says "7 us"

enum class Shown : std::uint8_t {
    over,
    share,
    duration,
    count,
    bytes,
    usd,
    watts
};  // "+2.3 %", "23 %", "12.5 ms", "1,234", "64 MiB", "1,234 USD", "1,234 W"

class PageFigures {
public:
    explicit PageFigures(const nlohmann::json& data) : data_(data) {}

    const nlohmann::json& operator[](const std::string& place) const {
        return data_.at(nlohmann::json::json_pointer(place));
    }
    bool has(const std::string& place) const;
    // "&ndash;" for null and for what is not there.
    std::string figure(const std::string& place, Shown shown) const;

private:
    const nlohmann::json& data_;
};

// The first cell of each row is its heading. Cells are HTML.
class PageTable {
public:
    explicit PageTable(std::vector<std::string> header) : header_(std::move(header)) {}
    void add(std::vector<std::string> row, const std::string& row_class = "") {
        rows_.push_back({std::move(row), row_class});
    }
    bool empty() const { return rows_.empty(); }
    std::string html(const std::string& caption) const;

private:
    struct Row {
        std::vector<std::string> cells;
        std::string row_class;
    };
    std::vector<std::string> header_;
    std::vector<Row> rows_;
};

}  // namespace opus::job
