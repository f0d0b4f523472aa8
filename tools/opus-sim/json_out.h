// What --json prints.
#pragma once

#include <cstdio>
#include <nlohmann/json.hpp>

namespace opus::job {

inline void print_for_programs(const nlohmann::json& all) {
    std::printf("%s\n", all.dump(2, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
}

}  // namespace opus::job
