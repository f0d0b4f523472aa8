#include "manager/shell/runtime_directory.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>

namespace opus::manager {
namespace {

[[noreturn]] void fail(const std::string& what, const std::string& path, const std::string& remedy) {
    throw std::runtime_error(what + " " + path + ": " + std::strerror(errno) + "; " + remedy);
}

bool same_file(int fd, const std::string& path) {
    struct stat a {
    }, b{};
    return ::fstat(fd, &a) == 0 && ::stat(path.c_str(), &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

}  // namespace

std::string RuntimeDirectory::default_path() {
    if (const char* xdg = std::getenv("XDG_RUNTIME_DIR"); xdg != nullptr && *xdg != '\0')
        return std::string(xdg) + "/opus";
    return "/run/opus";
}

RuntimeDirectory::RuntimeDirectory(std::string path) : path_(std::move(path)) {
    const char* remedy = "choose another with --runtime-dir or OPUS_RUNTIME_DIR";
    std::error_code error;
    std::filesystem::create_directories(std::filesystem::path(path_).parent_path(), error);
    if (::mkdir(path_.c_str(), 0700) == 0) {
        made_ = true;
    } else if (errno != EEXIST) {
        fail("cannot make the runtime directory", path_, remedy);
    }
    const std::string lock_path = path_ + "/lock";
    for (;;) {
        lock_ = Descriptor(::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
        if (!lock_) fail("cannot open", lock_path, remedy);
        if (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) {
            if (errno != EWOULDBLOCK) fail("cannot lock", lock_path, remedy);
            throw std::runtime_error("another opus-manager serves " + path_ + "; stop it, or " + remedy);
        }
        // A manager that ended in between may have removed the very file we have locked.
        if (same_file(lock_.get(), lock_path)) return;
    }
}

std::vector<std::pair<RankId, std::string>> RuntimeDirectory::segments() const {
    std::vector<std::pair<RankId, std::string>> found;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(path_, error)) {
        const std::string name = entry.path().filename().string();
        if (!name.starts_with("rank-") || !name.ends_with(".seg")) continue;
        const char *first = name.data() + 5, *last = name.data() + name.size() - 4;
        RankId rank = kNone;
        const auto [end, problem] = std::from_chars(first, last, rank);
        if (problem == std::errc{} && end == last && rank != kNone) found.emplace_back(rank, entry.path().string());
    }
    std::sort(found.begin(), found.end());
    return found;
}

bool RuntimeDirectory::on_tmpfs() const {
    struct statfs at {};
    return ::statfs(path_.c_str(), &at) == 0 && (at.f_type == TMPFS_MAGIC || at.f_type == HUGETLBFS_MAGIC);
}

std::uint64_t RuntimeDirectory::seat() const {
    std::string boot;
    std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
    std::size_t seat = 0;
    for (const char c : boot) seat = hash_mix(seat, static_cast<unsigned char>(c));
    struct stat directory {};
    ::stat(path_.c_str(), &directory);
    seat = hash_mix(hash_mix(seat, directory.st_dev), directory.st_ino);
    return seat != 0 ? seat : 1;
}

void RuntimeDirectory::remove_all() {
    for (const std::string& path : {socket_path(), doorbell_path(), steering_path(), path_ + "/lock"})
        ::unlink(path.c_str());
    if (made_) ::rmdir(path_.c_str());
}

}  // namespace opus::manager
