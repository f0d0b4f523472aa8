// The tables of a fabric file and their values, whatever they mean: read as what they must be, and each mistake noted with
// its place. Includes toml++ (header only: it is slow to compile).
#pragma once

#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "opus/fabric.h"

// The parser of toml++ 3.3 asserts on some files that are merely wrong ("[ #"). A wrong file is no bug.
[[noreturn]] inline void refuse_toml() { throw std::logic_error("not valid TOML: brackets or a key out of place"); }
#define TOML_ASSERT(condition) static_cast<void>((condition) || (refuse_toml(), true))
#include <toml++/toml.h>

namespace opus::fabric {

inline std::string in_quotes(std::string_view text) { return "'" + std::string(text) + "'"; }
const char* type_name(const toml::node& node);
bool whole_number(std::string_view text, std::uint32_t& value);
bool is_address(std::string_view text);  // host:port
bool is_name(std::string_view text);
inline constexpr const char* kNameRule = " must be 1 to 64 letters, digits, '-', '_' or '.'";

// toml++ 3.3 runs into undefined behaviour on some characters outside ASCII. Nothing but a comment needs
// one, so it never sees any: those of comments become '?', the first elsewhere is a mistake of the file.
std::optional<FabricError> to_ascii(std::string& toml);

class FabricItems {
protected:
    // A table of the file, and how people call it.
    struct Item {
        const toml::table& table;
        std::string called;
    };
    struct Place {
        std::uint32_t index = kNone;
        std::uint32_t line = 0;
    };
    using Places = std::map<std::string, Place, std::less<>>;

    static FabricError at(const toml::node& node, std::string text) {
        return {node.source().begin.line, node.source().begin.column, std::move(text)};
    }
    void wrong(const toml::node& node, std::string text) { errors_.push_back(at(node, std::move(text))); }
    void warn(const toml::node& node, std::string text) { warnings_.push_back(at(node, std::move(text))); }
    void warn(std::uint32_t line, std::string text) { warnings_.push_back({line, 0, std::move(text)}); }
    // By line.
    std::vector<FabricError> errors();
    std::vector<FabricError> warnings();

    void only(const Item& item, const std::vector<std::string>& known);
    const toml::node* need(const Item& item, const char* key, const char* meaning);
    bool text(const Item& item, const char* key, const char* meaning, std::string& value, bool required = true);
    bool milliseconds(const Item& item, const char* key, TimeNs& value);
    std::vector<Item> tables(const Item& parent, const char* key, const char* called);
    bool name(Item& item, std::string& value, std::uint32_t index, Places& taken);

private:
    std::vector<FabricError> errors_, warnings_;
};

}  // namespace opus::fabric
