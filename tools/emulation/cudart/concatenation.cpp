// torch.cat of small tensors one behind the other: each row of the grid copies one of them to its place.
#include <cstdio>
#include <cstring>
#include <vector>

#include "arithmetic.h"

namespace opus::standin {

namespace {

constexpr std::size_t kMostDimensions = 4;

struct Part {
    const char* from = nullptr;
    std::size_t at = 0, count = 0, stride = 1;  // elements
};

}  // namespace

// Its arguments: the result; of each tensor by value (CatArrInputTensorMetadata) its memory, its place in the result,
// its length along the dimension, its length, and whether it is contiguous, all of them of `most` tensors; then sizes
// and strides (TensorSizeStride), of those that are not. Those of the result; the dimension; what places count by.
std::function<void()> concatenation(const std::string& kernel, void** arguments, unsigned tensors) {
    std::size_t width = 0, most = 0;
    unsigned dimensions = 0;
    const auto type = kernel.find("OpaqueType<");
    if (type == std::string::npos ||
        std::sscanf(kernel.c_str() + type, "OpaqueType<%zuu>, unsigned int, %u, %zu", &width, &dimensions, &most) != 3 ||
        dimensions != 1 || tensors > most)
        return {};
    char* to = nullptr;
    std::memcpy(&to, arguments[0], sizeof to);
    const char* const inputs = static_cast<const char*>(arguments[1]);
    const auto number = [&](std::size_t list, std::size_t i) {
        std::uint32_t n = 0;
        std::memcpy(&n, inputs + most * sizeof(char*) + (list * most + i) * sizeof n, sizeof n);
        return std::size_t{n};
    };
    const char* const contiguous = inputs + most * (sizeof(char*) + 3 * sizeof(std::uint32_t));
    const char* const strides = contiguous + most;  // a multiple of four
    std::uint32_t unit = 0, apart = 1;
    std::memcpy(&unit, arguments[4], sizeof unit);
    if (kernel.find("_vectorized<") == std::string::npos)
        std::memcpy(&apart, static_cast<const char*>(arguments[2]) + kMostDimensions * sizeof apart, sizeof apart);
    if (apart != 1) return {};
    const bool all_are = kernel.find("CatArrayBatchedCopy<") == std::string::npos;
    std::vector<Part> parts(tensors);
    std::size_t all = 0;
    for (std::size_t i = 0; i < tensors; ++i) {
        Part& part = parts[i];
        std::memcpy(&part.from, inputs + i * sizeof(char*), sizeof(char*));
        part.at = number(0, i) * unit, part.count = number(2, i);
        if (!all_are && contiguous[i] == 0) {
            std::uint32_t stride = 0;
            std::memcpy(&stride, strides + (2 * i + 1) * kMostDimensions * sizeof stride, sizeof stride);
            part.stride = stride;
        }
        all += part.count;
        if (part.count == 0) continue;
        if (!holds(part.from, ((part.count - 1) * part.stride + 1) * width) || !holds(to, (part.at + part.count) * width))
            return {};
    }
    if (all > kMostElements) return {};
    return [to, width, parts] {
        for (const Part& p : parts)
            for (std::size_t i = 0; i < p.count; ++i)
                std::memcpy(to + (p.at + i) * width, p.from + i * p.stride * width, width);
    };
}

}  // namespace opus::standin
