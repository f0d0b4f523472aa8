// Writes msgpack one value at a time, each in the fewest bytes, straight into a string: what it held before is
// written over, so room is made, and cleared, once. The other half of msgpack_reader.h.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "impl/msgpack_reader.h"

namespace opus::wire {

class MsgpackWriter {
public:
    explicit MsgpackWriter(std::string& out) : out_(out) {
        out_.resize(std::max(out_.size(), kUsual));
        at_ = out_.data();
        end_ = at_ + out_.size();
    }
    MsgpackWriter(const MsgpackWriter&) = delete;
    MsgpackWriter& operator=(const MsgpackWriter&) = delete;
    // Only now does `out` hold what was written.
    ~MsgpackWriter() { out_.resize(used()); }

    void array(std::uint32_t count) { sized(count, 0x90, 0x0f, 0xdc - 1); }
    void boolean(bool x) {
        make_room(kMost);
        put(x ? 0xc3 : 0xc2);
    }
    void unsigned_integer(std::uint64_t x) {
        make_room(kMost);
        if (x <= 0x7f) return put(static_cast<std::uint8_t>(x));
        tagged(0xcc, x, width_of(x));
    }
    void signed_integer(std::int64_t x) {
        if (x >= 0) return unsigned_integer(static_cast<std::uint64_t>(x));
        make_room(kMost);
        if (x >= -32) return put(static_cast<std::uint8_t>(x));
        // In two's complement, so many bytes that the sign is kept: as wide as twice what is beyond it.
        tagged(0xd0, static_cast<std::uint64_t>(x), width_of(2 * static_cast<std::uint64_t>(~x) + 1));
    }
    void text(std::string_view x) {
        const auto size = static_cast<std::uint32_t>(x.size());
        sized(size, 0xa0, 0x1f, 0xd9);
        make_room(x.size());
        std::memcpy(at_, x.data(), x.size());
        at_ += x.size();
    }

private:
    static constexpr std::size_t kUsual = 256;
    static constexpr std::size_t kMost = 9;  // of a number or a head
    std::string& out_;
    char* at_;
    char* end_;

    std::size_t used() const { return static_cast<std::size_t>(at_ - out_.data()); }
    void make_room(std::size_t bytes) {
        if (static_cast<std::size_t>(end_ - at_) < bytes) grow(bytes);
    }
    void grow(std::size_t bytes) {
        const std::size_t before = used();
        out_.resize(2 * out_.size() + bytes);
        at_ = out_.data() + before;
        end_ = out_.data() + out_.size();
    }
    void put(std::uint8_t byte) { *at_++ = static_cast<char>(byte); }

    // 0: one byte, 1: two, 2: four, 3: eight.
    static unsigned width_of(std::uint64_t x) { return x <= 0xff ? 0 : x <= 0xffff ? 1 : x <= 0xffff'ffff ? 2 : 3; }
    // Eight bytes are stored whatever the width: there is room for them, and those beyond it are written over.
    void tagged(unsigned first_tag, std::uint64_t x, unsigned width) {
        put(static_cast<std::uint8_t>(first_tag + width));
        const std::size_t bytes = std::size_t{1} << width;
        const std::uint64_t high = to_big_endian(x << (64 - 8 * bytes));
        std::memcpy(at_, &high, sizeof high);
        at_ += bytes;
    }
    // The head of what has a size. Arrays have none of one byte: their first tag is that of two, less one.
    void sized(std::uint32_t size, unsigned fixed, unsigned most_fixed, unsigned first_tag) {
        make_room(kMost);
        if (size <= most_fixed) return put(static_cast<std::uint8_t>(fixed | size));
        const bool bytes = first_tag == 0xd9;
        tagged(first_tag, size, bytes ? width_of(size) : std::max(1u, width_of(size)));
    }
};

}  // namespace opus::wire
