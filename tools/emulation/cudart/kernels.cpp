// The runtime's stand-in: kernels are registered by the program's own start-up code, launched in stream order, and take
// the time that the model says. What they compute: arithmetic.cpp, for the few whose results steer programs.
#pragma GCC visibility push(default)
#include <cuda_runtime_api.h>
// What nvcc's output calls. Declared nowhere for the host.
struct uint3;
extern "C" {
void** __cudaRegisterFatBinary(void*);
void __cudaRegisterFatBinaryEnd(void**);
void __cudaUnregisterFatBinary(void**);
void __cudaRegisterFunction(void**, const char*, char*, const char*, int, uint3*, uint3*, dim3*, dim3*, int*);
void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int);
unsigned __cudaPushCallConfiguration(dim3, dim3, size_t, cudaStream_t);
cudaError_t __cudaPopCallConfiguration(dim3*, dim3*, size_t*, void*);
cudaError_t __cudaGetKernel(cudaKernel_t*, const void*);
cudaError_t __cudaLaunchKernel(cudaKernel_t, dim3, dim3, void**, size_t, cudaStream_t);
}
#pragma GCC visibility pop

#include <algorithm>
#include <cstring>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "engine/graph.h"
#include "engine/model.h"
#include "kernels.h"
#include "runtime_error.h"

using namespace opus::standin;

namespace {

struct Variable {
    std::size_t bytes;
    void* memory;  // made at its first use
};

// A program as large as PyTorch registers a hundred thousand kernels before main and runs a few hundred of them.
struct Registry {
    std::mutex mutex;
    std::unordered_map<const void*, const char*> kernels;
    std::unordered_map<const void*, Variable> variables;
};

Registry& registry() {
    static auto* all = new Registry;
    return *all;
}

struct Configuration {
    dim3 grid, block;
    size_t shared;
    cudaStream_t stream;
};
thread_local std::vector<Configuration> configurations;

cudaError_t launch(const void* stub, dim3 grid, dim3 block, void** arguments, cudaStream_t stream) {
    const char* name = kernel_name(stub);
    if (!name) return wrong(cudaErrorInvalidDeviceFunction);
    if (!grid.x || !grid.y || !grid.z || !block.x || !block.y || !block.z || block.x * block.y * block.z > 1024)
        return wrong(cudaErrorInvalidConfiguration);
    Stream* on = resolve_stream(stream);
    if (!on) return wrong(cudaErrorInvalidResourceHandle);
    const cudaError_t dead = settled();
    if (dead != cudaSuccess) return dead;
    if (const int fault = submit_fault(on)) return wrong(static_cast<cudaError_t>(fault));
    compute(on, kernel_ns(name), arithmetic_of(name, arguments, grid.y));
    return cudaSuccess;
}

void* memory_of_variable(const void* symbol, std::size_t* bytes) {
    std::lock_guard lock(registry().mutex);
    const auto it = registry().variables.find(symbol);
    if (it == registry().variables.end()) return nullptr;
    if (!it->second.memory) {
        it->second.memory = allocate(it->second.bytes, Memory::device);
        if (it->second.memory) std::memset(it->second.memory, 0, it->second.bytes);
    }
    if (bytes) *bytes = it->second.bytes;
    return it->second.memory;
}

}  // namespace

namespace opus::standin {

const char* kernel_name(const void* stub) {
    std::lock_guard lock(registry().mutex);
    const auto it = registry().kernels.find(stub);
    return it == registry().kernels.end() ? nullptr : it->second;
}

}  // namespace opus::standin

