#include "controller/fabric/fabric_items.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <utility>

#include "controller/fabric/fabric_file.h"
#include "controller/fabric/spelling.h"

namespace opus::fabric {
namespace {

std::vector<FabricError> by_line(std::vector<FabricError> mistakes) {
    std::stable_sort(mistakes.begin(), mistakes.end(), [](const FabricError& a, const FabricError& b) {
        return std::pair(a.line, a.column) < std::pair(b.line, b.column);
    });
    return mistakes;
}

}  // namespace

bool is_name(std::string_view text) {
    const auto good = [](unsigned char c) { return std::isalnum(c) || c == '-' || c == '_' || c == '.'; };
    return !text.empty() && text.size() <= 64 && std::all_of(text.begin(), text.end(), good);
}

bool whole_number(std::string_view text, std::uint32_t& value) {
    const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
    return failed == std::errc{} && end == text.data() + text.size();
}

bool is_address(std::string_view text) {
    const auto colon = text.rfind(':');
    std::uint32_t port = 0;
    if (colon == std::string_view::npos || colon == 0 || !whole_number(text.substr(colon + 1), port)) return false;
    const std::string_view host = text.substr(0, colon);
    const bool bracketed = host.front() == '[' && host.back() == ']' && host.size() > 2;
    if (host.find(':') != std::string_view::npos && !bracketed) return false;
    if (std::any_of(host.begin(), host.end(), [](unsigned char c) { return c <= ' ' || c == '/' || c == 0x7f; }))
        return false;
    return port >= 1 && port <= 65'535;
}

const char* type_name(const toml::node& node) {
    switch (node.type()) {
        case toml::node_type::string: return "text";
        case toml::node_type::integer: return "a whole number";
        case toml::node_type::floating_point: return "a number";
        case toml::node_type::boolean: return "true or false";
        case toml::node_type::array: return "a list";
        case toml::node_type::table: return "a table";
        default: return "a date";
    }
}

std::vector<FabricError> FabricItems::errors() { return by_line(std::move(errors_)); }
std::vector<FabricError> FabricItems::warnings() { return by_line(std::move(warnings_)); }

// Keys nobody knows: most often a slip of the finger.
void FabricItems::only(const Item& item, const std::vector<std::string>& known) {
    for (const auto& [key, value] : item.table) {
        const std::string_view word = key.str();
        if (std::find(known.begin(), known.end(), word) != known.end()) continue;
        const auto& begin = key.source().begin;
        errors_.push_back(
            {begin.line, begin.column, item.called + ": unknown key " + in_quotes(word) + suggestion(word, known)});
    }
}

const toml::node* FabricItems::need(const Item& item, const char* key, const char* meaning) {
    const toml::node* node = item.table.get(key);
    if (!node) wrong(item.table, item.called + " has no " + key + ": add " + meaning);
    return node;
}

bool FabricItems::text(const Item& item, const char* key, const char* meaning, std::string& value, bool required) {
    const toml::node* node = required ? need(item, key, meaning) : item.table.get(key);
    if (!node) return false;
    const auto* string = node->as_string();
    if (!string)
        return wrong(*node, item.called + ": " + key + " is " + type_name(*node) + ", must be " + meaning), false;
    value = string->get();
    return true;
}

bool FabricItems::milliseconds(const Item& item, const char* key, TimeNs& value) {
    constexpr double kLongest = 3'600'000;
    const toml::node* node = item.table.get(key);
    if (!node) return false;
    const auto number = node->value<double>();
    if (!number || node->is_boolean())
        return wrong(*node, item.called + ": " + key + " is " + type_name(*node) + ", must be a number of milliseconds"),
               false;
    if (!(*number >= 0 && *number <= kLongest))
        return wrong(*node, item.called + ": " + key + " must be 0 to 3600000 milliseconds"), false;
    value = std::llround(*number * 1e6);
    return true;
}

// The tables of an [[array]]; anything else under that key is a mistake.
std::vector<FabricItems::Item> FabricItems::tables(const Item& parent, const char* key, const char* called) {
    std::vector<Item> items;
    const toml::node* node = parent.table.get(key);
    if (!node) {
        wrong(parent.table, parent.called + " has no [[" + called + "]]");
        return items;
    }
    const toml::array* list = node->as_array();
    if (!list) {
        wrong(*node, std::string(key) + " is " + type_name(*node) + ": write [[" + called + "]], with two brackets");
        return items;
    }
    if (list->empty()) wrong(*node, parent.called + " has no [[" + called + "]]");
    for (const toml::node& element : *list) {
        if (const toml::table* table = element.as_table())
            items.push_back({*table, std::string("[[") + called + "]]"});
        else
            wrong(element, std::string(key) + " holds " + type_name(element) + ": write [[" + called + "]] tables");
    }
    return items;
}

// Reads the name, makes it unique and calls the item by it from now on.
bool FabricItems::name(Item& item, std::string& value, std::uint32_t index, Places& taken) {
    if (!text(item, "name", "a name", value)) return false;
    const toml::node& node = *item.table.get("name");
    if (!is_name(value)) return wrong(node, item.called + ": name " + in_quotes(value) + kNameRule), false;
    item.called = value;
    const auto [place, fresh] = taken.try_emplace(value, Place{index, node.source().begin.line});
    if (!fresh)
        wrong(node,
              "the name " + in_quotes(value) + " is taken already (line " + std::to_string(place->second.line) + ")");
    return fresh;
}

std::optional<FabricError> to_ascii(std::string& toml) {
    std::uint32_t line = 1, column = 0;
    std::string_view quotes;  // that end the string we are in
    bool comment = false;
    for (std::size_t i = 0; i < toml.size(); ++i) {
        const char c = toml[i];
        ++column;
        if (c == '\n') {
            ++line, column = 0, comment = false;
            if (quotes.size() == 1) quotes = {};
        } else if (static_cast<unsigned char>(c) >= 0x80) {
            if (!comment) return FabricError{line, column, "a character outside ASCII: only comments may hold one"};
            toml[i] = '?';
        } else if (comment) {
            continue;
        } else if (!quotes.empty()) {
            if (c == '\\' && quotes[0] == '"' && i + 1 < toml.size() && toml[i + 1] != '\n')
                ++i, ++column;
            else if (toml.compare(i, quotes.size(), quotes) == 0)
                i += quotes.size() - 1, quotes = {};
        } else if (c == '"') {
            quotes = toml.compare(i, 3, "\"\"\"") == 0 ? "\"\"\"" : "\"";
            i += quotes.size() - 1;
        } else if (c == '\'') {
            quotes = toml.compare(i, 3, "'''") == 0 ? "'''" : "'";
            i += quotes.size() - 1;
        } else if (c == '#') {
            comment = true;
        }
    }
    return std::nullopt;
}

std::string error_line(std::string_view path, const FabricError& error) {
    std::string text(path);
    if (error.line != 0) text += ":" + std::to_string(error.line);
    return text + ": " + error.text;
}

}  // namespace opus::fabric
