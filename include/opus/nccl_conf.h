// What a variable of NCCL's is, as NCCL will find it (param.cc): the environment, else the user's file (NCCL_CONF_FILE, else
// ~/.nccl.conf), else /etc/nccl.conf. Lines are NAME=VALUE, # begins a comment; nothing is trimmed.
//
// Freestanding but for stdio: the shim includes this. NCCL asks the user database for the home directory, this asks HOME.
#pragma once

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace opus {

struct NcclValue {
    bool given = false;
    char value[256] = {};
    char from[256] = {};  // the file; empty: the environment
};

namespace detail {

inline bool find_in_file(const char* path, const char* name, NcclValue& found) {
    std::FILE* file = std::fopen(path, "re");
    if (file == nullptr) return false;
    char line[1024];
    const std::size_t length = std::strlen(name);
    while (!found.given && std::fgets(line, sizeof line, file) != nullptr) {
        if (std::strncmp(line, name, length) != 0 || line[length] != '=') continue;
        line[std::strcspn(line, "\n")] = '\0';
        std::snprintf(found.value, sizeof found.value, "%.255s", line + length + 1);
        std::snprintf(found.from, sizeof found.from, "%.255s", path);
        found.given = true;
    }
    std::fclose(file);
    return found.given;
}

inline bool find_in_files(const char* name, NcclValue& found) {
    const char* chosen = std::getenv("NCCL_CONF_FILE");
    const char* home = std::getenv("HOME");
    char path[512] = {};
    if (chosen != nullptr && chosen[0] != '\0')
        std::snprintf(path, sizeof path, "%s", chosen);
    else if (home != nullptr && home[0] != '\0')
        std::snprintf(path, sizeof path, "%s/.nccl.conf", home);
    return (path[0] != '\0' && find_in_file(path, name, found)) || find_in_file("/etc/nccl.conf", name, found);
}

}  // namespace detail

inline NcclValue find_nccl_value(const char* name) {
    NcclValue found;
    detail::find_in_files(name, found);
    const char* value = std::getenv(name);
    // NCCL puts what it has read into the environment: the same value is the file's.
    if (value == nullptr || (found.given && std::strcmp(value, found.value) == 0)) return found;
    found.given = true;
    std::snprintf(found.value, sizeof found.value, "%.255s", value);
    found.from[0] = '\0';
    return found;
}

}  // namespace opus
