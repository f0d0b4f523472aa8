// Whether a process lives, and whether it is still the one we knew.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "manager/shell/descriptor.h"

namespace opus::manager {

// /proc/PID/stat field 22, or 0 when the process is dead (or a zombie). Empty: it cannot be told now (no descriptor, say).
std::optional<std::uint64_t> start_time_of(pid_t pid);

// A file of /proc/PID, whole. Empty: there is none, or it cannot be read.
std::string text_of(pid_t pid, const char* name);

// Readable when the process ends. Empty where the kernel has none.
Descriptor watch_process(pid_t pid);

enum class Owner : std::uint8_t { gone, lives, unknown };  // unknown: it cannot be told now

// Of a file that this process, which started then, has mapped: gone also after an exec. What it maps may be hidden: then
// it is taken to map the file.
Owner owner_of(const std::string& path, pid_t pid, std::uint64_t start);
// Whether any process whose mappings can be seen has the file mapped.
Owner anyone_of(const std::string& path);

}  // namespace opus::manager
