#include "tools/opus-sim/sweep_table.h"

#include <algorithm>

#include "tools/ctl/table.h"
#include "tools/opus-sim/number_text.h"

namespace opus::job {
namespace {

using nlohmann::json;

constexpr const char* kDark = "dark-ms";  // the option; each row says its own, as dark_ms

// A column, where its value is in a point's run, and on a terminal its heading and how it is shown.
enum class As : std::uint8_t { not_shown, duration, over, count, text };
struct Column {
    const char* name;
    const char* place;
    bool of_dark_time;  // in a member of "points"; else of the run
    As as = As::not_shown;
    const char* heading = "";
};
constexpr Column kColumns[] = {
    {"dark_ms", "/dark_ms", true, As::duration, "dark time"},
    {"ranks", "/ranks", false, As::count, "GPUs"},
    {"electrical_ms", "/electrical_ms", false, As::duration, "electrical"},
    {"on_demand_ms", "/on_demand/iteration_ms", true},
    {"on_demand_over_electrical", "/on_demand/over_electrical", true, As::over, "on demand"},
    {"provisioned_ms", "/provisioned/iteration_ms", true},
    {"provisioned_over_electrical", "/provisioned/over_electrical", true, As::over, "provisioned"},
    {"best_found_ms", "/best_found_ms", true},
    {"best_found_over_electrical", "/best_found_over_electrical", true, As::over, "best found"},
    {"bound_ms", "/bound_ms", true},
    {"bound_over_electrical", "/bound_over_electrical", true, As::over, "bound"},
    {"static_split_ms", "/static_split/iteration_ms", false},
    {"static_split_over_electrical", "/static_split/over_electrical", false, As::over, "static split"},
    {"on_demand_held_ms", "/on_demand/held_ms", true},
    {"provisioned_held_ms", "/provisioned/held_ms", true},
    {"on_demand_reconfigurations", "/on_demand/reconfigurations", true},
    {"provisioned_reconfigurations", "/provisioned/reconfigurations", true},
    {"dark_hidden", "/provisioned/dark_hidden", true},
    {"answer", "/conclusion/answer", false, As::text, "works"},
};

json at(const json& within, const char* place) {
    const json::json_pointer pointer(place);
    return within.contains(pointer) ? within.at(pointer) : json();
}

std::string shown(const json& value, As as) {
    if (value.is_null()) return "-";
    switch (as) {
        case As::duration: return ctl::duration(value.get<double>());
        case As::over: return number_text("%+.2f %%", 100 * value.get<double>());
        case As::count: return grouped(number_text("%.0f", value.get<double>()));
        default: return value.is_string() ? value.get<std::string>() : value.dump();
    }
}

std::string quoted(const std::string& text) {
    if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
    std::string out = "\"";
    for (const char c : text) out += c == '"' ? std::string("\"\"") : std::string(1, c);
    return out + "\"";
}

std::string csv_cell(const json& value) {
    if (value.is_null()) return "";
    return quoted(value.is_string() ? value.get<std::string>() : value.dump());
}

std::vector<std::string> columns_of(const SweepTable& table) {
    std::vector<std::string> columns{"point"};
    columns.insert(columns.end(), table.varied.begin(), table.varied.end());
    for (const Column& c : kColumns) columns.emplace_back(c.name);
    columns.emplace_back("error");
    return columns;
}

}  // namespace

PlayedPoint played_of(const json& data) {
    PlayedPoint point;
    point.there = true, point.exit = data.value("exit", 0);
    if (data.contains("error") && data["error"].is_string()) point.error = data["error"];
    const json& run = data["run"];
    const auto add = [&](const json& dark_time) {
        json row = json::object();
        for (const Column& c : kColumns) row[c.name] = at(c.of_dark_time ? dark_time : run, c.place);
        point.rows.push_back(std::move(row));
    };
    if (run.is_object() && run.contains("points"))
        for (const json& dark_time : run["points"]) add(dark_time);
    if (point.rows.empty()) add(json::object());
    return point;
}

SweepTable table_of(const std::vector<SweepPoint>& points, const std::vector<PlayedPoint>& played) {
    SweepTable table;
    if (!points.empty())
        for (const auto& [column, value] : points.front().varied)
            if (column != kDark) table.varied.push_back(column);
    for (std::size_t i = 0; i < points.size(); ++i)
        for (json row : played[i].rows) {
            row["point"] = points[i].name;
            row["error"] = played[i].error.empty() ? json() : json(played[i].error);
            for (const auto& [column, value] : points[i].varied)
                if (column != kDark)
                    row[column] = value.json();
                else if (row["dark_ms"].is_null())
                    row["dark_ms"] = value.json();
            table.rows.push_back(std::move(row));
        }
    return table;
}

std::string csv_of(const SweepTable& table) {
    const std::vector<std::string> columns = columns_of(table);
    std::string out;
    for (const std::string& column : columns) out += (out.empty() ? "" : ",") + quoted(column);
    out += "\n";
    for (const json& row : table.rows) {
        for (std::size_t i = 0; i < columns.size(); ++i) out += (i == 0 ? "" : ",") + csv_cell(row.at(columns[i]));
        out += "\n";
    }
    return out;
}

json json_of(const SweepTable& table) { return {{"columns", columns_of(table)}, {"rows", table.rows}}; }

void print_table(const SweepTable& table) {
    std::vector<const Column*> columns;  // that some row has
    for (const Column& c : kColumns)
        if (c.as != As::not_shown &&
            std::any_of(table.rows.begin(), table.rows.end(), [&](const json& row) { return !row.at(c.name).is_null(); }))
            columns.push_back(&c);
    std::vector<std::string> header = table.varied;
    for (const Column* c : columns) header.emplace_back(c->heading);
    ctl::Table out(header);
    for (const json& row : table.rows) {
        std::vector<std::string> cells;
        for (const std::string& column : table.varied) cells.push_back(shown(row.at(column), As::text));
        for (const Column* c : columns)
            cells.push_back(row.at(c->name).is_number() || c->as == As::text ? shown(row.at(c->name), c->as) : "-");
        if (!row.at("error").is_null()) cells.push_back("failed");
        out.add(std::move(cells));
    }
    out.print(stdout);
    std::printf("\nIteration time over electrical rails.\n");
}

}  // namespace opus::job
