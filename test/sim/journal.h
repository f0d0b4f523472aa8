// The log of one schedule. Off unless asked for: then a line costs a branch.
#pragma once

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "opus/types.h"

namespace opus::sim {

class Journal {
public:
    bool on = false;
    void add(TimeNs now, std::string text) {
        char stamp[32];
        std::snprintf(stamp, sizeof stamp, "%12.3f ms  ", static_cast<double>(now) / 1e6);
        lines_.push_back(stamp + std::move(text));
    }
    const std::vector<std::string>& lines() const { return lines_; }

private:
    std::vector<std::string> lines_;
};

}  // namespace opus::sim
