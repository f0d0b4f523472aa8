#include "tools/opus-sim/number_text.h"

#include <algorithm>
#include <cstdio>

namespace opus::job {

std::string number_text(const char* format, double value) {
    char text[64];
    std::snprintf(text, sizeof text, format, value);
    return text;
}

std::string grouped(std::string digits) {
    for (std::size_t at = std::min(digits.find('.'), digits.size()); at > 3;) digits.insert(at -= 3, ",");
    return digits;
}

}  // namespace opus::job
