// The lines of a recording.
#include "tools/replay/recorded.h"

#include <algorithm>
#include <array>
#include <istream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

namespace opus::replay {
namespace {

using nlohmann::json;

constexpr int kVersion = 1;
enum Kind : unsigned { kCollective = 0, kTransfer = 1 };  // others are first uses, and what has no peer

// "n12.g3"
void split(const std::string& gpu, Recording::Rank& rank) {
    const std::size_t dot = gpu.rfind(".g");
    if (dot == std::string::npos) return;
    rank.node = gpu.substr(0, dot);
    rank.gpu = static_cast<std::uint32_t>(std::stoul(gpu.substr(dot + 2)));
}

StepKind kind_of(const std::string& operation) {
    static const std::map<std::string, StepKind> kinds = {{"AllGather", StepKind::all_gather},
                                                          {"ReduceScatter", StepKind::reduce_scatter},
                                                          {"Reduce", StepKind::reduce},
                                                          {"Broadcast", StepKind::broadcast},
                                                          {"AlltoAll", StepKind::all_to_all}};
    const auto at = kinds.find(operation);
    return at == kinds.end() ? StepKind::all_reduce : at->second;
}

class Parser {
public:
    Parser(std::istream& in, std::vector<WorkloadError>& errors) : errors_(errors) {
        std::string text;
        while (std::getline(in, text)) {
            ++line_;
            ++found_.lines;
            const std::size_t before = errors_.size();
            read(text);
            if (errors_.size() == before || !in.eof() || line_ == 1) continue;
            errors_.resize(before);  // no end of line: who wrote it was killed
            found_.cut = true;
        }
    }

    Recording take() { return std::move(found_); }

private:
    void wrong(std::string text) { errors_.push_back({line_, std::move(text)}); }

    void read(const std::string& text) {
        try {
            const json body = json::parse(text);
            if (line_ == 1) return header(body);
            if (body.contains("launch")) return launch(body["launch"]);
            if (body.contains("member")) {
                const auto m = body["member"].get<std::array<std::uint32_t, 3>>();
                found_.groups[m[1]].members[m[2]] = m[0];
            } else if (body.contains("rank")) {
                Recording::Rank& rank = found_.ranks[body["rank"].get<std::uint32_t>()];
                rank.job = body.value("job", "");
                rank.name = body.value("name", "");
                split(body.value("gpu", ""), rank);
            } else if (body.contains("group")) {
                Recording::Group& group = found_.groups[body["group"].get<std::uint32_t>()];
                group.size = body.at("size").get<std::uint32_t>();
                if (group.size > kMaxWorld) return wrong("a group of " + std::to_string(group.size) + " ranks");
                group.id = body.value("id", "");
                group.also = body.value("also", "");
            } else if (body.contains("lost")) {
                const auto l = body["lost"].get<std::array<std::uint64_t, 3>>();
                Recording::Rank& rank = found_.ranks[static_cast<std::uint32_t>(l[0])];
                rank.lost = l[1], rank.passed = l[2];
            } else if (body.contains("gone")) {
                const json& g = body["gone"];
                found_.ranks[g.at(0).get<std::uint32_t>()].under_way = g.at(2);
            } else if (body.contains("ended")) {
                found_.ended = true;
            }
        } catch (const std::exception& error) { wrong(error.what()); }
    }

    void header(const json& body) {
        if (body.value("format", "") != "opus-recording")
            return wrong("this is no recording: it must begin with a header line");
        if (const int version = body.value("version", 0); version != kVersion)
            return wrong("version " + std::to_string(version) + " of the format; this program knows version " +
                         std::to_string(kVersion));
        found_.node = body.value("node", "");
        found_.began_ns = body.value("began_ns", std::int64_t{0});
    }

    void launch(const json& l) {
        if (l.size() < 10) return wrong("it does not tell what a launch consisted of");
        if (!l.at(5).is_number() || !l.at(7).is_number()) return;  // it never began, or never ended
        Recording::Launch made;
        made.seq = l.at(1), made.line = line_;
        made.ready_ns = found_.began_ns + l.at(5).get<std::int64_t>();
        made.begin_ns = l.at(6).is_number() ? std::max(made.ready_ns, found_.began_ns + l.at(6).get<std::int64_t>())
                                            : made.ready_ns;
        made.done_ns = found_.began_ns + l.at(7).get<std::int64_t>();
        const json& keys = l.at(9);
        const json* parts = l.size() > 11 && l.at(11).size() == keys.size() ? &l.at(11) : nullptr;
        std::uint64_t all = 0;
        for (const json& k : keys) all += k.at(3).get<std::uint64_t>();
        for (std::size_t i = 0; i < keys.size(); ++i) {
            const json& k = keys[i];
            const unsigned kind = k.at(1);
            if (kind != kCollective && kind != kTransfer) continue;
            Recording::Operation o;
            o.first = {k.at(0), kind == kTransfer, 0, 0, k.at(2)};
            o.count = k.at(3);
            if (o.count == 0 || o.count > kMaxSteps)
                throw std::runtime_error("a key that counts " + std::to_string(o.count));
            if (kind == kTransfer) o.first.from = k.at(4), o.first.to = k.at(5);
            o.kind = kind_of(parts != nullptr ? parts->at(i).at(0).get<std::string>() : l.at(3).get<std::string>());
            // Of several like ones the parts are not told: alike, as far as anybody knows.
            o.bytes = parts != nullptr ? parts->at(i).at(1).get<std::uint64_t>() / o.count
                                       : l.at(4).get<std::uint64_t>() / all;
            made.operations.push_back(o);
        }
        if (!made.operations.empty()) found_.ranks[l.at(0).get<std::uint32_t>()].launches.push_back(std::move(made));
    }

    std::vector<WorkloadError>& errors_;
    std::uint32_t line_ = 0;
    Recording found_;
};

}  // namespace

Recording parse_recording(std::istream& in, std::vector<WorkloadError>& errors) { return Parser(in, errors).take(); }

Workload read_recording(std::istream& in, std::vector<WorkloadError>& errors) {
    Recording all = parse_recording(in, errors);
    if (!errors.empty()) return {};
    std::map<std::string, std::size_t> jobs;
    for (const auto& [number, rank] : all.ranks) jobs[rank.job] += rank.launches.size();
    const auto most =
        std::max_element(jobs.begin(), jobs.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    const std::string job = most == jobs.end() ? "" : most->first;
    for (auto& [number, rank] : all.ranks)
        if (rank.job != job) rank.launches.clear();
    return workload_of(std::move(all), job, errors);
}

}  // namespace opus::replay
