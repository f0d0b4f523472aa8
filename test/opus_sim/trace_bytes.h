// Chakra traces, written byte by byte: what the reader reads is not what it wrote itself.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace opus::test {

inline std::string varint(std::uint64_t n) {
    std::string out;
    for (; n >= 0x80; n >>= 7) out += static_cast<char>((n & 0x7f) | 0x80);
    return out + static_cast<char>(n);
}
inline std::string number(std::uint32_t field, std::uint64_t n) { return varint(field << 3) + varint(n); }
inline std::string text(std::uint32_t field, const std::string& s) {
    return varint(field << 3 | 2) + varint(s.size()) + s;
}
inline std::string record(const std::string& s) { return varint(s.size()) + s; }
inline std::string attribute(const std::string& name, std::uint64_t n) {
    return text(10, text(1, name) + number(9, n));
}
inline std::string attribute(const std::string& name, const std::string& s) {
    return text(10, text(1, name) + text(29, s));
}

inline std::string needs(const std::vector<std::uint64_t>& ids) {
    std::string packed;
    for (const std::uint64_t id : ids) packed += varint(id);
    return ids.empty() ? "" : text(5, packed);
}
inline std::string metadata() { return record(text(1, "0.0.4")); }
inline std::string compute(std::uint64_t id, std::uint64_t us, const std::vector<std::uint64_t>& after = {}) {
    return record(number(1, id) + text(2, "compute" + std::to_string(id)) + number(3, 4) + needs(after) + number(7, us));
}
// What the host did: its own operation, or (type 7) the call of a collective, whose kernel is a node of its own.
inline std::string on_host(std::uint64_t id, std::uint64_t us, std::uint64_t type,
                           const std::vector<std::uint64_t>& after, std::uint64_t caller) {
    return record(number(1, id) + text(2, "host" + std::to_string(id)) + number(3, type) + number(4, caller) +
                  needs(after) + number(7, us) + text(10, text(1, "is_cpu_op") + number(27, 1)));
}
// By the number of CollectiveCommType.
inline std::string collective(std::uint64_t id, const std::string& name, std::uint64_t type, std::uint64_t bytes,
                              const std::string& group, const std::vector<std::uint64_t>& after = {}) {
    return record(number(1, id) + text(2, name) + number(3, 7) + needs(after) + attribute("comm_type", type) +
                  attribute("comm_size", bytes) + attribute("pg_name", group));
}
inline std::string transfer(std::uint64_t id, bool sends, std::uint64_t peer, std::uint64_t bytes, std::uint64_t tag,
                            const std::vector<std::uint64_t>& after = {}) {
    return record(number(1, id) + text(2, "transfer") + number(3, sends ? 5 : 6) + needs(after) +
                  attribute("comm_size", bytes) + attribute("comm_tag", tag) +
                  attribute(sends ? "comm_dst" : "comm_src", peer));
}

}  // namespace opus::test
