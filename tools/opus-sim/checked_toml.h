// toml++ for files that people write: a wrong file is an error with its line, never an assertion. For price_file and
// sweep_file, the only ones here that include toml++.
#pragma once

#include <stdexcept>
#include <string>

#include "tools/opus-sim/job_file.h"

// The parser of toml++ 3.3 asserts on some files that are merely wrong ("[ #"). A wrong file is no bug.
[[noreturn]] inline void refuse_toml() { throw std::logic_error("not valid TOML: brackets or a key out of place"); }
#define TOML_ASSERT(condition) static_cast<void>((condition) || (refuse_toml(), true))
#include <toml++/toml.h>

namespace opus::job {

inline std::string line_of(const toml::node& node) { return "line " + std::to_string(node.source().begin.line); }

// Throws BadFile. What is outside ASCII becomes '?': toml++ 3.3 runs into undefined behaviour on some of it.
inline toml::table parse_toml(const NamedText& file) {
    std::string ascii(file.text);
    for (char& c : ascii)
        if (static_cast<unsigned char>(c) >= 0x80) c = '?';
    try {
        return toml::parse(ascii);
    } catch (const toml::parse_error& error) {
        throw BadFile(file.name, "line " + std::to_string(error.source().begin.line), std::string(error.description()));
    } catch (const std::logic_error& error) { throw BadFile(file.name, "", error.what()); }
}

}  // namespace opus::job
