#include "tools/run/observer.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

namespace opus::run {

namespace {

constexpr int kStartLimitMs = 20'000, kEndLimitMs = 20'000;

// In a session of its own: a Ctrl-C is for the command, whose end it has still to record.
[[noreturn]] void become(const std::string& program, const std::string& node, const std::string& out, int life, int said) {
    setsid();
    dup2(life, STDIN_FILENO);
    dup2(said, STDOUT_FILENO);
    unsetenv("LD_PRELOAD");
    if (node.empty())
        execl(program.c_str(), program.c_str(), "--out", out.c_str(), nullptr);
    else
        execl(program.c_str(), program.c_str(), "--out", out.c_str(), "--node", node.c_str(), nullptr);
    dprintf(STDOUT_FILENO, "cannot run %s: %s\n", program.c_str(), strerror(errno));
    _exit(126);
}

}  // namespace

ObserverProcess::ObserverProcess(const std::string& program, const std::string& node, const std::string& out,
                                 std::string& fault) {
    int life[2], said[2];
    if (pipe2(life, O_CLOEXEC) != 0 || pipe2(said, O_CLOEXEC) != 0) {
        fault = strerror(errno);
        return;
    }
    pid_ = fork();
    if (pid_ == 0) become(program, node, out, life[0], said[1]);
    close(life[0]);
    close(said[1]);
    life_ = life[1];
    said_ = said[0];
    std::string line;
    const std::string ready = "opus-observer: ready runtime=";
    if (pid_ > 0 && read_line(line, kStartLimitMs) && line.starts_with(ready)) {
        directory_ = line.substr(ready.size(), line.find(' ', ready.size()) - ready.size());
        return;
    }
    fault = line.empty() ? program + " did not start" : line;
    finish();
}

bool ObserverProcess::read_line(std::string& line, int limit_ms) {
    for (;;) {
        const std::size_t end = rest_.find('\n');
        if (end != std::string::npos) {
            line = rest_.substr(0, end);
            rest_.erase(0, end + 1);
            return true;
        }
        pollfd wanted{said_, POLLIN, 0};
        const int found = poll(&wanted, 1, limit_ms);
        if (found < 0 && errno == EINTR) continue;
        char bytes[4096];
        const ssize_t n = found > 0 ? read(said_, bytes, sizeof bytes) : 0;
        if (n <= 0) return false;
        rest_.append(bytes, std::size_t(n));
    }
}

std::vector<std::string> ObserverProcess::finish() {
    std::vector<std::string> lines;
    if (life_ >= 0) close(life_);
    life_ = -1;
    for (std::string line; said_ >= 0 && read_line(line, kEndLimitMs);) lines.push_back(line);
    if (said_ >= 0) close(said_);
    said_ = -1;
    if (pid_ > 0) {
        kill(pid_, SIGKILL);  // it has said all, or nothing for so long
        // One that is caught in a file system that does not answer cannot be killed either.
        for (int turn = 0; turn < 100 && waitpid(pid_, nullptr, WNOHANG) == 0; ++turn) usleep(20'000);
        if (lines.empty() && !directory_.empty())
            lines.emplace_back("the observer was killed: the recording ends before the command did");
    }
    pid_ = -1;
    std::error_code failed;
    if (!directory_.empty()) std::filesystem::remove_all(directory_, failed);
    return lines;
}

}  // namespace opus::run
