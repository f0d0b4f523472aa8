// Reads msgpack one value at a time, straight into where it belongs: no tree, so bytes from a hostile
// peer cost no more memory than the message they make. Never reads past the end, never throws, never
// recurses. After a false the reader is where the trouble is and `fault()` says what it is.
// Why not msgpack's own parser: docs/decisions/026.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace opus::wire {

class MsgpackReader {
public:
    explicit MsgpackReader(std::string_view bytes) : at_(bytes.data()), end_(bytes.data() + bytes.size()) {}

    const char* fault() const { return fault_; }
    std::size_t left() const { return static_cast<std::size_t>(end_ - at_); }

    bool array(std::uint32_t& count) {
        std::uint8_t tag = 0;
        if (!take(tag)) return false;
        if ((tag & 0xf0) == 0x90) return count = tag & 0x0f, true;
        if (tag == 0xdc) return sized(2, count);
        if (tag == 0xdd) return sized(4, count);
        return say("not an array");
    }

    // An integer between the bounds, in whatever width it was written.
    bool unsigned_integer(std::uint64_t& value, std::uint64_t most) {
        bool negative = false;
        if (!integer(value, negative)) return false;
        return (!negative && value <= most) || say("out of range");
    }
    bool signed_integer(std::int64_t& value) {
        std::uint64_t raw = 0;
        bool negative = false;
        if (!integer(raw, negative)) return false;
        if (!negative && raw > static_cast<std::uint64_t>(INT64_MAX)) return say("out of range");
        return value = static_cast<std::int64_t>(raw), true;
    }

    bool boolean(bool& value) {
        std::uint8_t tag = 0;
        if (!take(tag)) return false;
        if (tag != 0xc2 && tag != 0xc3) return say("not true or false");
        return value = tag == 0xc3, true;
    }

    bool text(std::string& value, std::size_t most) {
        std::uint8_t tag = 0;
        std::uint32_t size = 0;
        if (!take(tag)) return false;
        if ((tag & 0xe0) == 0xa0)
            size = tag & 0x1f;
        else if (tag < 0xd9 || tag > 0xdb)
            return say("not a string");
        else if (!sized(std::size_t{1} << (tag - 0xd9), size))
            return false;
        if (size > most) return say("too long");
        if (size > left()) return say("cut short");
        value.assign(at_, size);
        at_ += size;
        return true;
    }

    // Steps over one value of any type. Counts what is still open instead of recursing; each value
    // takes at least a byte, so the loop ends with the bytes.
    bool skip() {
        for (std::uint64_t open = 1; open > 0; --open) {
            std::uint64_t inner = 0;
            if (!skip_one(inner)) return false;
            open += inner;
        }
        return true;
    }

private:
    const char* at_;
    const char* end_;
    const char* fault_ = "";

    bool say(const char* fault) { return fault_ = fault, false; }
    bool take(std::uint8_t& byte) {
        if (at_ == end_) return say("cut short");
        byte = static_cast<std::uint8_t>(*at_++);
        return true;
    }
    bool big_endian(std::size_t width, std::uint64_t& value) {
        if (left() < width) return say("cut short");
        value = 0;
        for (; width > 0; --width) value = (value << 8) | static_cast<std::uint8_t>(*at_++);
        return true;
    }
    bool sized(std::size_t width, std::uint32_t& size) {
        std::uint64_t value = 0;
        if (!big_endian(width, value)) return false;
        return size = static_cast<std::uint32_t>(value), true;
    }
    bool integer(std::uint64_t& value, bool& negative) {
        std::uint8_t tag = 0;
        if (!take(tag)) return false;
        negative = false;
        if (tag <= 0x7f) return value = tag, true;
        if (tag >= 0xe0) {
            negative = true;
            value = static_cast<std::uint64_t>(static_cast<std::int64_t>(static_cast<std::int8_t>(tag)));
            return true;
        }
        if (tag >= 0xcc && tag <= 0xcf) return big_endian(std::size_t{1} << (tag - 0xcc), value);
        if (tag < 0xd0 || tag > 0xd3) return say("not an integer");
        const std::size_t width = std::size_t{1} << (tag - 0xd0);
        if (!big_endian(width, value)) return false;
        const unsigned spare = 64 - 8 * static_cast<unsigned>(width);
        const auto extended = static_cast<std::int64_t>(value << spare) >> spare;
        negative = extended < 0;
        value = static_cast<std::uint64_t>(extended);
        return true;
    }
    bool step(std::uint64_t bytes) {
        if (bytes > left()) return say("cut short");
        at_ += bytes;
        return true;
    }
    bool skip_sized(std::size_t width, std::uint64_t more) {
        std::uint64_t size = 0;
        return big_endian(width, size) && step(size + more);
    }
    bool skip_one(std::uint64_t& inner) {
        std::uint8_t tag = 0;
        if (!take(tag)) return false;
        if (tag <= 0x7f || tag >= 0xe0 || tag == 0xc0 || tag == 0xc2 || tag == 0xc3) return true;
        if (tag <= 0x8f) return inner = 2u * (tag & 0x0f), true;
        if (tag <= 0x9f) return inner = tag & 0x0f, true;
        if (tag <= 0xbf) return step(tag & 0x1f);
        switch (tag) {
            case 0xc4:
            case 0xd9: return skip_sized(1, 0);
            case 0xc5:
            case 0xda: return skip_sized(2, 0);
            case 0xc6:
            case 0xdb: return skip_sized(4, 0);
            case 0xc7: return skip_sized(1, 1);
            case 0xc8: return skip_sized(2, 1);
            case 0xc9: return skip_sized(4, 1);
            case 0xcc:
            case 0xd0: return step(1);
            case 0xcd:
            case 0xd1: return step(2);
            case 0xca:
            case 0xce:
            case 0xd2: return step(4);
            case 0xcb:
            case 0xcf:
            case 0xd3: return step(8);
            case 0xd4:
            case 0xd5:
            case 0xd6:
            case 0xd7:
            case 0xd8: return step((std::uint64_t{1} << (tag - 0xd4)) + 1);
            case 0xdc: return big_endian(2, inner);
            case 0xdd: return big_endian(4, inner);
            case 0xde:
            case 0xdf:
                if (!big_endian(tag == 0xde ? 2 : 4, inner)) return false;
                return inner *= 2, true;
            default: return say("not msgpack");
        }
    }
};

}  // namespace opus::wire
