// The process that records what this node's ranks do (manager/observer), for as long as a command runs.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace opus::run {

class ObserverProcess {
public:
    // Starts it. `fault` says what is wrong where it does not serve.
    ObserverProcess(const std::string& program, const std::string& node, const std::string& out, std::string& fault);
    ObserverProcess(const ObserverProcess&) = delete;
    ObserverProcess& operator=(const ObserverProcess&) = delete;

    const std::string& runtime_directory() const { return directory_; }
    // Lets it end, and removes what it has left in memory. What it says, a line each.
    std::vector<std::string> finish();

private:
    // The next whole line; false: none came in time, or there are no more.
    bool read_line(std::string& line, int limit_ms);

    pid_t pid_ = -1;
    int life_ = -1;  // it ends when this closes, whoever closes it
    int said_ = -1;
    std::string directory_, rest_;
};

}  // namespace opus::run
