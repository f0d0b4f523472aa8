#include "manager/shell/process_watch.h"

#include <sys/stat.h>
#include <sys/syscall.h>

#include <fstream>
#include <sstream>

namespace opus::manager {

std::uint64_t start_time_of(pid_t pid) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
    std::string line;
    if (!std::getline(file, line)) return 0;
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

Descriptor watch_process(pid_t pid) {
#ifdef SYS_pidfd_open
    return Descriptor(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
#else
    return Descriptor();
#endif
}

bool maps_file(pid_t pid, const std::string& path) {
    struct stat wanted {};
    if (::stat(path.c_str(), &wanted) != 0) return false;
    std::ifstream file("/proc/" + std::to_string(pid) + "/maps");
    if (!file) return true;
    // address perms offset dev inode path. The path and the device may look different in a container.
    bool any = false;
    for (std::string line; std::getline(file, line);) {
        any = true;
        std::istringstream fields(line);
        std::string address, perms, offset, device;
        std::uint64_t inode = 0;
        fields >> address >> perms >> offset >> device >> inode;
        if (inode == wanted.st_ino && line.find("rank-") != std::string::npos) return true;
    }
    return !any;
}

}  // namespace opus::manager
