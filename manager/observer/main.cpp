// opus-observer: started by opus-run --observe, one a node (docs/recording.md).
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <string>

#include "manager/observer/observer.h"
#include "manager/shell/host_name.h"

namespace opus::manager {
namespace {

constexpr unsigned kMostFiles = 1024;  // of one node

// Where a launcher starts each rank by itself, each has an observer, and a file.
std::string rank_suffix() {
    for (const char* name : {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"})
        if (const char* value = std::getenv(name); value != nullptr && value[0] != '\0')
            return std::string(".rank") + value;
    return "";
}

std::string file_name(const std::string& text) {
    std::string name = text;
    for (char& c : name)
        if (c == '/' || static_cast<unsigned char>(c) < 0x20) c = '_';
    return name;
}

// A file of the folder that no other observer writes: an earlier run's is written over. Sets `path`.
Descriptor own_file(const std::string& folder, const std::string& name, std::string& path) {
    for (unsigned n = 1; n <= kMostFiles; ++n) {
        path = folder + "/" + name + (n == 1 ? "" : "-" + std::to_string(n)) + ".jsonl";
        Descriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
        if (!file) throw std::runtime_error("cannot write the recording " + path + ": " + std::strerror(errno));
        // A file system without locks (ENOLCK) has nobody who could tell.
        if (::flock(file.get(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return file;
    }
    throw std::runtime_error(path + ": " + std::to_string(kMostFiles) +
                             " others are being written; choose another --out");
}

std::string make_runtime_directory() {
    const auto value = [](const char* name) {
        const char* text = std::getenv(name);
        return std::string(text != nullptr ? text : "");
    };
    for (const std::string& place :
         {value("XDG_RUNTIME_DIR"), std::string("/dev/shm"), value("TMPDIR"), std::string("/tmp")}) {
        if (place.empty() || place.size() > 64) continue;  // the path of a Unix socket is short
        std::string path = place + "/opus-observer.XXXXXX";
        if (::mkdtemp(path.data()) != nullptr) return path;
    }
    throw std::runtime_error("no folder can be made in $XDG_RUNTIME_DIR, /dev/shm, $TMPDIR or /tmp");
}

int observe(ObserverOptions options, const std::string& folder) {
    std::error_code failed;
    std::filesystem::create_directories(folder, failed);
    const std::string whole = std::filesystem::absolute(folder, failed).lexically_normal().string();
    Descriptor lock = own_file(whole, file_name(options.node) + rank_suffix(), options.file);
    ::umask(077);
    const bool own = options.runtime_directory.empty();
    if (own) options.runtime_directory = make_runtime_directory();
    bool nothing = false;
    {
        Observer observer(options, std::move(lock));
        std::printf("opus-observer: ready runtime=%s file=%s\n", options.runtime_directory.c_str(), options.file.c_str());
        std::fflush(stdout);
        observer.run();
        for (const std::string& line : observer.report()) std::printf("%s\n", line.c_str());
        std::fflush(stdout);
        nothing = observer.empty();
    }
    if (nothing) ::unlink(options.file.c_str());
    if (own) std::filesystem::remove_all(options.runtime_directory, failed);
    return 0;
}

}  // namespace
}  // namespace opus::manager

int main(int argc, char** argv) {
    opus::manager::ObserverOptions options;
    std::string folder = "opus-recording";
    CLI::App app(
        "Records what the ranks of this node do, with no manager and no controller. opus-run --observe starts it.",
        "opus-observer");
    app.add_option("--node", options.node, "name of this node in the recording; default: the host name");
    app.add_option("--out", folder, "folder of the recording")->capture_default_str();
    app.add_option("--runtime-dir", options.runtime_directory,
                   "where ranks find it (their OPUS_RUNTIME_DIR); default: a new folder in memory");
    app.add_flag("--until-signal", options.until_signal,
                 "end with SIGTERM or SIGINT; default: when standard input ends, and the ranks have ended or two "
                 "seconds are over");
    app.footer(
        "Its first line is: opus-observer: ready runtime=FOLDER file=FILE. What was recorded is said when it ends.");
    app.set_version_flag("--version", "opus-observer " OPUS_PROGRAM_VERSION);
    CLI11_PARSE(app, argc, argv);
    std::signal(SIGPIPE, SIG_IGN);  // who started this may be gone, and what was recorded is still to be tidied away
    if (options.node.empty()) options.node = opus::manager::host_name();
    try {
        return opus::manager::observe(options, folder);
    } catch (const std::exception& e) {
        std::printf("%s\n", e.what());
        return 1;
    }
}
