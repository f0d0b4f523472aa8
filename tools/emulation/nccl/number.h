// Reductions on host memory, element by element, in the type itself: what is added is rounded to the type
// at every step, so a result depends on the ring's order alone. Unaligned pointers are fine.
#pragma once

#include <nccl.h>

#include <cstddef>
#include <cstdint>

namespace opus::standin {

struct Reduction {
    ncclDataType_t type = ncclInt8;
    ncclRedOp_t op = ncclSum;
    bool scaled = false;  // PreMulSum: each rank's own data is multiplied by `scalar` first
    std::byte scalar[8] = {};
};

std::size_t type_bytes(ncclDataType_t type);  // 0: no such type

// out = incoming OP mine (scaled); out may be either.
void reduce(const Reduction& r, std::byte* out, const std::byte* incoming, const std::byte* mine, std::size_t count);
// out = mine (scaled).
void scale(const Reduction& r, std::byte* out, const std::byte* mine, std::size_t count);
// Average: divides the sum by the number of ranks. Nothing for other operations.
void conclude(const Reduction& r, std::byte* data, std::size_t count, std::uint32_t ranks);

}  // namespace opus::standin
