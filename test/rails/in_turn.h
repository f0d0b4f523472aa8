// How much of a table of jobs and settings is played: with OPUS_TEST_LONG (`make soak`) each job in each setting,
// otherwise each job in one of them, so that all of both come.
#pragma once

#include <cstdlib>
#include <initializer_list>
#include <vector>

namespace opus::sim {

inline bool is_set(const char* variable) {
    const char* set = std::getenv(variable);
    return set != nullptr && *set != 0;
}

template <typename T>
std::vector<T> in_turn(std::size_t job, std::initializer_list<T> settings) {
    if (is_set("OPUS_TEST_LONG")) return settings;
    return {settings.begin()[job % settings.size()]};
}

}  // namespace opus::sim
