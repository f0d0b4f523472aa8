// How ranks pass each other small values (unique ids) before there is a communicator: a folder that all
// see (file:DIR), or a socket that world rank 0 listens on (tcp:HOST:PORT). Blocking, with a deadline.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace opus::replay {

class Rendezvous {
public:
    virtual ~Rendezvous() = default;
    virtual void put(const std::string& key, const std::string& value) = 0;
    // Waits until somebody has put it. Throws PlayError after `timeout_ms`.
    virtual std::string get(const std::string& key, std::uint64_t timeout_ms) = 0;
};

// `where`: file:DIR or tcp:HOST:PORT. Throws PlayError when it is neither or cannot be used.
std::unique_ptr<Rendezvous> open_rendezvous(const std::string& where, std::uint32_t rank);

}  // namespace opus::replay
