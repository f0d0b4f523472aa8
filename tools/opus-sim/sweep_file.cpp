#include "tools/opus-sim/sweep_file.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "tools/opus-sim/checked_toml.h"
#include "tools/opus-sim/digest.h"

namespace opus::job {
namespace {

constexpr std::size_t kMostPoints = 1'000'000, kLongestName = 150;

class SweepReader {
public:
    explicit SweepReader(const NamedText& file) : file_(file) {}

    SweepFile read(const toml::table& root) {
        SweepFile sweep;
        sweep.path = file_.name;
        for (const auto& [name, node] : root) {
            const std::string table(name.str());
            if (table != "job" && table != "run")
                fail(node, "unknown key '" + table + "'; known are the tables [job] and [run]");
            if (!node.is_table())
                fail(node, table + " must be a table: [" + table + "], then options of it, a line each");
            for (const auto& [key, value] : *node.as_table())
                places_.push_back({value.source().begin, key_of(table, std::string(key.str()), value)});
        }
        if (places_.empty()) throw BadFile(file_.name, "", "it names no job: [job], then files = or model =");
        std::sort(places_.begin(), places_.end(), [](const Place& a, const Place& b) {
            return std::pair(a.at.line, a.at.column) < std::pair(b.at.line, b.at.column);
        });
        for (Place& p : places_) sweep.keys.push_back(std::move(p.key));
        return sweep;
    }

private:
    struct Place {
        toml::source_position at;
        SweepKey key;
    };
    const NamedText& file_;
    std::vector<Place> places_;

    [[noreturn]] void fail(const toml::node& at, const std::string& text) const {
        throw BadFile(file_.name, line_of(at), text);
    }

    SweepKey key_of(const std::string& table, const std::string& name, const toml::node& node) const {
        SweepKey key{table, name, line_of(node), {}, node.is_array()};
        if (!node.is_array()) {
            key.values.push_back(value_of(node, name));
            return key;
        }
        std::set<std::string> seen;
        for (const toml::node& one : *node.as_array()) {
            key.values.push_back(one.is_array() ? together(*one.as_array(), name) : value_of(one, name));
            if (const std::string text = key.values.back().text(); !seen.insert(text).second)
                fail(one, name + ": " + text + " is listed twice: each point is played once");
        }
        if (key.values.empty()) fail(node, name + ": the list is empty: nothing would be played");
        return key;
    }

    // A list within a list: one value of several words, such as two dark times of one point.
    SweepValue together(const toml::array& all, const std::string& name) const {
        SweepValue value;
        for (const toml::node& one : all) {
            const SweepValue word = value_of(one, name);
            if (word.flag) fail(one, name + ": true and false stand alone");
            value.words.push_back(word.words.front());
        }
        if (value.words.empty()) fail(all, name + ": a list within the list is empty");
        return value;
    }

    SweepValue value_of(const toml::node& node, const std::string& name) const {
        if (const auto* text = node.as_string()) {
            if (text->get().empty()) fail(node, name + " is empty");
            if (text->get().find('?') != std::string::npos && !ascii_line(node.source().begin.line))
                fail(node, name + ": only ASCII can be read here: give it another name");
            return {{text->get()}, false};
        }
        if (const auto* flag = node.as_boolean()) return {{flag->get() ? "true" : "false"}, true};
        if (const auto* whole = node.as_integer()) return {{std::to_string(whole->get())}, false};
        if (const auto* number = node.as_floating_point()) {
            char text[40];
            const auto end = std::to_chars(text, text + sizeof text, number->get());
            return {{std::string(text, end.ptr)}, false};
        }
        fail(node, name + " must be text, a number, true or false, or a list of these");
    }

    bool ascii_line(std::size_t wanted) const {
        std::size_t line = 1;
        for (const char c : file_.text) {
            if (line == wanted && static_cast<unsigned char>(c) >= 0x80) return false;
            line += c == '\n' ? 1 : 0;
        }
        return true;
    }
};

// As a file may be called anywhere; where that loses something, its digest tells names apart.
std::string file_name(const std::string& text) {
    std::string name;
    for (const char c : text)
        name += (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                        (c != '\0' && std::string_view("._=,+-").find(c) != std::string_view::npos)
                    ? c
                    : '-';
    if (name == text && name.size() <= kLongestName) return name;
    Digest whole;
    whole.add(text);
    return name.substr(0, kLongestName) + "_" + whole.text();
}

}  // namespace

std::string SweepValue::text() const {
    std::string all;
    for (const std::string& word : words) all += (all.empty() ? "" : ",") + word;
    return all;
}

nlohmann::json SweepValue::json() const {
    if (words.size() > 1) return words;
    const nlohmann::json value = nlohmann::json::parse(words.front(), nullptr, false);
    return value.is_number() || flag ? value : nlohmann::json(words.front());
}

SweepFile read_sweep(const NamedText& file) { return SweepReader(file).read(parse_toml(file)); }

std::vector<SweepPoint> points_of(const SweepFile& sweep) {
    std::size_t count = 1;
    std::set<std::string> columns;
    for (const SweepKey& key : sweep.keys) {
        count *= key.values.size();
        if (count > kMostPoints)
            throw BadFile(sweep.path, key.line,
                          "with the lists down to here that is more than " + std::to_string(kMostPoints) +
                              " points: make several sweeps of it");
    }
    std::vector<SweepPoint> points(count);
    std::size_t alike = count;  // points in a row that have the same value of a key
    for (const SweepKey& key : sweep.keys) {
        alike /= key.values.size();
        // Both tables know some options, such as iterations.
        const std::string column = !key.list || columns.insert(key.key).second ? key.key : key.table + "." + key.key;
        for (std::size_t i = 0; i < count; ++i) {
            const SweepValue& value = key.values[i / alike % key.values.size()];
            (key.table == "job" ? points[i].job : points[i].run).emplace_back(key.key, value);
            if (!key.list) continue;
            points[i].varied.emplace_back(column, value);
            points[i].name += (points[i].name.empty() ? "" : "_") + column + "=" + value.text();
        }
    }
    for (SweepPoint& point : points) point.name = point.name.empty() ? "only" : file_name(point.name);
    return points;
}

}  // namespace opus::job
