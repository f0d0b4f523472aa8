#include <ostream>

#include <nlohmann/json.hpp>

#include "tools/replay/workload.h"

namespace opus::replay {
namespace {

using Json = nlohmann::ordered_json;

Json step_json(const Workload& w, const Role& role, const Step& s) {
    Json j;
    j["role"] = role.name;
    j["do"] = name_of(s.kind);
    if (!s.name.empty()) j["name"] = s.name;
    if (s.comm != kNobody) j["comm"] = w.comms[s.comm].name;
    if (s.kind == StepKind::send || s.kind == StepKind::recv) j["peer"] = s.peer;
    if (is_rooted(s.kind)) j["root"] = s.peer;
    if (s.stream != kNobody) j["stream"] = w.streams[s.stream];
    if (s.event != kNobody) j["event"] = w.events[s.event];
    if (is_operation(s.kind)) {
        j["bytes"] = s.bytes;
        j["dtype"] = name_of(s.dtype);
        if (is_reduction(s.kind) && s.reduction != Reduction::sum) j["reduction"] = name_of(s.reduction);
    }
    if (s.kind == StepKind::repeat) j["times"] = s.times;
    if (s.kind == StepKind::compute || s.kind == StepKind::host) {
        j["us"] = s.us;
        if (s.jitter_us != 0) j["jitter_us"] = s.jitter_us;
    }
    if (s.first_only) j["first_only"] = true;
    if (s.every != 1) j["every"] = s.every;
    if (s.varies) j["varies"] = true;
    return j;
}

}  // namespace

void write_workload(const Workload& w, std::ostream& out) {
    Json head;
    head["workload"] = 1;
    head["name"] = w.name;
    if (!w.source.empty()) head["source"] = w.source;
    head["iterations"] = w.iterations;
    if (!w.lengths.empty()) head["lengths"] = w.lengths;
    auto places = Json::array();
    for (const Place& p : w.places) places.push_back({p.node, p.gpu});
    head["places"] = places;
    out << head.dump() << '\n';
    for (const Comm& c : w.comms) {
        Json j;
        j["comm"] = c.name;
        if (!c.parent.empty()) j["parent"] = c.parent;
        j["groups"] = c.groups;
        if (c.later) j["later"] = true;
        if (c.non_blocking) j["non_blocking"] = true;
        if (c.shrink) j["shrink"] = true;
        out << j.dump() << '\n';
    }
    for (const Role& r : w.roles) {
        Json j;
        j["role"] = r.name;
        j["ranks"] = r.ranks;
        out << j.dump() << '\n';
    }
    for (const Role& r : w.roles)
        for (const Step& s : r.steps) out << step_json(w, r, s).dump() << '\n';
}

}  // namespace opus::replay
