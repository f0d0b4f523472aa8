#include "tools/replay/pattern.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace opus::replay {
namespace {

// Up to here every whole number is exact.
std::int64_t exact_limit(DType type) {
    switch (type) {
        case DType::int8: return 127;
        case DType::uint8: return 255;
        case DType::float16: return 2048;
        case DType::bfloat16: return 256;
        default: return 1 << 20;
    }
}

std::int64_t value(std::uint64_t seed, std::size_t element, DType type, Reduction reduction, std::size_t rank,
                   std::size_t ranks) {
    const std::uint64_t h = mix(seed, element);
    const std::int64_t limit = exact_limit(type);
    if (reduction == Reduction::prod) return rank < 6 ? 1 + static_cast<std::int64_t>(h & 1) : 1;  // at most 64
    if (reduction != Reduction::sum)
        return static_cast<std::int64_t>(h % static_cast<std::uint64_t>(std::min<std::int64_t>(limit, 1000)));
    if (rank >= static_cast<std::size_t>(limit)) return 0;  // so many ranks that ones would already overflow
    const auto share = std::clamp<std::int64_t>(limit / static_cast<std::int64_t>(ranks), 1, 1000);
    return static_cast<std::int64_t>(h % static_cast<std::uint64_t>(share + 1));
}

std::uint16_t bfloat16_of(float f) { return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(f) >> 16); }

// Exact for whole numbers 0 .. 2048.
std::uint16_t float16_of(float f) {
    if (f == 0) return 0;
    const std::uint32_t b = std::bit_cast<std::uint32_t>(f);
    return static_cast<std::uint16_t>((((b >> 23) - 127 + 15) << 10) | ((b >> 13) & 0x3ff));
}

template <class T>
void store(unsigned char* at, T v) {
    std::memcpy(at, &v, sizeof v);
}

void encode_one(unsigned char* at, std::int64_t v, DType type) {
    switch (type) {
        case DType::int8: return store(at, static_cast<std::int8_t>(v));
        case DType::uint8: return store(at, static_cast<std::uint8_t>(v));
        case DType::int32: return store(at, static_cast<std::int32_t>(v));
        case DType::uint32: return store(at, static_cast<std::uint32_t>(v));
        case DType::int64: return store(at, v);
        case DType::uint64: return store(at, static_cast<std::uint64_t>(v));
        case DType::float16: return store(at, float16_of(static_cast<float>(v)));
        case DType::float32: return store(at, static_cast<float>(v));
        case DType::float64: return store(at, static_cast<double>(v));
        case DType::bfloat16: return store(at, bfloat16_of(static_cast<float>(v)));
    }
}

}  // namespace

std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
    std::uint64_t v = a + 0x9e3779b97f4a7c15ull * (b + 1);
    v = (v ^ (v >> 30)) * 0xbf58476d1ce4e5b9ull;
    v = (v ^ (v >> 27)) * 0x94d049bb133111ebull;
    return v ^ (v >> 31);
}

Block::Block(DType type, std::size_t count)
    : size_(size_of(type)), count_(count), period_(std::min(count, kPeriod) * size_of(type)) {}

Block Block::copied(std::uint64_t seed, DType type, std::size_t count) {
    Block b(type, count);
    for (std::size_t at = 0; at < b.period_.size(); at += sizeof(std::uint64_t)) {
        const std::uint64_t word = mix(seed, at);
        std::memcpy(b.period_.data() + at, &word, std::min(sizeof word, b.period_.size() - at));
    }
    return b;
}

Block Block::given(std::uint64_t seed, DType type, Reduction reduction, std::size_t rank, std::size_t ranks,
                   std::size_t count) {
    Block b(type, count);
    for (std::size_t e = 0; e < std::min(count, kPeriod); ++e)
        encode_one(b.period_.data() + e * b.size_, value(seed, e, type, reduction, rank, ranks), type);
    return b;
}

Block Block::reduced(const std::vector<std::uint64_t>& seeds, DType type, Reduction reduction, std::size_t count) {
    Block b(type, count);
    for (std::size_t e = 0; e < std::min(count, kPeriod); ++e) {
        std::int64_t all = 0;
        for (std::size_t r = 0; r < seeds.size(); ++r) {
            const std::int64_t v = value(seeds[r], e, type, reduction, r, seeds.size());
            if (r == 0)
                all = v;
            else if (reduction == Reduction::sum)
                all += v;
            else if (reduction == Reduction::prod)
                all *= v;
            else
                all = reduction == Reduction::max ? std::max(all, v) : std::min(all, v);
        }
        encode_one(b.period_.data() + e * b.size_, all, type);
    }
    return b;
}

void Block::fill(void* destination) const {
    auto* to = static_cast<unsigned char*>(destination);
    for (std::size_t at = 0; at < bytes(); at += period_.size())
        std::memcpy(to + at, period_.data(), std::min(period_.size(), bytes() - at));
}

std::optional<std::size_t> Block::mismatch(const void* data) const {
    const auto* from = static_cast<const unsigned char*>(data);
    for (std::size_t at = 0; at < bytes(); at += period_.size()) {
        const std::size_t length = std::min(period_.size(), bytes() - at);
        if (std::memcmp(from + at, period_.data(), length) == 0) continue;
        for (std::size_t e = 0; e < length; e += size_)
            if (std::memcmp(from + at + e, period_.data() + e, size_) != 0) return (at + e) / size_;
    }
    return std::nullopt;
}

std::uint64_t Block::bits(std::size_t element) const {
    std::uint64_t v = 0;
    std::memcpy(&v, period_.data() + element % kPeriod * size_, size_);
    return v;
}

std::uint64_t bits_at(const void* data, std::size_t element, DType type) {
    std::uint64_t v = 0;
    std::memcpy(&v, static_cast<const unsigned char*>(data) + element * size_of(type), size_of(type));
    return v;
}

}  // namespace opus::replay
