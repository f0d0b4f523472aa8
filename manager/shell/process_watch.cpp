#include "manager/shell/process_watch.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <sstream>

namespace opus::manager {
namespace {

enum class Found : std::uint8_t { text, no_process, hidden, not_now };

Found read_file(pid_t pid, const char* name, std::string& text) {
    const std::string path = "/proc/" + std::to_string(pid) + "/" + name;
    const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    ssize_t got = -1;
    text.clear();
    for (char part[4096]; file && (got = ::read(file.get(), part, sizeof part)) > 0;)
        text.append(part, static_cast<std::size_t>(got));
    if (got == 0) return Found::text;
    if (errno == ENOENT || errno == ESRCH) return Found::no_process;
    return errno == EACCES || errno == EPERM ? Found::hidden : Found::not_now;
}

enum class Maps : std::uint8_t { no, yes, hidden, not_now };

// address perms offset dev inode path. The path and the device may look different in a container.
Maps maps(pid_t pid, ino_t wanted) {
    std::string text;
    switch (read_file(pid, "maps", text)) {
        case Found::text: break;
        case Found::no_process: return Maps::no;
        case Found::hidden: return Maps::hidden;
        case Found::not_now: return Maps::not_now;
    }
    if (text.empty()) return Maps::hidden;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        std::istringstream fields(line);
        std::string address, perms, offset, device;
        std::uint64_t inode = 0;
        fields >> address >> perms >> offset >> device >> inode;
        if (inode == wanted && line.find("rank-") != std::string::npos) return Maps::yes;
    }
    return Maps::no;
}

}  // namespace

std::optional<std::uint64_t> start_time_of(pid_t pid) {
    std::string line;
    switch (read_file(pid, "stat", line)) {
        case Found::text: break;
        case Found::no_process: return 0;
        case Found::hidden:
        case Found::not_now: return {};
    }
    const auto name_end = line.rfind(')');  // the command's name may hold anything
    if (name_end == std::string::npos) return 0;
    std::istringstream fields(line.substr(name_end + 1));
    std::string field;
    bool zombie = false;
    for (int number = 3; fields >> field; ++number) {
        if (number == 3) zombie = field == "Z" || field == "X";
        if (number == 20 && zombie && field != "0" && field != "1") zombie = false;  // only its first thread ended
        if (number == 22 && zombie) return 0;
        if (number == 22) return std::stoull(field);
    }
    return 0;
}

std::string text_of(pid_t pid, const char* name) {
    std::string text;
    return read_file(pid, name, text) == Found::text ? text : std::string();
}

Descriptor watch_process(pid_t pid) {
#ifdef SYS_pidfd_open
    return Descriptor(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
#else
    return Descriptor();
#endif
}

Owner owner_of(const std::string& path, pid_t pid, std::uint64_t start) {
    const auto started = start_time_of(pid);
    struct stat file {};
    if (!started) return Owner::unknown;
    if (start == 0 || *started != start) return Owner::gone;
    if (::stat(path.c_str(), &file) != 0) return errno == ENOENT ? Owner::gone : Owner::unknown;
    switch (maps(pid, file.st_ino)) {
        case Maps::no: return Owner::gone;
        case Maps::not_now: return Owner::unknown;
        default: return Owner::lives;
    }
}

Owner anyone_of(const std::string& path) {
    struct stat file {};
    if (::stat(path.c_str(), &file) != 0) return errno == ENOENT ? Owner::gone : Owner::unknown;
    const std::unique_ptr<DIR, int (*)(DIR*)> all(::opendir("/proc"), &::closedir);
    if (!all) return Owner::unknown;
    while (const dirent* entry = ::readdir(all.get())) {
        pid_t pid = 0;
        const char* const end = entry->d_name + std::strlen(entry->d_name);
        if (const auto [at, error] = std::from_chars(entry->d_name, end, pid); error != std::errc() || at != end) continue;
        const Maps found = maps(pid, file.st_ino);
        if (found == Maps::yes) return Owner::lives;
        if (found == Maps::not_now) return Owner::unknown;
    }
    return Owner::gone;
}

}  // namespace opus::manager
