// A whole tensor, as it lies in memory, to one number: sum, largest, smallest, any, all.
#include <algorithm>
#include <cstring>

#include "arithmetic.h"
#include "engine/engine.h"

namespace opus::standin {

namespace {

constexpr std::size_t kConfigBytes = 64, kDimensions = 25;

std::size_t aligned(std::size_t offset, std::size_t to) { return (offset + to - 1) / to * to; }

// ReduceOp of Reduce.cuh: the operation, which is empty, the number to begin with, the configuration, how to find
// inputs and outputs, and where they are.
struct Layout {
    std::size_t config, input, source;
    explicit Layout(std::size_t bytes) {
        config = aligned(aligned(1, bytes) + bytes, 4);
        input = config + kConfigBytes;
        const std::size_t output = input + 4 + kDimensions * (12 + 4);
        source = aligned(output + 4 + kDimensions * (12 + 8), 8);
    }
};

template <typename T>
T read(const char* from, std::size_t offset) {
    T value;
    std::memcpy(&value, from + offset, sizeof value);
    return value;
}

template <typename T, typename Fold>
std::function<void()> folded(const char* p, Fold fold) {
    const Layout at(sizeof(T));
    const int element = read<int>(p, at.config), count = read<int>(p, at.config + 4), outputs = read<int>(p, at.config + 8);
    const int dimensions = read<int>(p, at.input);
    const auto stride = read<std::uint32_t>(p, at.input + 4 + kDimensions * 12);
    if (element != sizeof(T) || outputs != 1 || count < 1 || count > kMostElements || dimensions != 1) return {};
    if (count > 1 && stride != sizeof(T)) return {};
    const auto* from = read<const T*>(p, at.source);
    auto* to = read<T*>(p, at.source + 8);
    if (!holds(from, static_cast<std::size_t>(count) * sizeof(T)) || !holds(to, sizeof(T))) return {};
    return [=] {
        T sum = from[0];
        for (int i = 1; i < count; ++i) sum = fold(sum, from[i]);
        *to = sum;
    };
}

template <typename T>
std::function<void()> reduced(const std::string& kernel, const std::string& type, const char* p) {
    const std::string op = "at::native::ReduceOp<" + type + ", at::native::func_wrapper_t<" + type + ", at::native::";
    const std::size_t at = kernel.find(op);
    if (at == std::string::npos) return {};
    const std::string what = kernel.substr(at + op.size(), 24);
    const auto is = [&](const char* name) { return what.compare(0, std::strlen(name), name) == 0; };
    if (is("MaxNanFunctor<")) return folded<T>(p, [](T a, T b) { return std::max(a, b); });
    if (is("MinNanFunctor<")) return folded<T>(p, [](T a, T b) { return std::min(a, b); });
    if constexpr (std::is_same_v<T, bool>) {
        if (is("or_kernel_cuda(")) return folded<T>(p, [](T a, T b) { return a || b; });
        if (is("and_kernel_cuda(")) return folded<T>(p, [](T a, T b) { return a && b; });
    } else {
        if (is("sum_functor<")) return folded<T>(p, [](T a, T b) { return static_cast<T>(a + b); });
    }
    return {};
}

}  // namespace

std::function<void()> reduction(const std::string& kernel, const char* parameters) {
    std::function<void()> found;
    const auto attempt = [&](auto value, const char* type) {
        if (!found) found = reduced<decltype(value)>(kernel, type, parameters);
    };
    attempt(std::int64_t{}, "long");
    attempt(std::int32_t{}, "int");
    attempt(std::uint8_t{}, "unsigned char");
    attempt(bool{}, "bool");
    attempt(float{}, "float");
    attempt(double{}, "double");
    return found;
}

}  // namespace opus::standin
