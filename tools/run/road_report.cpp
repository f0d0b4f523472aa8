#include "tools/run/road_report.h"

#include <istream>
#include <map>
#include <set>

namespace opus::run {

namespace {

std::vector<std::string> fields_of(const std::string& line) {
    std::vector<std::string> fields;
    for (std::size_t at = 0; at <= line.size();) {
        const std::size_t end = std::min(line.find('\t', at), line.size());
        fields.push_back(line.substr(at, end - at));
        at = end + 1;
    }
    return fields;
}

std::string name_of(const std::string& path) { return path.substr(path.rfind('/') + 1); }

// As NCCL has counted since 2.9: 22707 is 2.27.7.
std::string version_of(const std::string& code) {
    const int n = std::atoi(code.c_str());
    if (n < 10'000) return {};
    return " " + std::to_string(n / 10'000) + "." + std::to_string(n / 100 % 100) + "." + std::to_string(n % 100);
}

// One process, or one program that it was: exec keeps the pid.
struct Seen {
    std::string program, library, version, caller, state, why;
    std::set<std::string> roads, troubles;
    bool called = false, unused = false;
    std::string mapped;
};

void note(Seen& seen, const std::vector<std::string>& fields) {
    const auto field = [&](std::size_t n) { return n + 3 < fields.size() ? fields[n + 3] : std::string(); };
    const std::string& event = fields[2];
    if (event == "road" && field(0) == "dlsym") {
        seen.roads.insert("dlsym by " + (field(1).empty() ? seen.program : name_of(field(1))));
    } else if (event == "road" && field(0) == "deepbind") {
        seen.roads.insert("mended after RTLD_DEEPBIND");
    } else if (event == "road" && field(0) == "preload") {
        seen.roads.insert("mended, for an NCCL is preloaded before the shim");
    } else if (event == "called") {
        seen.called = true;
        seen.library = field(0);
        seen.version = version_of(field(1));
        seen.caller = field(2).empty() ? seen.program : name_of(field(2));
    } else if (event == "state") {
        seen.state = field(0);
        seen.why = field(1);
    } else if (event == "second") {
        seen.troubles.insert("uses a second NCCL, " + field(0) + ", which is not seen (OPUS_NCCL_LIBRARY chooses)");
    } else if (event == "past") {
        seen.troubles.insert("has called NCCL past Opus, by " + (field(0).empty() ? seen.program : name_of(field(0))));
    } else if (event == "unused") {
        seen.unused = true;
        seen.mapped = field(0);
    }
}

std::string state_in_words(const Seen& seen) {
    if (seen.state == "enforce") return "its launches wait for circuits";
    if (seen.state == "observe") return "its launches are recorded, not held";
    if (seen.state == "off") return "OPUS_MODE=off";
    if (seen.state == "inert") return "without Opus: " + seen.why;
    return "it made no communicator";
}

void tell(const Seen& seen, std::vector<std::string>& lines) {
    if (seen.called) {
        std::string road = seen.roads.empty() ? "linked, called by " + seen.caller : std::string();
        for (const std::string& one : seen.roads) road += (road.empty() ? "" : ", ") + one;
        lines.push_back("reached NCCL" + seen.version + " (" + seen.library + "): " + road + "; " + state_in_words(seen));
    } else if (seen.unused && seen.troubles.empty()) {
        lines.push_back("maps " + seen.mapped + " and never called it");
    }
    for (const std::string& trouble : seen.troubles) lines.push_back(trouble);
}

struct Group {
    std::string program, pid;
    unsigned processes = 0;
};

}  // namespace

std::vector<std::string> road_report(std::istream& notes) {
    std::vector<std::pair<std::string, Seen>> all;  // in the order in which they began
    std::map<std::string, std::size_t> newest;      // of a pid
    for (std::string line; std::getline(notes, line);) {
        const auto fields = fields_of(line);
        if (fields.size() < 3) continue;
        const auto known = newest.find(fields[0]);
        if (known == newest.end() || fields[2] == "start") {
            newest[fields[0]] = all.size();
            all.push_back({fields[0], {}});
        }
        Seen& seen = all[newest[fields[0]]].second;
        seen.program = fields[1];
        note(seen, fields);
    }
    std::vector<std::pair<std::string, Group>> groups;  // what is said, of whom
    for (const auto& [pid, seen] : all) {
        std::vector<std::string> lines;
        tell(seen, lines);
        for (const std::string& line : lines) {
            auto at = groups.begin();
            while (at != groups.end() && (at->first != line || at->second.program != seen.program)) ++at;
            if (at == groups.end()) at = groups.insert(at, {line, {seen.program, pid, 0}});
            ++at->second.processes;
        }
    }
    std::vector<std::string> report;
    for (const auto& [line, of] : groups)
        report.push_back(of.program +
                         (of.processes == 1 ? " (" + of.pid + ") " : " (" + std::to_string(of.processes) + " processes) ") +
                         line);
    if (groups.empty())
        report.push_back(
            all.empty()
                ? "the shim was not loaded: a static or setuid program, another C library, or LD_PRELOAD was taken away"
                : "no NCCL was seen in " + std::to_string(all.size()) + (all.size() == 1 ? " process" : " processes"));
    return report;
}

}  // namespace opus::run
