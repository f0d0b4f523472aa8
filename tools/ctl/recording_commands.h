// opus-ctl record FILE, opus-ctl summary [FILE], opus-ctl phases.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace opus::ctl {

struct RecordRequest {
    std::string controller;
    int timeout_ms = 3'000;
    std::string file;    // "-": standard output
    std::string job;     // empty: all jobs
    double seconds = 0;  // 0: until the job has ended, or a signal
    bool json_output = false;
};

// Returns an exit code. Throws as ControllerClient does.
int record(const RecordRequest& request);
// Of a recording. `json_output`: as the controller's own answer to `summary`.
int summarize(const std::string& file, const std::string& job, bool json_output);
void show_summary(const nlohmann::json& body);
void show_phases(const nlohmann::json& body);

}  // namespace opus::ctl
