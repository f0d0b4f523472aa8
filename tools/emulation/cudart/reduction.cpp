// A whole tensor, as it lies in memory, to one number: sum, largest, smallest, any, all. Of a large one what zeros
// would give, and that nothing is wrong with any and all is well: programs ask whether something is out of bounds, or
// finite. What is not computed (a norm, a mean) is zero: of what was left in memory a program may take the square root.
#include <algorithm>
#include <cstring>
#include <utility>

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
    static Layout of_number(std::size_t bytes) { return Layout(aligned(aligned(1, bytes) + bytes, 4)); }
    explicit Layout(std::size_t config_at) : config(config_at) {
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
std::function<void()> folded(const char* p, T of_large, Fold fold) {
    const Layout at = Layout::of_number(sizeof(T));
    const int element = read<int>(p, at.config), count = read<int>(p, at.config + 4), outputs = read<int>(p, at.config + 8);
    const int dimensions = read<int>(p, at.input);
    const auto stride = read<std::uint32_t>(p, at.input + 4 + kDimensions * 12);
    if (element != sizeof(T) || outputs != 1 || count < 1 || dimensions != 1) return {};
    if (count > 1 && stride != sizeof(T)) return {};
    const auto* from = read<const T*>(p, at.source);
    auto* to = read<T*>(p, at.source + 8);
    if (!holds(from, static_cast<std::size_t>(count) * sizeof(T)) || !holds(to, sizeof(T))) return {};
    if (count > kMostElements) return [=] { *to = of_large; };
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
    if (is("MaxNanFunctor<")) return folded<T>(p, T{}, [](T a, T b) { return std::max(a, b); });
    if (is("MinNanFunctor<")) return folded<T>(p, T{}, [](T a, T b) { return std::min(a, b); });
    if constexpr (std::is_same_v<T, bool>) {
        if (is("or_kernel_cuda(")) return folded<T>(p, T{}, [](T a, T b) { return a || b; });
        if (is("and_kernel_cuda(")) return folded<T>(p, true, [](T a, T b) { return a && b; });
    } else {
        if (is("sum_functor<")) return folded<T>(p, T{}, [](T a, T b) { return static_cast<T>(a + b); });
    }
    return {};
}

// Of what a reduction leaves, by its name in the kernel's.
std::size_t bytes_of_result(const std::string& kernel) {
    static constexpr std::pair<const char*, std::size_t> kTypes[] = {
        {"bool", 1}, {"unsigned char", 1}, {"signed char", 1}, {"short", 2},     {"int", 4},
        {"long", 8}, {"float", 4},         {"double", 8},      {"c10::Half", 2}, {"c10::BFloat16", 2}};
    for (const auto& [type, bytes] : kTypes)
        for (const char* numbers_a_thread : {", 2, ", ", 4, "})
            if (kernel.find(std::string(", unsigned int, ") + type + numbers_a_thread) != std::string::npos)
                return bytes;
    return 0;
}

// Any operation, and any number to begin with, may lie before the configuration: it is where what it leads to is memory of ours.
std::function<void()> zeroed(const std::string& kernel, const char* p) {
    constexpr std::size_t kFurthest = 96;
    const std::size_t bytes = bytes_of_result(kernel);
    if (bytes == 0) return {};
    for (std::size_t config = 4; config <= kFurthest; config += 4) {
        const Layout at(config);
        const int element = read<int>(p, config), count = read<int>(p, config + 4), outputs = read<int>(p, config + 8);
        if (element < 1 || element > 16 || count < 1 || outputs != 1) continue;
        const auto* from = read<const char*>(p, at.source);
        auto* to = read<char*>(p, at.source + 8);
        if (!holds(from, static_cast<std::size_t>(element)) || !holds(to, bytes)) continue;
        return [=] { std::memset(to, 0, bytes); };
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
    return found ? found : zeroed(kernel, parameters);
}

}  // namespace opus::standin
