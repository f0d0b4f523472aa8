// Random numbers: of a small tensor the mean of a normal distribution, and zero of any other. Programs draw again until
// all numbers are within bounds (torch.nn.init.trunc_normal_), and what was left in memory may never be.
#include <bit>
#include <cstring>

#include "arithmetic.h"

namespace opus::standin {

namespace {

// As the kernel's last argument: where the numbers go, how many bytes from one to the next, what makes them.
struct Target {
    char* numbers;
    int stride;
};
constexpr std::size_t kTargetBytes = 12;

template <typename T>
T read(const void* from, std::size_t offset = 0) {
    T value;
    std::memcpy(&value, static_cast<const char*>(from) + offset, sizeof value);
    return value;
}

std::uint16_t as_bfloat16(float value) { return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16); }

bool is(const std::string& kernel, const std::string& type) {
    return kernel.find("::distribution_nullary_kernel<" + type + ", ") != std::string::npos;
}

}  // namespace

std::function<void()> distribution(const std::string& kernel, void** arguments) {
    // The first of two that distribution_nullary_kernel makes: numbers at equal distances.
    if (kernel.find("::{lambda(int, float)#1}") == std::string::npos &&
        kernel.find("::{lambda(int, double)#1}") == std::string::npos)
        return {};
    const auto count = read<std::int64_t>(arguments[0]);
    const Target to{read<char*>(arguments[3]), read<int>(arguments[3], sizeof(char*))};
    if (count < 1 || count > kMostElements || to.stride < 1 || to.stride > 16) return {};
    if (!holds(to.numbers, static_cast<std::size_t>(count) * static_cast<std::size_t>(to.stride))) return {};
    const bool normal = kernel.find("::normal_kernel<") != std::string::npos;
    const auto filled = [&](auto value) -> std::function<void()> {
        if (to.stride != sizeof value) return {};
        return [=] {
            for (std::int64_t i = 0; i < count; ++i) std::memcpy(to.numbers + i * to.stride, &value, sizeof value);
        };
    };
    if (is(kernel, "double")) return filled(normal ? read<double>(arguments[3], kTargetBytes + 4) : 0.0);
    const float mean = normal ? read<float>(arguments[3], kTargetBytes) : 0;
    if (is(kernel, "float")) return filled(mean);
    if (is(kernel, "c10::BFloat16")) return filled(as_bfloat16(mean));
    if (is(kernel, "c10::Half")) return filled(static_cast<_Float16>(mean));
    return [=] { std::memset(to.numbers, 0, static_cast<std::size_t>(count) * static_cast<std::size_t>(to.stride)); };
}

}  // namespace opus::standin
