// Meeting the manager: one exchange over its Unix socket (opus/attach.h), at most about a second.
#pragma once

#include <cstdint>

#include "opus/types.h"
#include "shim/settings.h"

namespace opus::shim {

struct Attachment {
    void* base = nullptr;  // null: `why` says, in words for people
    std::uint32_t slots = 0;
    int socket = -1;
    int doorbell = -1;
    char why[200] = {};
};

// `meeting`: what names the first communicator (job_name.h).
Attachment meet_manager(const Settings& settings, Mode mode, Policy policy, const CommId& meeting);

// OPUS_SOCKET, else $OPUS_RUNTIME_DIR/manager.sock, $XDG_RUNTIME_DIR/opus/manager.sock, or
// /run/opus/manager.sock. The n-th place to try; false when there is none.
bool socket_path(const Settings& settings, unsigned n, char* path, std::size_t size);

}  // namespace opus::shim
