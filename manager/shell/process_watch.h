// Whether a process lives, and whether it is still the one we knew.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "manager/shell/descriptor.h"

namespace opus::manager {

// /proc/PID/stat field 22, or 0 when the process is dead (or a zombie).
std::uint64_t start_time_of(pid_t pid);

// Readable when the process ends. Empty where the kernel has none.
Descriptor watch_process(pid_t pid);

// The process still maps the file (false after an exec). True where that cannot be seen.
bool maps_file(pid_t pid, const std::string& path);

}  // namespace opus::manager
