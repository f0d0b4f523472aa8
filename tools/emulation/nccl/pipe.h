// A stream socket between two processes. Transport thread only. Reliable while both live.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "head.h"

namespace opus::standin {

class Transport;

// Bytes that come in, cut into heads and payloads.
class Inbound {
public:
    explicit Inbound(std::size_t capacity = 512 * 1024) : bytes_(capacity) {}
    // One read. 0: end of file or error; -1: nothing there.
    int read_from(int fd);
    void feed(const std::string& bytes);
    // The next `size` bytes, or null. They stay valid until the next read_from.
    const std::byte* take(std::size_t size);
    const std::byte* peek(std::size_t size) const;

private:
    std::vector<std::byte> bytes_;
    std::size_t begin_ = 0, end_ = 0;
};

class Pipe {
public:
    Pipe(Transport& transport, const Member& peer, std::uint64_t self);
    ~Pipe();

    void connect(std::uint32_t my_node);             // the lower endpoint calls
    void accepted(int fd, const std::string& rest);  // the other one is called
    void send(FrameRef frame);
    void purge(const Activity* owner);
    std::uint64_t endpoint() const { return peer_.endpoint; }

private:
    void on_events(std::uint32_t events);
    void read();
    void write();
    void unheard();
    void close();

    Transport& transport_;
    Member peer_;
    std::uint64_t self_;
    int fd_ = -1;
    bool closed_ = false;
    bool unheard_ = false;
    bool want_write_ = false;
    std::deque<FrameRef> out_;
    std::size_t out_done_ = 0;  // bytes of the first that are gone
    Inbound in_;
};

std::string unix_name(std::uint64_t endpoint);  // abstract: leading NUL

}  // namespace opus::standin
