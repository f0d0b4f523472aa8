// Random numbers: of a small tensor the mean of a normal distribution, the least of a uniform one, and zero of any other.
// Programs draw again until all are within bounds (torch.nn.init.trunc_normal_), and what was left in memory may never be.
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

bool is(const std::string& kernel, const std::string& type) {
    return kernel.find("::distribution_nullary_kernel<" + type + ", ") != std::string::npos;
}

}  // namespace

std::function<void()> distribution(const std::string& kernel, void** arguments) {
    // The first of two that distribution_nullary_kernel makes: numbers at equal distances.
    const auto is_first = [&](const char* type) {
        return kernel.find(std::string("::{lambda(int, ") + type + ")#1}") != std::string::npos;
    };
    if (!is_first("float") && !is_first("double") && !is_first("unsigned int") && !is_first("unsigned long")) return {};
    const auto count = read<std::int64_t>(arguments[0]);
    const Target to{read<char*>(arguments[3]), read<int>(arguments[3], sizeof(char*))};
    if (count < 1 || count > kMostElements || to.stride < 1 || to.stride > 16) return {};
    if (!holds(to.numbers, static_cast<std::size_t>(count) * static_cast<std::size_t>(to.stride))) return {};
    const bool normal = kernel.find("::normal_kernel<") != std::string::npos,
               uniform = kernel.find("::uniform_kernel<") != std::string::npos;
    // `computed`: what the kernel computes with. The mean is of that type, and comes first; the least is of the tensor's, behind the range.
    const auto filled = [&](auto computed, auto value, auto convert) -> std::function<void()> {
        if (to.stride != sizeof value) return {};
        constexpr std::size_t first =
            (kTargetBytes + alignof(decltype(computed)) - 1) / alignof(decltype(computed)) * alignof(decltype(computed));
        if (normal) value = convert(read<decltype(computed)>(arguments[3], first));
        if (uniform) value = read<decltype(value)>(arguments[3], first + sizeof computed);
        return [=] {
            for (std::int64_t i = 0; i < count; ++i) std::memcpy(to.numbers + i * to.stride, &value, sizeof value);
        };
    };
    const auto as_it_is = [](auto value) { return value; };
    if (is(kernel, "double")) return filled(0.0, 0.0, as_it_is);
    if (is(kernel, "float")) return filled(0.0F, 0.0F, as_it_is);
    if (is(kernel, "c10::Half"))
        return filled(0.0F, _Float16{0}, [](float mean) { return static_cast<_Float16>(mean); });
    if (is(kernel, "c10::BFloat16"))
        return filled(0.0F, std::uint16_t{0},
                      [](float mean) { return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(mean) >> 16); });
    return [=] { std::memset(to.numbers, 0, static_cast<std::size_t>(count) * static_cast<std::size_t>(to.stride)); };
}

}  // namespace opus::standin
