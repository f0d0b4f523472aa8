// The controller's answers as people read them. The JSON is that of controller/shell/ctl_replies.h.
#pragma once

#include <nlohmann/json.hpp>

namespace opus::ctl {

// People are told of so many launches that wait, and how many more there are.
inline constexpr std::size_t kMostWaitingShown = 64;

void show_status(const nlohmann::json& body);
void show_circuits(const nlohmann::json& body);
void show_ports(const nlohmann::json& body);
void show_groups(const nlohmann::json& body);
void show_jobs(const nlohmann::json& body);
void show_why(const nlohmann::json& body);
void show_event(const nlohmann::json& event);

}  // namespace opus::ctl