extern "C" {

// --- what nvcc's output calls -------------------------------------------------------------------------------

void** __cudaRegisterFatBinary(void*) {
    static void* handle = nullptr;
    return &handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterFunction(void**, const char* stub, char*, const char* name, int, uint3*, uint3*, dim3*, dim3*, int*) {
    std::lock_guard lock(registry().mutex);
    registry().kernels.emplace(stub, name);
}
void __cudaRegisterVar(void**, char* symbol, char*, const char*, int, size_t bytes, int, int) {
    std::lock_guard lock(registry().mutex);
    registry().variables.emplace(symbol, Variable{bytes, nullptr});
}
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t stream) {
    configurations.push_back({grid, block, shared, stream});
    return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
    if (configurations.empty()) return wrong(cudaErrorInvalidConfiguration);
    const Configuration& last = configurations.back();
    *grid = last.grid;
    *block = last.block;
    *shared = last.shared;
    *static_cast<cudaStream_t*>(stream) = last.stream;
    configurations.pop_back();
    return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* stub) {
    if (!kernel || !kernel_name(stub)) return wrong(cudaErrorInvalidDeviceFunction);
    *kernel = static_cast<cudaKernel_t>(const_cast<void*>(stub));
    return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments, size_t, cudaStream_t stream) {
    return launch(kernel, grid, block, arguments, stream);
}

// --- launches -----------------------------------------------------------------------------------------------

cudaError_t cudaLaunchKernel(const void* stub, dim3 grid, dim3 block, void** arguments, size_t, cudaStream_t stream) {
    return launch(stub, grid, block, arguments, stream);
}
cudaError_t cudaLaunchCooperativeKernel(const void* stub, dim3 grid, dim3 block, void** arguments, size_t,
                                        cudaStream_t stream) {
    return launch(stub, grid, block, arguments, stream);
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* stub, void** arguments) {
    if (!config) return wrong();
    return launch(stub, config->gridDim, config->blockDim, arguments, config->stream);
}

// --- what is known of a kernel --------------------------------------------------------------------------------

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* stub) {
    if (!attributes) return wrong();
    if (!kernel_name(stub)) return wrong(cudaErrorInvalidDeviceFunction);
    std::memset(attributes, 0, sizeof *attributes);
    attributes->maxThreadsPerBlock = 1024;
    attributes->numRegs = 32;
    attributes->ptxVersion = attributes->binaryVersion = 10 * gpu_model().major + gpu_model().minor;
    attributes->maxDynamicSharedSizeBytes = 48 << 10;
    return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void* stub, cudaFuncAttribute, int) {
    return kernel_name(stub) ? cudaSuccess : wrong(cudaErrorInvalidDeviceFunction);
}
cudaError_t cudaKernelSetAttributeForDevice(cudaKernel_t kernel, cudaFuncAttribute, int, int) {
    return kernel_name(kernel) ? cudaSuccess : wrong(cudaErrorInvalidDeviceFunction);
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* stub, int block_size,
                                                                   size_t, unsigned) {
    if (!blocks || block_size < 1) return wrong();
    if (!kernel_name(stub)) return wrong(cudaErrorInvalidDeviceFunction);
    *blocks = block_size > 1024 ? 0 : std::min(32, 2048 / block_size);
    return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* stub, int block_size, size_t shared) {
    return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, stub, block_size, shared, 0);
}

// --- variables ------------------------------------------------------------------------------------------------

cudaError_t cudaGetSymbolAddress(void** address, const void* symbol) {
    if (!address) return wrong();
    *address = memory_of_variable(symbol, nullptr);
    return *address ? cudaSuccess : wrong(cudaErrorInvalidSymbol);
}
cudaError_t cudaGetSymbolSize(size_t* bytes, const void* symbol) {
    if (!bytes) return wrong();
    return memory_of_variable(symbol, bytes) ? cudaSuccess : wrong(cudaErrorInvalidSymbol);
}
cudaError_t cudaMemcpyToSymbol(const void* symbol, const void* source, size_t count, size_t offset, cudaMemcpyKind kind) {
    std::size_t bytes = 0;
    void* memory = memory_of_variable(symbol, &bytes);
    if (!memory) return wrong(cudaErrorInvalidSymbol);
    if (offset > bytes || count > bytes - offset) return wrong();
    return cudaMemcpy(static_cast<char*>(memory) + offset, source, count, kind);
}

}  // extern "C"
