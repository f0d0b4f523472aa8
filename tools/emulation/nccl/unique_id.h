// What is inside an ncclUniqueId: where the process that made it listens (loopback), and a number.
#pragma once

#include <nccl.h>

#include <cstdint>

namespace opus::standin {

struct UniqueId {
    char name[16] = "stand-in NCCL";
    std::uint64_t number = 0;  // random; names the meeting
    std::uint16_t port = 0;
    std::uint16_t reserved[3] = {};
    char zero[96] = {};
};
static_assert(sizeof(UniqueId) == NCCL_UNIQUE_ID_BYTES);

}  // namespace opus::standin
