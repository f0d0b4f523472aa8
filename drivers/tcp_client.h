// A non-blocking TCP connection to "host:port". No thread; its owner polls fd() for events().
#pragma once

#include <string>

namespace opus::drivers {

class TcpClient {
public:
    ~TcpClient() { close(); }

    // Begins to connect; empty, or why not. A host name is resolved here and may take the resolver's time.
    std::string connect(const std::string& address);
    void close();

    int fd() const { return fd_; }
    bool connected() const { return connected_; }
    short events(bool something_to_send) const;

    // Each: empty, or why the connection is over.
    std::string finish_connect();             // fd() became writable while not connected()
    std::string send(std::string& bytes);     // erases what was taken
    std::string receive(std::string& bytes);  // replaces; empty bytes: nothing yet

private:
    int fd_ = -1;
    bool connected_ = false;
    std::string address_;
};

}  // namespace opus::drivers
