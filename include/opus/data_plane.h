// The emulator's data plane: what a NIC port says to the optical plane. TCP, one connection per (process, switch
// port); host byte order (both ends are on one machine). Shared by opus-ocs-emu and the stand-in transport
// of the tests. Version 1.
//
//   client ── Attach ──▶ emulator ── Attached ──▶ client        then frames, both ways
//
// Several connections may attach to one port (as queue pairs share a NIC port); each has an `endpoint`,
// chosen by the client, unique in the fabric. A frame sent into port P comes out at the port Q that P's
// circuit leads to when the emulator handles it, at the connection whose endpoint is `dst`:
//   no light at P                  -> lost, counted
//   light, but `dst` is not at Q   -> misdelivered, counted, dropped
// With --always-lit a frame goes to `dst` at whatever port it is attached (`port` tells which is meant
// when it is attached at several; 0: any).
// Order is kept per connection and circuit. A slow receiver stops its senders (no loss by congestion).
#pragma once

#include <cstdint>

namespace opus::data_plane {

inline constexpr std::uint32_t kMagic = 0x5044504f;  // "OPDP"
inline constexpr std::uint32_t kVersion = 1;
inline constexpr std::uint32_t kMaxPayload = 1u << 20;

struct Attach {
    std::uint32_t magic;
    std::uint32_t version;
    std::uint32_t port;  // switch port, from 1
    std::uint32_t reserved;
    std::uint64_t endpoint;  // not 0
};

enum class AttachStatus : std::uint32_t { ok = 0, version = 1, no_such_port = 2, endpoint_taken = 3, malformed = 4 };

struct Attached {
    std::uint32_t magic;
    AttachStatus status;
};

struct FrameHeader {
    std::uint32_t payload_bytes;  // at most kMaxPayload
    std::uint32_t port;           // sending: always-lit target port or 0; receiving: port it came out of
    std::uint64_t dst;
    std::uint64_t src;  // set by the emulator to the sender's endpoint
    std::uint64_t tag;  // the client's own, but for kRepetition
};

// Of a tag: the receiver has had, or may have had, what is in the frame. Loss logs tell such frames apart.
inline constexpr std::uint64_t kRepetition = std::uint64_t{1} << 63;

static_assert(sizeof(Attach) == 24 && sizeof(Attached) == 8 && sizeof(FrameHeader) == 32);

}  // namespace opus::data_plane
