// A real opus-manager, in a runtime directory of its own.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace opus::manager::test {

// A directory that goes with the test, whatever is in it.
class ScratchDirectory {
public:
    ScratchDirectory();
    ~ScratchDirectory();
    const std::string& path() const { return path_; }
    std::vector<std::string> list() const;

private:
    std::string path_;
};

class ManagerProcess {
public:
    ManagerProcess(const std::string& runtime_directory, const std::string& controller);
    ~ManagerProcess();  // kill -9, if it is still there
    ManagerProcess(const ManagerProcess&) = delete;
    ManagerProcess& operator=(const ManagerProcess&) = delete;

    // Its ready line has come; false when it ended instead.
    bool serves();
    void signal(int number) const;
    int wait();  // exit code, or 128 + the signal
    bool alive() const;
    pid_t pid() const { return pid_; }
    std::uint64_t voluntary_switches() const;
    const std::string& errors();  // stderr so far

private:
    pid_t pid_ = -1;
    int out_ = -1, err_ = -1;
    std::string text_, errors_;
};

// OPUS_MANAGER, which meson sets; empty when there is none to test.
std::string manager_program();

}  // namespace opus::manager::test
