#include "drivers/scpi_text.h"

#include <charconv>
#include <cmath>
#include <cstdio>

namespace opus::drivers::scpi {

namespace {

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

// The inside of "(...)", or nullopt.
std::optional<std::string_view> inside_parentheses(std::string_view text) {
    text = trim(text);
    if (text.size() < 2 || text.front() != '(' || text.back() != ')') return std::nullopt;
    return trim(text.substr(1, text.size() - 2));
}

template <typename Number>
std::optional<Number> parse_as(std::string_view text) {
    text = trim(text);
    if (!text.empty() && text.front() == '+') text.remove_prefix(1);
    Number value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
    return value;
}

bool append_range(std::vector<SwitchPort>& ports, SwitchPort from, SwitchPort to) {
    if (from == 0 || to == 0) return false;
    const std::size_t count = (from < to ? to - from : from - to) + std::size_t{1};
    if (ports.size() + count > kMaxListEntries) return false;
    for (std::size_t i = 0; i < count; ++i)
        ports.push_back(from < to ? from + static_cast<SwitchPort>(i) : from - static_cast<SwitchPort>(i));
    return true;
}

}  // namespace

std::string_view trim(std::string_view text) {
    while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
    while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
    return text;
}

std::optional<std::uint32_t> parse_number(std::string_view text) { return parse_as<std::uint32_t>(text); }

std::optional<std::vector<SwitchPort>> parse_list(std::string_view text) {
    auto inside = inside_parentheses(text);
    if (!inside || inside->empty() || inside->front() != '@') return std::nullopt;
    const std::string_view entries = trim(inside->substr(1));
    std::vector<SwitchPort> ports;
    if (entries.empty()) return ports;
    for (std::string_view entry : split(entries, ',')) {
        const auto colon = entry.find(':');
        const auto from = parse_number(entry.substr(0, colon));
        const auto to = colon == std::string_view::npos ? from : parse_number(entry.substr(colon + 1));
        if (!from || !to || !append_range(ports, *from, *to)) return std::nullopt;
    }
    return ports;
}

std::string format_list(std::span<const SwitchPort> ports) {
    std::string out = "(@";
    for (std::size_t i = 0; i < ports.size(); ++i) {
        if (i) out += ',';
        out += std::to_string(ports[i]);
    }
    return out + ')';
}

std::optional<std::vector<CrossConnect>> parse_map(std::string_view text) {
    const auto lists = split(text, ',');
    if (lists.size() != 2) return std::nullopt;
    const auto first = parse_list(lists[0]), second = parse_list(lists[1]);
    if (!first || !second || first->size() != second->size()) return std::nullopt;
    std::vector<CrossConnect> circuits;
    circuits.reserve(first->size());
    for (std::size_t i = 0; i < first->size(); ++i) circuits.emplace_back((*first)[i], (*second)[i]);
    return circuits;
}

std::string format_map(std::span<const CrossConnect> circuits) {
    std::vector<SwitchPort> first, second;
    for (const auto& [a, b] : circuits) {
        first.push_back(a);
        second.push_back(b);
    }
    return format_list(first) + ',' + format_list(second);
}

std::vector<std::string_view> split(std::string_view text, char separator) {
    std::vector<std::string_view> parts;
    int depth = 0;
    bool quoted = false;
    std::size_t begin = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        if (c == '"') quoted = !quoted;
        if (quoted) continue;
        if (c == '(') ++depth;
        if (c == ')' && depth > 0) --depth;
        if (c == separator && depth == 0) {
            parts.push_back(trim(text.substr(begin, i - begin)));
            begin = i + 1;
        }
    }
    parts.push_back(trim(text.substr(begin)));
    return parts;
}

std::optional<Error> parse_error(std::string_view line) {
    const auto parts = split(line, ',');
    if (parts.size() != 2) return std::nullopt;
    const auto code = parse_as<int>(parts[0]);
    const std::string_view text = parts[1];
    if (!code || text.size() < 2 || text.front() != '"' || text.back() != '"') return std::nullopt;
    return Error{*code, std::string(text.substr(1, text.size() - 2))};
}

std::string format_error(const Error& error) { return std::to_string(error.code) + ", \"" + error.text + '"'; }

std::optional<SwitchIdentity> parse_identity(std::string_view line) {
    const auto parts = split(line, ',');
    if (parts.size() != 4 || parts[0].empty() || parts[1].empty()) return std::nullopt;
    for (unsigned char c : line)
        if (c < 0x20 && !is_space(static_cast<char>(c))) return std::nullopt;
    return SwitchIdentity{std::string(parts[0]), std::string(parts[1]), std::string(parts[2]), std::string(parts[3])};
}

std::optional<Size> parse_size(std::string_view line) {
    const auto parts = split(line, ',');
    if (parts.size() > 2) return std::nullopt;
    const auto ingress = parse_number(parts[0]);
    const auto egress = parts.size() == 2 ? parse_number(parts[1]) : std::optional<std::uint32_t>{0};
    if (!ingress || !egress || *ingress == 0) return std::nullopt;
    return Size{*ingress, *egress};
}

std::optional<std::vector<double>> parse_powers(std::string_view line) {
    const auto inside = inside_parentheses(line);
    if (!inside || (!inside->empty() && inside->front() == '@')) return std::nullopt;
    std::vector<double> dbm;
    if (inside->empty()) return dbm;
    for (std::string_view entry : split(*inside, ',')) {
        const auto value = parse_as<double>(entry);
        if (!value || !std::isfinite(*value) || dbm.size() >= kMaxListEntries) return std::nullopt;
        dbm.push_back(*value);
    }
    return dbm;
}

std::string format_powers(std::span<const double> dbm) {
    std::string out = "(";
    char number[32];
    for (std::size_t i = 0; i < dbm.size(); ++i) {
        std::snprintf(number, sizeof number, "%s%.2f", i ? "," : "", dbm[i]);
        out += number;
    }
    return out + ')';
}

}  // namespace opus::drivers::scpi
