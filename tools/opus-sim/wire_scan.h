// Fields of protobuf's wire format, one after the other (protobuf.dev, "Encoding"). Nothing is copied. What is cut
// short or is no such thing: `bad()`, and no more fields.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

namespace opus::job {

class WireScan {
public:
    explicit WireScan(std::string_view text) : at_(text.data()), end_(text.data() + text.size()) {}

    // The next field; false at the end, or where it is bad.
    bool next() {
        if (at_ == end_ || bad_) return false;
        std::uint64_t key = 0;
        if (!varint(key) || key >> 3 == 0 || key >> 3 > 0x1fffffff) return fail();
        field = static_cast<std::uint32_t>(key >> 3), type = static_cast<std::uint32_t>(key & 7);
        switch (type) {
            case 0: return varint(number) || fail();
            case 1: return fixed(8);
            case 2: {
                std::uint64_t size = 0;
                if (!varint(size) || size > static_cast<std::uint64_t>(end_ - at_)) return fail();
                text = {at_, static_cast<std::size_t>(size)};
                at_ += size;
                return true;
            }
            case 5: return fixed(4);
            default: return fail();  // groups, which nobody uses, and what does not exist
        }
    }

    // A record that begins with its length.
    bool record(std::string_view& out) {
        std::uint64_t size = 0;
        if (at_ == end_ || bad_) return false;
        if (!varint(size) || size > static_cast<std::uint64_t>(end_ - at_)) return fail();
        out = {at_, static_cast<std::size_t>(size)};
        at_ += size;
        return true;
    }
    bool bare(std::uint64_t& out) { return at_ != end_ && !bad_ && (varint(out) || fail()); }  // of a packed list

    bool bad() const { return bad_; }
    const char* at() const { return at_; }

    std::uint32_t field = 0, type = 0;
    std::uint64_t number = 0;  // of types 0, 1 and 5
    std::string_view text;     // of type 2
    double real() const {
        double value = 0;
        std::memcpy(&value, &number, sizeof value);
        return value;
    }
    float little_real() const {
        const auto bits = static_cast<std::uint32_t>(number);
        float value = 0;
        std::memcpy(&value, &bits, sizeof value);
        return value;
    }
    std::int64_t zigzag() const {
        return static_cast<std::int64_t>(number >> 1) ^ -static_cast<std::int64_t>(number & 1);
    }

private:
    bool fail() { return bad_ = true, false; }
    bool fixed(std::size_t bytes) {
        if (static_cast<std::size_t>(end_ - at_) < bytes) return fail();
        number = 0;
        std::memcpy(&number, at_, bytes);
        at_ += bytes;
        return true;
    }
    bool varint(std::uint64_t& out) {
        out = 0;
        for (unsigned shift = 0; shift < 64 && at_ != end_; shift += 7) {
            const auto byte = static_cast<unsigned char>(*at_++);
            out |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
            if (byte < 0x80) return true;
        }
        return false;
    }

    const char *at_, *end_;
    bool bad_ = false;
};

}  // namespace opus::job
