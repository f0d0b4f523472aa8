// A listening TCP socket on an address "host:port" (numeric; port 0: the kernel picks).
#pragma once

#include <functional>
#include <string>

#include "tools/emulator/loop.h"

namespace opus::emulator {

class Listener : public Watcher {
public:
    // Accepted descriptors are non-blocking, without Nagle's delay. Throws std::runtime_error with a text
    // for people.
    Listener(Loop& loop, const std::string& address, std::function<void(int fd)> accepted);
    ~Listener() override;

    const std::string& address() const { return address_; }  // with the port that it really got
    void ready(std::uint32_t) override;

private:
    Loop& loop_;
    int fd_ = -1;
    int spare_ = -1;  // given up for a moment when the process is out of descriptors
    std::string address_;
    std::function<void(int)> accepted_;
};

}  // namespace opus::emulator
