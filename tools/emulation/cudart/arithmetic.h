// Kernels that compute, by what they are made of. Empty: not known, or of more than is computed.
#pragma once

#include <cstddef>
#include <cstdint>
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

bool holds(const void* pointer, std::size_t bytes);  // from there on, of what was allocated

std::function<void()> elementwise(const std::string& functor, const Elementwise& call);
std::function<void()> reduction(const std::string& kernel, const char* parameters);
std::function<void()> distribution(const std::string& kernel, void** arguments);
std::function<void()> concatenation(const std::string& kernel, void** arguments, unsigned tensors);

}  // namespace opus::standin
