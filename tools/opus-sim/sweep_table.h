// What a sweep found: a row for each point and dark time, on a terminal, as CSV and as JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/opus-sim/sweep_file.h"

namespace opus::job {

// A point of a sweep, as far as tables need it.
struct PlayedPoint {
    bool there = false;
    int exit = 0;                                   // as of `run`
    std::string error;                              // why it came to a halt, or could not be played; empty: nothing
    nlohmann::json rows = nlohmann::json::array();  // one a dark time: a value a column, null where there is none
};
PlayedPoint played_of(const nlohmann::json& data);  // of a point's file

struct SweepTable {
    std::vector<std::string> varied;  // columns, of what differs between points
    std::vector<nlohmann::json> rows;
};
// Of those that are there.
SweepTable table_of(const std::vector<SweepPoint>& points, const std::vector<PlayedPoint>& played);

std::string csv_of(const SweepTable& table);
nlohmann::json json_of(const SweepTable& table);
void print_table(const SweepTable& table);

}  // namespace opus::job
