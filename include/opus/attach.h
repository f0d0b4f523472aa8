// How a rank meets its manager: one exchange over the manager's Unix socket (SOCK_SEQPACKET,
// OPUS_SOCKET, default <runtime dir>/manager.sock).
//
//   shim     ── AttachRequest ─────────────────────────────▶ manager
//   shim     ◀── AttachReply, SCM_RIGHTS {segment, doorbell} ─ manager
//
// The shim keeps the socket open and never uses it again: its end-of-file tells of death, beside a
// pidfd. The doorbell is a FIFO of the runtime directory, opened read-write (so that no SIGPIPE can
// reach the application, and so that a restarted manager opens the very same one): after storing a
// word while `asleep` is 1, the shim writes one byte to it, non-blocking, and ignores the result.
// A restarted manager needs no new exchange: it maps the segments it finds in its directory.
#pragma once

#include <cstdint>

namespace opus::attach {

inline constexpr std::uint32_t kMagic = 0x4154504fu;  // "OPTA"
inline constexpr std::uint16_t kVersionMajor = 1;
inline constexpr std::uint16_t kVersionMinor = 0;

struct AttachRequest {
    std::uint32_t magic;
    std::uint16_t major;
    std::uint16_t minor;
    std::uint32_t mode;    // opus::Mode
    std::uint32_t policy;  // opus::Policy
    std::uint32_t hold_ms;  // OPUS_HOLD_MS; 0: not set, so the default, or as much as the switches need
    std::uint32_t slots;  // wanted; 0: the default
    char job[64];         // NUL-terminated; shim/job_name.h
};
static_assert(sizeof(AttachRequest) == 88);

enum class AttachStatus : std::uint32_t {
    ok = 0,
    version = 1,  // unknown major: `major`/`minor` of the reply name the manager's
    full = 2,     // the manager serves as many ranks as it may
    refused = 3,  // malformed request
};

struct AttachReply {
    std::uint32_t magic;
    std::uint16_t major;
    std::uint16_t minor;
    AttachStatus status;
    std::uint32_t slots;
    std::uint32_t bytes;  // of the segment
    std::uint32_t rank_id;
};
static_assert(sizeof(AttachReply) == 24);

}  // namespace opus::attach
