// A whole tensor, as it lies in memory, to one number: sum, largest, smallest, any, all. Of a large one what zeros
// would give, and that nothing is wrong with any and all is well: programs ask whether something is out of bounds, or
// finite. What is not computed (a norm, a mean) is zero: of what was left in memory a program may take the square root.
#include <algorithm>
#include <cstring>
#include <type_traits>
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

// Of numbers T, into an R.
template <typename T, typename R, typename Fold>
std::function<void()> folded(const char* p, R of_large, Fold fold) {
    const Layout at = Layout::of_number(sizeof(R));
    const int result = read<int>(p, at.config), count = read<int>(p, at.config + 4), outputs = read<int>(p, at.config + 8);
    const int dimensions = read<int>(p, at.input);
    const auto stride = read<std::uint32_t>(p, at.input + 4 + kDimensions * 12);
    if (result != sizeof(R) || outputs != 1 || count < 1 || dimensions != 1) return {};
    if (count > 1 && stride != sizeof(T)) return {};
    const auto* from = read<const T*>(p, at.source);
    auto* to = read<R*>(p, at.source + 8);
    if (!holds(from, static_cast<std::size_t>(count) * sizeof(T)) || !holds(to, sizeof(R))) return {};
    if (count > kMostElements) return [=] { *to = of_large; };
    return [=] {
        R sum = static_cast<R>(from[0]);
        for (int i = 1; i < count; ++i) sum = fold(sum, static_cast<R>(from[i]));
        *to = sum;
    };
}

// Which functor a reduction of such numbers has: what follows the wrapper of `made`.
bool is_of(const std::string& kernel, const std::string& type, const std::string& made, const char* functor) {
    return kernel.find("at::native::ReduceOp<" + type + ", at::native::func_wrapper_t<" + made +
                       ", at::native::" + functor) != std::string::npos;
}

template <typename T>
std::function<void()> reduced(const std::string& kernel, const std::string& type, const char* p) {
    if (is_of(kernel, type, "bool", "or_kernel_cuda("))
        return folded<T>(p, false, [](bool a, bool b) { return a || b; });
    if (is_of(kernel, type, "bool", "and_kernel_cuda("))
        return folded<T>(p, true, [](bool a, bool b) { return a && b; });
    if constexpr (std::is_class_v<T>) return {};
    if (is_of(kernel, type, type, "MaxNanFunctor<")) return folded<T>(p, T{}, [](T a, T b) { return std::max(a, b); });
    if (is_of(kernel, type, type, "MinNanFunctor<")) return folded<T>(p, T{}, [](T a, T b) { return std::min(a, b); });
    if constexpr (!std::is_same_v<T, bool>)
        if (is_of(kernel, type, type, "sum_functor<"))
            return folded<T>(p, T{}, [](T a, T b) { return static_cast<T>(a + b); });
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

// ReduceConfig of Reduce.cuh, by what it says of its threads.
bool is_config(const char* p, std::size_t at) {
    const std::int64_t threads = read<int>(p, at + 52), width = read<int>(p, at + 44), height = read<int>(p, at + 48);
    const int outputs_at_once = read<int>(p, at + 60);
    return width > 0 && height > 0 && threads == width * height &&
           (outputs_at_once == 1 || outputs_at_once == 2 || outputs_at_once == 4);
}

// Of any operation. How much lies before the configuration is not known: the operation, and the number to begin with.
std::function<void()> zeroed(const std::string& kernel, const char* p) {
    constexpr std::size_t kFurthest = 48;
    const std::size_t bytes = bytes_of_result(kernel);
    std::size_t config = 4;
    while (config <= kFurthest && !is_config(p, config)) config += 4;
    if (bytes == 0 || config > kFurthest || read<int>(p, config + 8) != 1) return {};
    auto* to = read<char*>(p, Layout(config).source + 8);
    if (!holds(to, bytes)) return {};
    const bool all = kernel.find("::and_kernel_cuda(") != std::string::npos;
    return [=] { std::memset(to, all ? 1 : 0, bytes); };
}

}  // namespace

std::function<void()> reduction(const std::string& kernel, const char* parameters) {
    std::function<void()> found;
    const auto attempt = [&](auto value, const char* type) {
        if (!found) found = reduced<decltype(value)>(kernel, type, parameters);
    };
    attempt(std::int64_t{}, "long");
    attempt(std::int32_t{}, "int");
    attempt(std::int16_t{}, "short");
    attempt(std::int8_t{}, "signed char");
    attempt(std::uint8_t{}, "unsigned char");
    attempt(bool{}, "bool");
    attempt(float{}, "float");
    attempt(double{}, "double");
    attempt(Half{}, "c10::Half");
    attempt(BFloat16{}, "c10::BFloat16");
    return found ? found : zeroed(kernel, parameters);
}

}  // namespace opus::standin
