// How the controller calls things when it speaks to people and programs.
#pragma once

#include <string>

#include "controller/core/core.h"
#include "controller/recording/op_name.h"

namespace opus::controller {

const char* verdict_name(Verdict verdict);
const char* port_use_name(PortUse use);
const char* why_state_name(Why::State state);
const char* trace_kind_name(Trace::Kind kind);
const char* mode_name(Mode mode);
std::string comm_name(const CommId& comm);                                 // 32 hexadecimal digits
std::string rank_name(const Fabric& fabric, NodeIndex node, RankId rank);  // "n0.r3": the 4th process of node n0
std::string launch_name(const Fabric& fabric, const LaunchId& launch);     // "n0.r3#41"

}  // namespace opus::controller
