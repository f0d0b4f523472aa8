// Lines out of a byte stream, however reads split and join it. \n ends a line, a \r before it is dropped,
// empty lines are skipped.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace opus::drivers {

class LineBuffer {
public:
    explicit LineBuffer(std::size_t max_line) : max_line_(max_line) {}

    void append(std::string_view bytes) { bytes_.append(bytes); }
    void clear() {
        bytes_.clear();
        begin_ = 0;
    }

    // The next whole line, or nullopt.
    std::optional<std::string> next() {
        while (true) {
            const auto end = bytes_.find('\n', begin_);
            if (end == std::string::npos) {
                bytes_.erase(0, begin_);
                begin_ = 0;
                return std::nullopt;
            }
            std::string line = bytes_.substr(begin_, end - begin_);
            begin_ = end + 1;
            if (!line.empty() && line.back() == '\r') line.pop_back();
            if (!line.empty()) return line;
        }
    }

    // More bytes without a line end than any line may have: not the protocol that we think.
    bool overlong() const { return bytes_.size() - begin_ > max_line_; }

private:
    std::size_t max_line_;
    std::string bytes_;
    std::size_t begin_ = 0;
};

}  // namespace opus::drivers
