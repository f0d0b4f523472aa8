// What gzip packed.
#pragma once

#include <string>

#include "tools/opus-sim/job_file.h"

namespace opus::job {

inline bool is_gzip(std::string_view text) { return text.size() > 2 && text[0] == '\x1f' && text[1] == '\x8b'; }
// Throws BadFile where it was cut short or is damaged, or would be larger than 16 GiB.
std::string inflated(const NamedText& file);

}  // namespace opus::job
