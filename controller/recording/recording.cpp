#include "controller/recording/recording.h"

#include <cstdio>

#include "controller/recording/op_name.h"

namespace opus::controller {
namespace {

using nlohmann::json;

TimeNs time_of(const json& value) { return value.is_number_integer() ? value.get<TimeNs>() : 0; }

}  // namespace

// --- writing --------------------------------------------------------------------------------------

std::string group_name(const CommId& group) {
    char text[33];
    std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(group.hi),
                  static_cast<unsigned long long>(group.lo));
    return text;
}

RecordingWriter::RecordingWriter(std::string& out, const std::string& fabric, const std::string& program,
                                 TimeNs began_ns, const std::string& node)
    : out_(out), began_ns_(began_ns) {
    json header = {{"format", "opus-recording"},
                   {"version", kRecordingVersion},
                   {"program", program},
                   {"fabric", fabric},
                   {"began_ns", began_ns}};
    if (!node.empty()) header["node"] = node;
    line(header);
}

void RecordingWriter::line(const json& body) {
    out_ += body.dump(-1, ' ', false, json::error_handler_t::replace);
    out_ += '\n';
}

// Never 0 for what was: 0 means that it never was.
json RecordingWriter::since(TimeNs at) const { return at == 0 ? json() : json(at == began_ns_ ? 1 : at - began_ns_); }

void RecordingWriter::name_rank(std::uint64_t rank, const std::string& name, const std::string& gpu, const std::string& job) {
    const auto number = ranks_.try_emplace(rank, static_cast<std::uint32_t>(ranks_.size())).first->second;
    line({{"rank", number}, {"name", name}, {"gpu", gpu}, {"job", job}});
}

void RecordingWriter::name_group(const CommId& group, const std::string& id, std::uint32_t size, const std::string& also) {
    const auto number = groups_.try_emplace(group, static_cast<std::uint32_t>(groups_.size())).first->second;
    json body = {{"group", number}, {"id", id}, {"size", size}};
    if (!also.empty()) body["also"] = also;
    line(body);
}

void RecordingWriter::member(std::uint64_t rank, const CommId& group, std::uint32_t place) {
    const auto r = ranks_.find(rank);
    const auto g = groups_.find(group);
    if (r != ranks_.end() && g != groups_.end()) line({{"member", {r->second, g->second, place}}});
}

void RecordingWriter::launch(const RecordedLaunch& l, std::uint64_t seq, const std::vector<wire::KeyRange>& keys,
                             const std::vector<LaunchPart>& parts) {
    const auto rank = ranks_.find(l.rank);
    const auto group = groups_.find(l.group);
    if (rank == ranks_.end() || group == groups_.end()) return;
    json of = json::array(), each = json::array();
    const bool several = keys.size() > 1 && parts.size() == keys.size();
    for (const wire::KeyRange& k : keys) {
        const auto at = groups_.find(k.first.comm);
        if (at == groups_.end()) continue;
        json key = {at->second, static_cast<unsigned>(k.first.kind), k.first.n, k.count};
        if (k.first.kind == KeyKind::p2p || k.first.kind == KeyKind::conn_p2p)
            key.insert(key.end(), {k.first.src, k.first.dst});
        of.push_back(std::move(key));
        const LaunchPart* part = several ? &parts[static_cast<std::size_t>(&k - keys.data())] : nullptr;
        if (part != nullptr) each.push_back({op_name(part->op), part->bytes});
    }
    json body = {rank->second,   seq,
                 group->second,  op_name(l.op),
                 l.bytes,        since(l.ready_ns),
                 since(l.go_ns), since(l.done_ns),
                 l.held ? 1 : 0, std::move(of)};
    if (l.called_ns != 0 || several) body.push_back(since(l.called_ns));
    if (several) body.push_back(std::move(each));
    line({{"launch", std::move(body)}});
}

void RecordingWriter::gang(const RecordedGang& g) {
    const auto rank = ranks_.find(g.rank);
    if (rank == ranks_.end()) return;
    line({{"gang", {g.id, rank->second, since(g.complete_ns), since(g.granted_ns), g.queue_ns, g.dark_ns}}});
}

void RecordingWriter::circuit(const std::string& a, const std::string& b, TimeNs at, bool up) {
    line({{"circuit", {a, b, since(at), up ? 1 : 0}}});
}

void RecordingWriter::change_set(const std::string& sw, TimeNs sent, TimeNs acked, TimeNs settled,
                                 std::uint32_t circuits, const std::string& error) {
    line({{"change", {sw, since(sent), since(acked), since(settled), circuits, error}}});
}

void RecordingWriter::lost(std::uint64_t rank, std::uint64_t launches, std::uint64_t passed) {
    if (const auto at = ranks_.find(rank); at != ranks_.end()) line({{"lost", {at->second, launches, passed}}});
}

void RecordingWriter::rank_gone(std::uint64_t rank, TimeNs at_ns, std::uint64_t under_way) {
    if (const auto at = ranks_.find(rank); at != ranks_.end()) line({{"gone", {at->second, since(at_ns), under_way}}});
}

void RecordingWriter::job_ended(const std::string& job) { line({{"ended", job}}); }

void RecordingWriter::event(TimeNs at, const std::string& what, const std::string& about) {
    line({{"event", {since(at), what, about}}});
}

// --- reading --------------------------------------------------------------------------------------

std::string RecordingReader::launch(const json& l, Profile& profile) {
    if (!l.is_array() || l.size() < 9) return "a launch of fewer than 9 members";
    RecordedLaunch launch;
    launch.rank = l.at(0).get<std::uint64_t>();
    launch.group = {0, l.at(2).get<std::uint64_t>()};
    launch.op = op_of_name(l.at(3).get<std::string>());
    launch.bytes = l.at(4).get<std::uint64_t>();
    launch.ready_ns = time_of(l.at(5));
    launch.go_ns = time_of(l.at(6));
    launch.done_ns = time_of(l.at(7));
    launch.held = l.at(8).get<int>() != 0;
    profile.launch(launch);
    return "";
}

std::string RecordingReader::read(std::string_view text, Profile& profile) try {
    const json body = json::parse(text);
    if (!body.is_object()) return "not a JSON object";
    if (!header_) {
        if (body.value("format", "") != "opus-recording")
            return "this is no recording: it must begin with a header line";
        if (const int version = body.value("version", 0); version != kRecordingVersion)
            return "version " + std::to_string(version) + " of the format; this program knows version " +
                   std::to_string(kRecordingVersion);
        header_ = true;
        return "";
    }
    if (body.contains("launch")) return launch(body["launch"], profile);
    if (body.contains("rank")) {
        profile.rank(body["rank"].get<std::uint64_t>(), body.value("job", ""));
    } else if (body.contains("group")) {
        profile.group({0, body["group"].get<std::uint64_t>()}, body.value("size", 0u));
    } else if (body.contains("gang")) {
        const json& g = body["gang"];
        if (!g.is_array() || g.size() < 6) return "a gang of fewer than 6 members";
        profile.gang(g.at(1).get<std::uint64_t>(), time_of(g.at(3)), g.at(5).get<TimeNs>());
    } else if (body.contains("change")) {
        const json& c = body["change"];
        if (!c.is_array() || c.size() < 6) return "a change set of fewer than 6 members";
        profile.change_set(time_of(c.at(1)), time_of(c.at(3)), c.at(4).get<std::uint32_t>());
    } else if (body.contains("ended")) {
        profile.job_ended(body["ended"].get<std::string>());
    }
    return "";
} catch (const json::exception& error) { return error.what(); }

}  // namespace opus::controller
