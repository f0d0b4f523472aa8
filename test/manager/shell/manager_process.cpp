#include "test/manager/shell/manager_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace opus::manager::test {

std::string manager_program() {
    const char* program = std::getenv("OPUS_MANAGER");
    return program != nullptr ? program : "";
}

ScratchDirectory::ScratchDirectory() {
    std::string pattern = (std::filesystem::temp_directory_path() / "opus-manager-test-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
}

ScratchDirectory::~ScratchDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
}

std::vector<std::string> ScratchDirectory::list() const {
    std::vector<std::string> names;
    std::error_code gone;
    for (const auto& entry : std::filesystem::directory_iterator(path_, gone))
        names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
}

ManagerProcess::ManagerProcess(const std::string& runtime_directory, const std::string& controller) {
    int out[2], err[2];
    if (::pipe2(out, O_CLOEXEC) != 0 || ::pipe2(err, O_CLOEXEC) != 0) return;
    const std::string program = manager_program();
    pid_ = ::fork();
    if (pid_ == 0) {
        ::dup2(out[1], STDOUT_FILENO);
        ::dup2(err[1], STDERR_FILENO);
        ::execl(program.c_str(), "opus-manager", "--node", "n0", "--controller", controller.c_str(), "--runtime-dir",
                runtime_directory.c_str(), "--log", "info", nullptr);
        ::_exit(127);
    }
    ::close(out[1]);
    ::close(err[1]);
    out_ = out[0];
    err_ = err[0];
    ::fcntl(err_, F_SETFL, O_NONBLOCK);
    ::fcntl(err_, F_SETPIPE_SZ, 1 << 20);  // nobody reads it while a test runs
}

ManagerProcess::~ManagerProcess() {
    if (pid_ > 0) {
        ::kill(pid_, SIGKILL);
        ::waitpid(pid_, nullptr, 0);
    }
    if (out_ >= 0) ::close(out_);
    if (err_ >= 0) ::close(err_);
}

bool ManagerProcess::serves() {
    while (text_.find('\n') == std::string::npos) {
        pollfd item{out_, POLLIN, 0};
        char buffer[512];
        if (::poll(&item, 1, 10'000) <= 0) return false;
        const ssize_t bytes = ::read(out_, buffer, sizeof buffer);
        if (bytes <= 0) return false;
        text_.append(buffer, static_cast<std::size_t>(bytes));
    }
    return text_.starts_with("opus-manager: ready socket=");
}

void ManagerProcess::signal(int number) const { ::kill(pid_, number); }

int ManagerProcess::wait() {
    int status = 0;
    if (::waitpid(pid_, &status, 0) != pid_) return -1;
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

bool ManagerProcess::alive() const { return pid_ > 0 && ::waitpid(pid_, nullptr, WNOHANG) == 0; }

const std::string& ManagerProcess::errors() {
    char buffer[4096];
    for (ssize_t bytes; (bytes = ::read(err_, buffer, sizeof buffer)) > 0;)
        errors_.append(buffer, static_cast<std::size_t>(bytes));
    return errors_;
}

std::uint64_t ManagerProcess::voluntary_switches() const {
    std::ifstream file("/proc/" + std::to_string(pid_) + "/status");
    for (std::string word; file >> word;) {
        if (word != "voluntary_ctxt_switches:") continue;
        std::uint64_t count = 0;
        file >> count;
        return count;
    }
    return 0;
}

}  // namespace opus::manager::test
