// opus-ctl fabric check|make: no controller needed.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace opus::ctl {

// Adds the subcommands; `chosen` becomes what to run, which returns an exit code.
void add_fabric_commands(CLI::App& app, bool& json_output, std::function<int()>& chosen);

}  // namespace opus::ctl
