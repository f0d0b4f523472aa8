// What opus-ctl is told: the core's tables as JSON, names as in the fabric file. Times are ages in
// milliseconds (`..._ms`), so that a reader needs no clock of ours. Members are only ever added.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "controller/core/core.h"
#include "controller/recording/latency.h"
#include "controller/shell/wire_server.h"

namespace opus::controller {

struct ControllerView {
    const Fabric& fabric;
    const Core& core;
    const WireCounters& wire;
    const Latency& control;  // control-plane time of gangs, dark time apart
    std::uint64_t epoch = 0;
    std::string version;
    std::string address;
    TimeNs started_ns = 0;
    TimeNs now_ns = 0;
    std::map<NodeIndex, std::vector<wire::Bystander>> bystanders = {};  // as the managers tell of them
};

nlohmann::json status_reply(const ControllerView& view);
// A part of a long list: from an element on, so many that the reply is well below wire::kMaxBody and soon made. `next` is
// where the next part begins, if there is one. Of holders the first are named, and `holder_count` says how many there are.
inline constexpr std::size_t kMostInReply = 512;
// Turns of plans in one reply; the ports behind are left out, and counted.
inline constexpr std::size_t kMostTurnsTold = 4096;
nlohmann::json ports_reply(const ControllerView& view, std::size_t from = 0);
nlohmann::json circuits_reply(const ControllerView& view, std::size_t from = 0);  // from a port on
nlohmann::json groups_reply(const ControllerView& view);
nlohmann::json jobs_reply(const ControllerView& view);
// Of `phases`, what Recorders::summary() gave: adds to each job that runs whether it is provisioned, why not, its lap, and its plan by port.
void add_guards(const ControllerView& view, nlohmann::json& phases);
// `who`: "n0.g1", "n0.r3", "n0", "5" or "job:5" (an NCCL rank of the job's largest communicator), or empty for all.
// Throws std::invalid_argument when there is no such rank.
nlohmann::json why_reply(const ControllerView& view, const std::string& who, std::size_t from = 0);
nlohmann::json trace_event(const Fabric& fabric, const Trace& trace);

std::string to_text(const nlohmann::json& body);  // survives bytes that are not UTF-8

}  // namespace opus::controller
