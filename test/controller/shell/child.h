// A program run by a test: started with its output in pipes, ended whatever happens.
#pragma once

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace opus::test {

class Child {
public:
    explicit Child(const std::vector<std::string>& command) {
        int out[2], err[2];
        if (pipe(out) != 0 || pipe(err) != 0) throw std::runtime_error("pipe");
        pid_ = fork();
        if (pid_ == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            dup2(out[1], 1);
            dup2(err[1], 2);
            for (const int fd : {out[0], out[1], err[0], err[1]}) close(fd);
            std::vector<char*> argv;
            for (const auto& word : command) argv.push_back(const_cast<char*>(word.c_str()));
            argv.push_back(nullptr);
            execv(argv[0], argv.data());
            _exit(127);
        }
        close(out[1]);
        close(err[1]);
        out_ = out[0];
        err_ = err[0];
    }
    ~Child() {
        if (pid_ > 0) {
            kill(pid_, SIGKILL);
            waitpid(pid_, nullptr, 0);
        }
        close(out_);
        close(err_);
    }
    Child(const Child&) = delete;
    Child& operator=(const Child&) = delete;

    pid_t pid() const { return pid_; }

    // The next line of standard output; empty at its end, or when none comes in 20 s.
    std::string line() {
        std::string text;
        for (;;) {
            pollfd item{out_, POLLIN, 0};
            char c = 0;
            if (poll(&item, 1, 20'000) <= 0 || read(out_, &c, 1) != 1 || c == '\n') return text;
            text += c;
        }
    }
    // What follows "key=" on the ready line.
    std::string ready(const std::string& key) {
        const std::string text = line();
        const auto at = text.find(key + "=");
        if (text.find(": ready ") == std::string::npos || at == std::string::npos)
            throw std::runtime_error("not ready: '" + text + "' " + errors());
        const auto begin = at + key.size() + 1;
        return text.substr(begin, text.find(' ', begin) - begin);
    }
    void terminate() { kill(pid_, SIGTERM); }

    struct Ended {
        int code = -1;  // -signal when killed by one; -1000 when it did not end within 20 s
        std::string out, err;
    };
    Ended wait() {
        Ended ended;
        bool out_open = true, err_open = true;
        while (out_open || err_open) {
            pollfd items[] = {{out_open ? out_ : -1, POLLIN, 0}, {err_open ? err_ : -1, POLLIN, 0}};
            if (poll(items, 2, 20'000) <= 0) {
                kill(pid_, SIGKILL);
                waitpid(pid_, nullptr, 0);
                pid_ = -1;
                ended.code = -1000;
                return ended;
            }
            if (items[0].revents != 0) out_open = append(out_, ended.out);
            if (items[1].revents != 0) err_open = append(err_, ended.err);
        }
        int status = 0;
        waitpid(pid_, &status, 0);
        pid_ = -1;
        ended.code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
        return ended;
    }

private:
    pid_t pid_ = -1;
    int out_ = -1, err_ = -1;

    static bool append(int fd, std::string& text) {
        char buffer[4096];
        const ssize_t n = read(fd, buffer, sizeof buffer);
        if (n > 0) text.append(buffer, static_cast<std::size_t>(n));
        return n > 0;
    }
    std::string errors() {
        std::string text;
        pollfd item{err_, POLLIN, 0};
        while (poll(&item, 1, 200) > 0 && append(err_, text)) {}
        return text;
    }
};

inline Child::Ended run(const std::vector<std::string>& command) { return Child(command).wait(); }

}  // namespace opus::test
