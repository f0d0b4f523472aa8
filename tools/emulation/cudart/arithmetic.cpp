// The few kernels of PyTorch whose results steer programs: fills, sums, comparisons and conversions of small tensors,
// by which ranks tell each other sizes and shapes, and what puts objects that they send one behind the other. They are
// known by name; their arguments are laid out as PyTorch's headers say (ATen/native/cuda: Loops.cuh, Reduce.cuh,
// BinaryOps, Shape.cu). What does not look as it should computes nothing.
#include "arithmetic.h"

#include <cxxabi.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "engine/engine.h"
#include "kernels.h"

namespace opus::standin {

namespace {

enum class Shape : std::uint8_t { unknown, elementwise, reduction, concatenation, distribution, count, loss };

struct Known {
    Shape shape = Shape::unknown;
    std::string functor;  // demangled
    std::string name;
    int arrays = 0;  // pointers of an elementwise kernel: the result, then its operands
};

// The first argument of a template, from behind its '<': commas inside of brackets are not its end.
std::string first_argument(const std::string& text, std::size_t at) {
    int depth = 0;
    for (std::size_t i = at; i < text.size(); ++i) {
        const char c = text[i];
        if (c == '<' || c == '(' || c == '{') ++depth;
        if (c == '>' && depth == 0) return text.substr(at, i - at);
        if (c == '>' || c == ')' || c == '}') --depth;
        if (c == ',' && depth == 0) return text.substr(at, i - at);
    }
    return {};
}

std::size_t end_of(const std::string& text, const char* word) {
    const std::size_t at = text.find(word);
    return at == std::string::npos ? at : at + std::strlen(word);
}

Known know(const char* mangled) {
    int status = 0;
    const std::unique_ptr<char, void (*)(void*)> text(abi::__cxa_demangle(mangled, nullptr, nullptr, &status), std::free);
    Known known;
    if (!text) return known;
    known.name = text.get();
    const std::string& name = known.name;
    if (const auto at = end_of(name, "at::native::vectorized_elementwise_kernel<"); at != std::string::npos) {
        known.functor = first_argument(name, name.find(", ", at) + 2);
        known.shape = Shape::elementwise;
    } else if (const auto in = end_of(name, "at::native::unrolled_elementwise_kernel<"); in != std::string::npos) {
        known.functor = first_argument(name, in);
        known.shape = Shape::elementwise;
    } else if (name.find("at::native::reduce_kernel<") != std::string::npos) {
        known.shape = Shape::reduction;
    } else if (name.find("::CatArrayBatchedCopy") != std::string::npos) {
        known.shape = Shape::concatenation;
    } else if (name.find("::distribution_elementwise_grid_stride_kernel<") != std::string::npos) {
        known.shape = Shape::distribution;
    } else if (const auto by = end_of(name, "::DeviceReduceSingleTileKernel<");
               by != std::string::npos && name.find("::policy_hub<int, ", by) != std::string::npos) {
        known.shape = Shape::count;
    } else if (name.find("::nll_loss_forward_reduce_cuda_kernel_") != std::string::npos) {
        known.shape = Shape::loss;
    }
    if (const auto at = end_of(name, "std::array<char*, "); at != std::string::npos)
        known.arrays = std::atoi(name.c_str() + at);
    return known;
}

const Known& known_of(const char* mangled) {
    static std::mutex mutex;
    static auto* all = new std::unordered_map<const char*, Known>;
    std::lock_guard lock(mutex);
    const auto [it, fresh] = all->try_emplace(mangled);
    if (fresh) it->second = know(mangled);
    return it->second;
}

// How many numbers of a tensor are not zero (CUB's sum of ints), which PyTorch then makes room for: none, for which ones is not computed.
std::function<void()> no_count(void** arguments) {
    int* count = nullptr;
    std::memcpy(&count, arguments[1], sizeof count);
    if (!holds(count, sizeof *count)) return {};
    return [count] { *count = 0; };
}

// Of a cross entropy, which programs ask whether it is finite: the loss, then the sum of weights.
std::function<void()> no_loss(const std::string& name, void** arguments) {
    char* results[2] = {};
    for (int i = 0; i < 2; ++i) std::memcpy(&results[i], arguments[i], sizeof results[i]);
    const std::size_t bytes = name.find("d<double") != std::string::npos  ? 8
                              : name.find("d<float") != std::string::npos ? 4
                                                                          : 2;
    if (!holds(results[0], bytes) || !holds(results[1], bytes)) return {};
    return [loss = results[0], weight = results[1], bytes] {
        std::memset(loss, 0, bytes);
        std::memset(weight, 0, bytes);
    };
}

}  // namespace

bool holds(const void* pointer, std::size_t bytes) {
    void* base = nullptr;
    std::size_t size = 0;
    if (memory_of(pointer, nullptr, &base, &size) == Memory::unknown) return false;
    return static_cast<const char*>(pointer) + bytes <= static_cast<char*>(base) + size;
}

std::function<void()> arithmetic_of(const char* mangled, void** arguments, unsigned rows) {
    const Known& known = known_of(mangled);
    if (known.shape == Shape::concatenation) return concatenation(known.name, arguments, rows);
    if (known.shape == Shape::reduction) return reduction(known.name, static_cast<const char*>(arguments[0]));
    if (known.shape == Shape::count) return no_count(arguments);
    if (known.shape == Shape::loss) return no_loss(known.name, arguments);
    if (known.shape == Shape::distribution) return distribution(known.name, arguments);
    if (known.shape != Shape::elementwise || known.arrays < 1 || known.arrays > 4) return {};
    Elementwise call;
    std::memcpy(&call.count, arguments[0], sizeof call.count);
    if (call.count < 1 || call.count > kMostElements) return {};
    call.functor = static_cast<const char*>(arguments[1]);
    call.converted = known.name.find("memory::LoadWithCast<1>") != std::string::npos;
    call.load = call.converted ? static_cast<const char*>(arguments[5]) : nullptr;
    call.store = call.converted ? static_cast<const char*>(arguments[6]) : nullptr;
    std::memcpy(call.pointers, arguments[2], static_cast<std::size_t>(known.arrays) * sizeof(char*));
    call.operands = known.arrays - 1;
    return elementwise(known.functor, call);
}

}  // namespace opus::standin
