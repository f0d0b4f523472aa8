#include "tools/ctl/show.h"

#include <algorithm>
#include <cstdio>
#include <string>

#include "tools/ctl/table.h"

namespace opus::ctl {
namespace {

using nlohmann::json;

std::string text(const json& body, const char* key) {
    const auto at = body.find(key);
    if (at == body.end() || at->is_null()) return "-";
    if (!at->is_string()) return at->dump();
    return at->get<std::string>().empty() ? "-" : at->get<std::string>();
}
double number(const json& body, const char* key) {
    const auto at = body.find(key);
    return at != body.end() && at->is_number() ? at->get<double>() : 0;
}
std::string joined(const json& list, std::size_t most = 4) {
    std::string out;
    for (std::size_t i = 0; i < list.size() && i < most; ++i)
        out += (i > 0 ? ", " : "") + (list[i].is_string() ? list[i].get<std::string>() : list[i].dump());
    if (list.size() > most) out += " and " + std::to_string(list.size() - most) + " more";
    return out.empty() ? "-" : out;
}
// Some are named, and all are counted.
std::string holders(const json& body) {
    constexpr std::size_t kNamed = 4;
    const json& named = body.at("holders");
    const std::size_t count = std::max<std::size_t>(named.size(), body.value("holder_count", std::size_t{0}));
    if (count <= kNamed) return joined(named, kNamed);
    std::string out;
    for (std::size_t i = 0; i < std::min(kNamed, named.size()); ++i) out += (i > 0 ? ", " : "") + named[i].get<std::string>();
    return out + " and " + std::to_string(count - std::min(kNamed, named.size())) + " more";
}
std::string short_id(const std::string& id) { return id.substr(0, 8); }
std::string age(const json& body) { return number(body, "since_ms") > 0 ? duration(number(body, "since_ms")) : "-"; }

}  // namespace

void show_status(const json& body) {
    const json &controller = body.at("controller"), &counters = body.at("counters"), &plane = body.at("control_plane"),
               &wire = body.at("wire");
    std::printf("controller %s at %s, fabric %s, epoch %s, up %s\n\n", text(controller, "version").c_str(),
                text(controller, "address").c_str(), text(controller, "fabric").c_str(),
                text(controller, "epoch").c_str(), duration(number(controller, "up_ms")).c_str());
    Table nodes({"NODE", "MANAGER", "RANKS", "LAST SEEN"});
    for (const json& n : body.at("nodes")) {
        const bool up = n.value("session", false);
        nodes.add({text(n, "node"), up ? (n.value("reported", false) ? "connected" : "connecting") : "absent",
                   text(n, "ranks"), number(n, "last_seen_ms") > 0 ? duration(number(n, "last_seen_ms")) + " ago" : "-"});
    }
    nodes.print(stdout);
    std::printf("\n");
    Table switches({"SWITCH", "SESSION", "MAP", "CIRCUITS", "PORTS", "DARK TIME", "ADDRESS", "DEVICE", "NOTE"});
    for (const json& s : body.at("switches")) {
        const json& differences = s.at("differences");
        std::string note = text(s, "note") != "-" ? text(s, "note") : text(s, "last_error");
        if (!differences.empty())
            note = "differed " + duration(number(s, "differed_ms")) + " ago: " + joined(differences);
        switches.add({text(s, "switch"), s.value("session", false) ? "up" : "down",
                      s.value("map_known", false) ? "known" : "unknown", text(s, "circuits"), text(s, "ports"),
                      duration(number(s, "dark_ms")), text(s, "address"), text(s, "identity"), note});
    }
    switches.print(stdout);
    const auto count = [&](const char* key) { return text(counters, key); };
    std::printf("\nlaunches done %s, gangs %s (%s without a move), queueing %s, dark time waited for %s\n",
                count("launches_done").c_str(), count("gangs").c_str(), count("gangs_without_move").c_str(),
                duration(number(counters, "queue_wait_ns") / 1e6).c_str(),
                duration(number(counters, "dark_wait_ns") / 1e6).c_str());
    std::printf(
        "reconfigurations %s, circuits moved %s, suspensions %s, passed %s, aborted %s, unroutable %s, switch errors "
        "%s, ports turned by others %s\n",
        count("reconfigurations").c_str(), count("circuits_moved").c_str(), count("suspensions").c_str(),
        count("passes").c_str(), count("aborts").c_str(), count("unroutable").c_str(), count("switch_errors").c_str(),
        count("differences").c_str());
    std::printf("moved ahead %s, used %s, mispredicted %s; dark time hidden %s, exposed %s\n",
                count("speculations").c_str(), count("speculations_used").c_str(), count("speculations_wrong").c_str(),
                duration(number(counters, "dark_hidden_ns") / 1e6).c_str(),
                duration(number(counters, "dark_exposed_ns") / 1e6).c_str());
    std::printf("runs %s (%s launches in them unrequested), revoked %s\n", count("runs").c_str(),
                count("run_launches").c_str(), count("revocations").c_str());
    std::printf("control plane, dark time apart: median %s, p99 %s over %s gangs\n",
                duration(number(plane, "median_us") / 1e3).c_str(), duration(number(plane, "p99_us") / 1e3).c_str(),
                text(plane, "gangs").c_str());
    std::printf("frames in %s, out %s, rejected %s, undelivered %s\n", text(wire, "frames_in").c_str(),
                text(wire, "frames_out").c_str(), text(wire, "rejected").c_str(), text(wire, "undelivered").c_str());
}

void show_circuits(const json& body) {
    Table table({"A", "B", "SWITCH", "USE", "SINCE", "HELD BY", "NOTE"});
    for (const json& c : body.at("circuits"))
        table.add({text(c, "a"), text(c, "b"), text(c, "switch"), text(c, "use"), age(c), holders(c),
                   text(c, "note")});
    if (table.empty()) return static_cast<void>(std::printf("no circuits\n"));
    table.print(stdout);
}

void show_ports(const json& body) {
    Table table({"PORT", "RAIL", "SWITCH PORT", "USE", "PEER", "SINCE", "HELD BY", "NOTE"});
    for (const json& p : body.at("ports")) {
        std::string note = text(p, "note");
        if (const auto fence = p.find("fence"); fence != p.end() && fence->is_object()) {
            note = "fenced by " + text(*fence, "by") + " " + duration(number(*fence, "since_ms")) + " ago";
            if (text(*fence, "why") != "-") note += ": " + text(*fence, "why");
            if (fence->contains("tried_in_ms")) note += "; tried again in " + duration(number(*fence, "tried_in_ms"));
        }
        table.add({text(p, "port"), text(p, "rail"), text(p, "switch_port"), text(p, "use"), text(p, "peer"), age(p),
                   holders(p), note});
    }
    table.print(stdout);
}

void show_groups(const json& body) {
    Table table({"GROUP", "JOB", "RANKS", "VERDICT", "MEMBERS", "WHY"});
    for (const json& g : body.at("groups")) {
        std::vector<std::string> members;
        for (const json& m : g.at("members"))
            members.push_back(text(m, "gpu") != "-" ? text(m, "gpu") : text(m, "rank"));
        const std::string ranks = text(g, "registered") == text(g, "size")
                                      ? text(g, "size")
                                      : text(g, "registered") + " of " + text(g, "size");
        table.add({short_id(text(g, "group")), text(g, "job"), ranks, text(g, "verdict"), joined(json(members), 8),
                   text(g, "why")});
    }
    if (table.empty()) return static_cast<void>(std::printf("no groups\n"));
    table.print(stdout);
}

void show_jobs(const json& body) {
    Table table({"JOB", "RANKS", "NODES", "GROUPS", "IN FLIGHT", "READY"});
    for (const json& j : body.at("jobs"))
        table.add({text(j, "job"), text(j, "ranks"), joined(j.at("nodes"), 8), text(j, "groups"),
                   text(j, "launches_in_flight"), text(j, "launches_ready")});
    if (table.empty())
        std::printf("no jobs\n");
    else
        table.print(stdout);
    Table others({"NODE", "PID", "PROGRAM", "WITHOUT OPUS", "NCCL"});
    for (const json& p : body.value("without_opus", json::array()))
        others.add({text(p, "node"), text(p, "pid"), text(p, "program"),
                    p.value("shim", false) ? "has met no manager" : "the shim is not loaded", text(p, "library")});
    if (others.empty()) return;
    std::printf("\n");
    others.print(stdout);
    const std::size_t named = body.at("without_opus").size(), all = body.value("without_opus_count", named);
    if (all > named) std::printf("and %zu more\n", all - named);
}

void show_why(const json& body) {
    const json& waiting = body.at("waiting");
    for (std::size_t i = 0; i < waiting.size() && i < kMostWaitingShown; ++i) {
        const json& w = waiting[i];
        std::string where = text(w, "rank");
        if (text(w, "nccl_rank") != "-") where = "rank " + text(w, "nccl_rank") + "  " + where;
        if (text(w, "gpu") != "-") where += " (" + text(w, "gpu") + ")";
        std::printf("%s  launch %s  %s %s of group %s  %s for %s\n", where.c_str(), text(w, "launch").c_str(),
                    text(w, "op").c_str(), bytes(w.value("bytes", 0ull)).c_str(), short_id(text(w, "group")).c_str(),
                    text(w, "state").c_str(), duration(number(w, "since_ms")).c_str());
        for (const json& reason : w.at("reasons")) std::printf("    %s\n", reason.get<std::string>().c_str());
    }
    const std::size_t all = body.value("waiting_count", waiting.size());
    if (all > kMostWaitingShown)
        std::printf("and %zu more wait; name a rank, a GPU or a node, or ask with --json\n", all - kMostWaitingShown);
    if (waiting.empty())
        std::printf("nothing waits; launches in flight: %s\n", text(body, "launches_in_flight").c_str());
}

void show_event(const json& event) {
    std::string line = time_of_day(event.value("realtime_ns", 0ll)) + "  " + text(event, "event");
    for (const char* key : {"id", "launch", "op", "group", "a", "b", "text"}) {
        const std::string value = text(event, key);
        if (value != "-" && value != "0")
            line += std::string("  ") + (key == std::string("group") ? short_id(value) : value);
    }
    std::printf("%s\n", line.c_str());
    std::fflush(stdout);
}

}  // namespace opus::ctl
