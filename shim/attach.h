// Meeting the manager: one exchange over its Unix socket (opus/attach.h), at most about a second.
#pragma once

#include <cstdint>

#include "shim/settings.h"

namespace opus::shim {

struct Attachment {
    void* base = nullptr;  // null: `why` says, in words for people
    std::uint32_t slots = 0;
    int socket = -1;
    int doorbell = -1;
    char why[200] = {};
};

Attachment meet_manager(const Settings& settings, Mode mode, Policy policy);

// OPUS_SOCKET, else $OPUS_RUNTIME_DIR/manager.sock, $XDG_RUNTIME_DIR/opus/manager.sock, or
// /run/opus/manager.sock. The n-th place to try; false when there is none.
bool socket_path(const Settings& settings, unsigned n, char* path, std::size_t size);

}  // namespace opus::shim
