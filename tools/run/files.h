// Where things are: the shim, the emulation, the program that is to be run.
#pragma once

#include <string>

namespace opus::run {

// The first of these that is there, or empty. Beside opus-run, in an installed tree, in a build folder.
std::string find_shim();
std::string find_emulation();  // opus-emulate
std::string find_observer();   // opus-observer

// Why a preloaded library cannot get into `program` (as execvp finds it): "is linked statically", ... Empty: it can, as
// far as its file tells.
std::string unreachable(const std::string& program);

}  // namespace opus::run
