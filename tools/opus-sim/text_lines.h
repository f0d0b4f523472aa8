// Lines and fields of plain text, with their places.
#pragma once

#include <charconv>
#include <string>
#include <string_view>
#include <vector>

#include "tools/opus-sim/job_file.h"

namespace opus::job {

class TextLines {
public:
    explicit TextLines(const NamedText& file) : name_(file.name), rest_(file.text) {}

    // The next line that is not blank; false at the end.
    bool next() {
        while (!rest_.empty()) {
            const std::size_t end = rest_.find('\n');
            line = rest_.substr(0, end);
            rest_.remove_prefix(end == rest_.npos ? rest_.size() : end + 1);
            if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
            ++number;
            if (line.find_first_not_of(" \t") != line.npos) return true;
        }
        return false;
    }
    [[noreturn]] void fail(const std::string& text) const {
        throw BadFile(name_, "line " + std::to_string(number), text);
    }

    // Of the line: what `separators` separate. With `empty`, each separator begins another field.
    std::vector<std::string_view> fields(std::string_view separators, bool empty) const {
        std::vector<std::string_view> out;
        for (std::size_t at = 0; at <= line.size();) {
            const std::size_t end = std::min(line.find_first_of(separators, at), line.size());
            if (empty || end != at) out.push_back(line.substr(at, end - at));
            at = end + 1;
        }
        return out;
    }
    std::uint64_t whole(std::string_view text, const char* what, std::uint64_t most) const {
        std::uint64_t n = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
        if (error != std::errc() || end != text.data() + text.size() || n > most)
            fail(std::string(what) + " must be a whole number up to " + std::to_string(most) + ", and is '" +
                 std::string(text.substr(0, 40)) + "'");
        return n;
    }

    std::string_view line;
    std::uint32_t number = 0;

private:
    std::string name_;
    std::string_view rest_;
};

}  // namespace opus::job
