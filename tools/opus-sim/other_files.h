// Files that lie beside jobs, or describe less than a job: known, so that it can be said what they are.
#pragma once

#include <string_view>

namespace opus::job {

// What the file is, and what to give in its place; empty where it is not known.
std::string_view other_file(std::string_view text);

}  // namespace opus::job
