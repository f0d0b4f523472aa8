#include "tools/opus-sim/json_scan.h"

#include <cstring>

namespace opus::job {
namespace {

bool is_white(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

void JsonScan::fail(const std::string& text) const {
    throw BadFile(name_, "byte " + std::to_string(at_ - begin_), text);
}

char JsonScan::behind_white() {
    while (at_ != end_ && is_white(*at_)) ++at_;
    if (at_ == end_) fail("the file ends in the midst of its JSON: it was cut short; copy it again");
    return *at_;
}

void JsonScan::fail_other(char wanted) const {
    fail(std::string("'") + wanted + "' should stand here, and '" + *at_ + "' does");
}

void JsonScan::finish() {
    while (at_ != end_ && is_white(*at_)) ++at_;
    if (at_ != end_) fail("something follows the end of the JSON");
}

std::string_view JsonScan::string() {
    expect('"');
    const char* from = at_;
    while (true) {
        const auto* quote = static_cast<const char*>(std::memchr(at_, '"', static_cast<std::size_t>(end_ - at_)));
        if (quote == nullptr) fail("the file ends in the midst of a string: it was cut short; copy it again");
        at_ = quote + 1;
        const char* back = quote;
        while (back != from && back[-1] == '\\') --back;
        if ((quote - back) % 2 == 0) return {from, static_cast<std::size_t>(quote - from)};
    }
}

std::uint64_t JsonScan::whole() {
    if (!is_digit(peek())) fail("a whole number should stand here");
    std::uint64_t value = 0;
    for (; at_ != end_ && is_digit(*at_); ++at_) {
        if (value > (~0ull - 9) / 10) fail("the number is too large");
        value = value * 10 + static_cast<std::uint64_t>(*at_ - '0');
    }
    if (at_ != end_ && (*at_ == '.' || *at_ == 'e' || *at_ == 'E')) fail("the number should be a whole one");
    return value;
}

std::int64_t JsonScan::thousandths() {
    const bool quoted = peek() == '"';
    at_ += quoted;
    const bool minus = at_ != end_ && *at_ == '-';
    at_ += minus;
    if (at_ == end_ || !is_digit(*at_)) fail("a number should stand here");
    std::int64_t value = 0;
    const auto take = [&](std::int64_t digit) {
        if (value > (1ll << 59)) fail("the number is too large");
        value = value * 10 + digit;
    };
    for (; at_ != end_ && is_digit(*at_); ++at_) take(*at_ - '0');
    int places = 0;
    if (at_ != end_ && *at_ == '.')
        for (++at_; at_ != end_ && is_digit(*at_); ++at_)
            if (places < 3) take(*at_ - '0'), ++places;
    for (; places < 3; ++places) take(0);
    if (at_ != end_ && (*at_ == 'e' || *at_ == 'E')) fail("a time should be written without an exponent");
    if (quoted) expect('"');
    return minus ? -value : value;
}

std::string_view JsonScan::value() {
    const char first = peek();
    const char* from = at_;
    if (first == '"') {
        string();
    } else if (first == '{' || first == '[') {
        std::size_t depth = 0;
        do {
            const char c = peek();
            if (c == '"') {
                string();
                continue;
            }
            ++at_;
            if (c == '{' || c == '[') ++depth;
            if (c == '}' || c == ']') --depth;
        } while (depth != 0);
    } else {
        while (at_ != end_ && !is_white(*at_) && *at_ != ',' && *at_ != '}' && *at_ != ']' && *at_ != ':' && *at_ != '"')
            ++at_;
        if (at_ == from) fail(std::string("a value should stand here, and '") + first + "' does");
    }
    return {from, static_cast<std::size_t>(at_ - from)};
}

}  // namespace opus::job
