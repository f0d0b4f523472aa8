// Tables and durations as people read them.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

namespace opus::ctl {

class Table {
public:
    explicit Table(std::vector<std::string> header) : rows_{std::move(header)} {}
    void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
    bool empty() const { return rows_.size() == 1; }
    void print(std::FILE* out) const;  // columns as wide as their widest cell

private:
    std::vector<std::vector<std::string>> rows_;
};

std::string duration(double ms);                 // "340 us", "12.5 ms", "3.2 s", "4 min", "2.5 h"
std::string time_of_day(long long realtime_ns);  // "14:03:27.512", local time
std::string bytes(unsigned long long n);         // "64 KiB"

}  // namespace opus::ctl
