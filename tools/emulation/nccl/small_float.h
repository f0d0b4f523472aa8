// 8- and 16-bit floating point on the host: to float exactly, from float to nearest even.
#pragma once

#include <bit>
#include <cstdint>

namespace opus::standin {

// Exponent and mantissa bits; `finite_only`: no infinity, overflow and NaN are the all-ones pattern (E4M3).
template <typename Bits, int E, int M, bool finite_only>
struct SmallFloat {
    Bits bits;

    static constexpr int kBias = (1 << (E - 1)) - 1;
    static constexpr std::uint32_t kMantissa = (1u << M) - 1;
    static constexpr std::uint32_t kExponent = (1u << E) - 1;

    float value() const {
        const std::uint32_t sign = std::uint32_t{bits} >> (E + M) << 31;
        const std::uint32_t e = (std::uint32_t{bits} >> M) & kExponent, m = std::uint32_t{bits} & kMantissa;
        if constexpr (finite_only) {
            if (e == kExponent && m == kMantissa) return std::bit_cast<float>(sign | 0x7fc00000u);
        } else {
            if (e == kExponent) return std::bit_cast<float>(sign | 0x7f800000u | (m << (23 - M)) | (m ? 0x400000u : 0));
        }
        if (e == 0) {  // subnormal: m * 2^(1 - bias - M); exact in float
            if constexpr (E == 8) {
                return std::bit_cast<float>(sign | (m << (23 - M)));
            } else {
                const float unit = std::bit_cast<float>(static_cast<std::uint32_t>(127 + 1 - kBias - M) << 23);
                return sign ? -(static_cast<float>(m) * unit) : static_cast<float>(m) * unit;
            }
        }
        return std::bit_cast<float>(sign | ((e - kBias + 127) << 23) | (m << (23 - M)));
    }

    static SmallFloat of(float f) {
        const std::uint32_t u = std::bit_cast<std::uint32_t>(f);
        const auto sign = static_cast<std::uint32_t>((u >> 31) << (E + M));
        const std::uint32_t magnitude = u & 0x7fffffffu;
        if (magnitude > 0x7f800000u) return make(sign | nan());
        if (magnitude == 0x7f800000u) return make(sign | too_large());
        if constexpr (E == 8) {  // bfloat16: the upper half, rounded
            return make(sign | ((magnitude + 0x7fffu + ((magnitude >> 16) & 1)) >> 16));
        } else {
            const int e = static_cast<int>(magnitude >> 23) - 127 + kBias;
            std::uint32_t m = (magnitude & 0x7fffffu) | 0x800000u;
            int shift = 23 - M;
            if (e <= 0) shift += 1 - e;
            if (shift > 25) return make(sign);
            const std::uint32_t half = 1u << (shift - 1), rest = m & ((1u << shift) - 1);
            m >>= shift;
            if (rest > half || (rest == half && (m & 1))) ++m;
            // A mantissa that overflows carries into the exponent, as it should.
            const std::uint32_t r = e <= 0 ? m : m + (static_cast<std::uint32_t>(e - 1) << M);
            return make(sign | (r > largest() ? too_large() : r));
        }
    }

private:
    static SmallFloat make(std::uint32_t b) { return {static_cast<Bits>(b)}; }
    static constexpr std::uint32_t largest() {
        return finite_only ? (kExponent << M | kMantissa) - 1 : (kExponent << M) - 1;
    }
    // E4M3 and E5M2 saturate (as the conversions NCCL uses do); the 16-bit types go to infinity.
    static constexpr std::uint32_t too_large() { return E + M == 7 ? largest() : kExponent << M; }
    static constexpr std::uint32_t nan() { return kExponent << M | kMantissa; }
};

using Half = SmallFloat<std::uint16_t, 5, 10, false>;
using Bfloat16 = SmallFloat<std::uint16_t, 8, 7, false>;
using E4M3 = SmallFloat<std::uint8_t, 4, 3, true>;
using E5M2 = SmallFloat<std::uint8_t, 5, 2, false>;

}  // namespace opus::standin
