// The options of a sweep's points are those of `generate`, `read` and `run` on a command line: the same names, checks and defaults.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/opus-sim/commands.h"
#include "tools/opus-sim/sweep_file.h"

namespace opus::job {

struct PointOptions {
    std::optional<ModelOptions> model;  // else files
    std::vector<std::string> files;     // where they are
    ReadOptions read;
    RunOptions run;
    double accept = 0.05;
    std::string generation;
    // Words of command lines that say the same.
    std::vector<std::string> job_words, run_words;
};

// Throws BadFile: the line of the option that is wrong. What options have to do with each other is not looked at.
void check_options(const SweepFile& sweep);

// Of a sweep that was checked. `folder`: of the sweep's file; names of files are relative to it.
PointOptions options_of(const SweepPoint& point, const std::string& folder);

}  // namespace opus::job
