// Kernels that compute, by what they are made of. Empty: not known, or of more than is computed.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>

namespace opus::standin {

inline constexpr int kMostElements = 1 << 16;  // beyond, a tensor is data

struct Elementwise {
    int count = 0;
    const char* functor = nullptr;  // its bytes, valid during the launch alone
    char* pointers[4] = {};         // the result, then operands
    int operands = 0;
    bool converted = false;  // load and store say from which type to which
    const char* load = nullptr;
    const char* store = nullptr;
};

// Numbers of 16 bits.
struct BFloat16 {
    std::uint16_t bits = 0;
    BFloat16() = default;
    explicit BFloat16(float number) {  // the nearest, of two the even one
        const auto wide = std::bit_cast<std::uint32_t>(number);
        const std::uint32_t rounded = wide + 0x7fff + (wide >> 16 & 1);
        bits = static_cast<std::uint16_t>(number != number ? 0x7fc0 : rounded >> 16);
    }
    operator float() const { return std::bit_cast<float>(std::uint32_t{bits} << 16); }
};
struct Half {
    _Float16 number = 0;
    Half() = default;
    explicit Half(float wide) : number(static_cast<_Float16>(wide)) {}
    operator float() const { return static_cast<float>(number); }
};

// A member of a kernel's argument, as the compiler laid it out.
template <typename T>
T read(const void* from, std::size_t offset = 0) {
    T value;
    std::memcpy(&value, static_cast<const char*>(from) + offset, sizeof value);
    return value;
}

bool holds(const void* pointer, std::size_t bytes);  // from there on, of what was allocated

std::function<void()> elementwise(const std::string& functor, const Elementwise& call);
std::function<void()> reduction(const std::string& kernel, const char* parameters);
std::function<void()> distribution(const std::string& kernel, void** arguments);
std::function<void()> concatenation(const std::string& kernel, void** arguments, unsigned tensors);

}  // namespace opus::standin
