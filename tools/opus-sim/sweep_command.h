// `opus-sim sweep`: a job played with each combination of options, as files of a folder.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace opus::job {

struct SweepOptions {
    std::string sweep, out, part;  // part: "K/N"
    unsigned at_once = 0;          // 0: as many as there are cores for this process
    bool table = false;            // play nothing
    bool replace = false;          // points that were played from something else
    bool list = false;             // say their names
    bool json = false;
};

void sweep_arguments(CLI::App& app, SweepOptions& options);
// Throws BadFile, std::invalid_argument.
int sweep_command(const SweepOptions& options);

}  // namespace opus::job
