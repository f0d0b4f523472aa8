// A program that is run as if opus-run were not there.
#pragma once

#include <string>
#include <vector>

namespace opus::run {

// How it ended, as wait(2) says it; `error` (errno) where it could not be started at all.
struct Ending {
    int status = 0;
    int error = 0;
};

// Runs `command` in this process's group, with its standard streams and environment, and waits. Signals that somebody
// sends to us are sent on; those of a terminal reach both by themselves. Call it once, from the only thread.
Ending run_child(const std::vector<std::string>& command);

// Ends this process as the child ended: with its code, or by its signal. 127 and 126 as a shell where there was none.
[[noreturn]] void end_as(const Ending& ending);

}  // namespace opus::run
