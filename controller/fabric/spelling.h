// "Did you mean": the known word nearest to one that is not known.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace opus::fabric {

// Empty when nothing is near enough to be a slip of the finger (at most 2 letters, less than half).
std::string nearest(std::string_view word, const std::vector<std::string>& known);

// "; did you mean 'x'?" or, when nothing is near and the list is short, "; known: x, y"; else nothing.
std::string suggestion(std::string_view word, const std::vector<std::string>& known);

}  // namespace opus::fabric
