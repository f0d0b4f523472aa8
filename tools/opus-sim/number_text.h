// Figures as people read them, where tools/ctl/table.h has no unit for them.
#pragma once

#include <string>

namespace opus::job {

std::string number_text(const char* format, double value);  // of one number, as printf has it
std::string grouped(std::string digits);                    // "1234567.5": "1,234,567.5"

}  // namespace opus::job
