// What buffers hold and what results must be, bit for bit. Pure; no NCCL.
//
// A block of data is periodic, with a period of 4093 elements (a prime, so that chunks that a transport
// swaps or shifts do not look right). Copied blocks are random bits; blocks that are reduced are small
// whole numbers, exact in every type and in every order of summation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "tools/replay/workload.h"

namespace opus::replay {

inline constexpr std::size_t kPeriod = 4093;

std::uint64_t mix(std::uint64_t a, std::uint64_t b);

class Block {
public:
    // Random bits; the same for the same seed.
    static Block copied(std::uint64_t seed, DType type, std::size_t count);
    // What rank `rank` of `ranks` gives to a reduction.
    static Block given(std::uint64_t seed, DType type, Reduction reduction, std::size_t rank, std::size_t ranks,
                       std::size_t count);
    // What the reduction over all ranks must give. seeds[r]: the seed of rank r.
    static Block reduced(const std::vector<std::uint64_t>& seeds, DType type, Reduction reduction, std::size_t count);

    void fill(void* destination) const;
    // The first element of `data` that is not as it must be.
    std::optional<std::size_t> mismatch(const void* data) const;
    // Bits of one element, for messages.
    std::uint64_t bits(std::size_t element) const;
    std::size_t bytes() const { return count_ * size_; }

private:
    Block(DType type, std::size_t count);
    void encode(const std::vector<std::int64_t>& values, DType type);

    std::size_t size_;  // of an element
    std::size_t count_;
    std::vector<unsigned char> period_;
};

std::uint64_t bits_at(const void* data, std::size_t element, DType type);

}  // namespace opus::replay
