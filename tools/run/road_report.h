// What the processes of a run wrote down of their roads to NCCL (shim/road_notes.h), in words.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

namespace opus::run {

// One line a thing; processes of which the same is to be said share a line.
std::vector<std::string> road_report(std::istream& notes);

}  // namespace opus::run
