// Sockets in front of the instrument: several sessions at once.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>

#include "tools/emulator/instrument.h"
#include "tools/emulator/listener.h"

namespace opus::emulator {

class ScpiServer {
public:
    ScpiServer(Loop& loop, Instrument& instrument, const std::string& address);
    ~ScpiServer();
    const std::string& address() const { return listener_.address(); }

private:
    struct Connection;

    void accepted(int fd);
    void received(Connection& connection);
    TimeNs round(TimeNs now);
    void carry_out(const Outputs& outputs);
    void flush(Connection& connection);
    void end(Connection& connection);

    Loop& loop_;
    Instrument& instrument_;
    std::unordered_map<SessionId, std::unique_ptr<Connection>> connections_;
    std::vector<std::unique_ptr<Connection>> ended_;  // until the round is over
    SessionId last_session_ = 0;
    Listener listener_;
};

}  // namespace opus::emulator
