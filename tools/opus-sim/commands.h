// What the program does: a function a command; exit codes as main.cpp says.
#pragma once

#include <string>
#include <vector>

#include "tools/opus-sim/model_job.h"
#include "tools/opus-sim/run_job.h"

namespace opus::job {

inline constexpr int kExitOk = 0, kExitJob = 1, kExitUsage = 2;

int read_command(const std::vector<std::string>& paths, const ReadOptions& options, bool json);
int run_command(const std::vector<std::string>& paths, const ReadOptions& read, const RunOptions& options, bool json,
                const std::string& log);
int generate_command(const ModelOptions& options, const std::string& out);

}  // namespace opus::job
