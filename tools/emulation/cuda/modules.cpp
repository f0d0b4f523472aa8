// Modules that a program loads itself, as the shim does for its gates and Triton for what it compiles: gates do their
// work, any other kernel takes its time and computes nothing.
#pragma GCC visibility push(default)
#include <cuda.h>
#pragma GCC visibility pop

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "driver_objects.h"
#include "engine/engine.h"
#include "engine/graph.h"
#include "engine/model.h"
#include "gate.h"

using namespace opus::standin;

namespace {

struct Function {
    static constexpr std::uint32_t kMagic = 0x4c4e524b;
    std::uint32_t magic = kMagic;
    std::string name;
    std::optional<GateRole> role;  // none: a kernel of the program's own
};

// Text is searched for its entries; a binary is taken to have whatever is asked for.
struct Module {
    std::string text;
    std::mutex mutex;
    std::map<std::string, Function> functions;  // as they are asked for
};

std::optional<GateRole> role_of(const std::string& name) {
    for (const GateRole role : {GateRole::gate, GateRole::replayed, GateRole::ended})
        if (name == name_of(role)) return role;
    return {};
}

Function* known(CUfunction function) {
    auto* held = reinterpret_cast<Function*>(function);
    return held && held->magic == Function::kMagic ? held : nullptr;
}

struct Size {
    unsigned x, y, z;
    bool empty() const { return !x || !y || !z; }
};

CUresult launch(CUfunction function, Size grid, Size block, CUstream stream, void** params, void** extra) {
    const Function* kernel = known(function);
    if (!kernel) return CUDA_ERROR_INVALID_HANDLE;
    if (grid.empty() || block.empty() || (params && extra)) return CUDA_ERROR_INVALID_VALUE;
    if (kernel->role && !params) return CUDA_ERROR_INVALID_VALUE;
    Stream* on = resolve_stream(stream);
    if (!on) return CUDA_ERROR_INVALID_HANDLE;
    if (status() != CUDA_SUCCESS) return status();
    if (const int fault = submit_fault(on)) return static_cast<CUresult>(fault);
    if (kernel->role)
        launch_of_gates(on, *kernel->role, params);
    else
        compute(on, kernel_ns(kernel->name.c_str()), {});
    return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuModuleLoadData(CUmodule* module, const void* image) {
    if (!module || !image) return CUDA_ERROR_INVALID_VALUE;
    if (status() != CUDA_SUCCESS) return status();
    const auto* text = static_cast<const char*>(image);
    const bool is_text = std::strchr("/. \n", text[0]) != nullptr && text[0] != '\0';
    if (is_text && !std::strstr(text, ".entry")) return CUDA_ERROR_INVALID_PTX;
    auto* made = new Module;
    if (is_text) made->text = text;
    *module = reinterpret_cast<CUmodule>(made);
    return CUDA_SUCCESS;
}
CUresult CUDAAPI cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned int, CUjit_option*, void**) {
    return cuModuleLoadData(module, image);
}
CUresult CUDAAPI cuModuleLoad(CUmodule* module, const char* path) {
    if (!module || !path) return CUDA_ERROR_INVALID_VALUE;
    std::ifstream file(path, std::ios::binary);
    if (!file) return CUDA_ERROR_FILE_NOT_FOUND;
    const std::string image{std::istreambuf_iterator<char>(file), {}};
    return image.empty() ? CUDA_ERROR_INVALID_IMAGE : cuModuleLoadData(module, image.c_str());
}
CUresult CUDAAPI cuModuleUnload(CUmodule module) {
    if (!module) return CUDA_ERROR_INVALID_VALUE;
    delete reinterpret_cast<Module*>(module);
    return CUDA_SUCCESS;
}
CUresult CUDAAPI cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
    if (!function || !module || !name) return CUDA_ERROR_INVALID_VALUE;
    auto* held = reinterpret_cast<Module*>(module);
    const std::string entry = std::string(".entry ") + name + "(";
    if (!held->text.empty() && held->text.find(entry) == std::string::npos) return CUDA_ERROR_NOT_FOUND;
    std::lock_guard lock(held->mutex);
    Function& made = held->functions[name];
    if (made.name.empty()) {
        made.name = name;
        made.role = role_of(name);
    }
    *function = reinterpret_cast<CUfunction>(&made);
    return CUDA_SUCCESS;
}

// As the runtime's stand-in says of its kernels: 32 registers, nothing spilled.
CUresult CUDAAPI cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction function) {
    if (!value) return CUDA_ERROR_INVALID_VALUE;
    if (!known(function)) return CUDA_ERROR_INVALID_HANDLE;
    switch (static_cast<int>(attribute)) {
        case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = 1024; break;
        case CU_FUNC_ATTRIBUTE_NUM_REGS: *value = 32; break;
        case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: *value = 48 << 10; break;
        case CU_FUNC_ATTRIBUTE_PTX_VERSION:
        case CU_FUNC_ATTRIBUTE_BINARY_VERSION: *value = 10 * gpu_model().major + gpu_model().minor; break;
        default: *value = 0; break;
    }
    return CUDA_SUCCESS;
}
CUresult CUDAAPI cuFuncSetAttribute(CUfunction function, CUfunction_attribute, int) {
    return known(function) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
CUresult CUDAAPI cuFuncSetCacheConfig(CUfunction function, CUfunc_cache) {
    return known(function) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
CUresult CUDAAPI cuFuncLoad(CUfunction function) { return known(function) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE; }

CUresult CUDAAPI cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction function, int block_size, size_t) {
    if (!blocks || block_size < 1) return CUDA_ERROR_INVALID_VALUE;
    if (!known(function)) return CUDA_ERROR_INVALID_HANDLE;
    *blocks = block_size > 1024 ? 0 : std::min(32, 2048 / block_size);
    return CUDA_SUCCESS;
}
CUresult CUDAAPI cuOccupancyMaxActiveClusters(int* clusters, CUfunction function, const CUlaunchConfig* config) {
    if (!clusters || !config) return CUDA_ERROR_INVALID_VALUE;
    if (!known(function)) return CUDA_ERROR_INVALID_HANDLE;
    unsigned blocks = 1;
    for (unsigned i = 0; i < config->numAttrs; ++i)
        if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
            blocks = config->attrs[i].value.clusterDim.x * config->attrs[i].value.clusterDim.y *
                     config->attrs[i].value.clusterDim.z;
    *clusters = gpu_model().multiprocessors / static_cast<int>(std::max(blocks, 1u));
    return CUDA_SUCCESS;
}

// What a tensor's map says only kernels read.
CUresult CUDAAPI cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                                        const cuuint64_t*, const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave,
                                        CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
    if (!map) return CUDA_ERROR_INVALID_VALUE;
    std::memset(map, 0, sizeof *map);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuLaunchKernel(CUfunction function, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,
                                unsigned int by, unsigned int bz, unsigned int, CUstream stream, void** params,
                                void** extra) {
    return launch(function, {gx, gy, gz}, {bx, by, bz}, stream, params, extra);
}
CUresult CUDAAPI cuLaunchCooperativeKernel(CUfunction function, unsigned int gx, unsigned int gy, unsigned int gz,
                                           unsigned int bx, unsigned int by, unsigned int bz, unsigned int,
                                           CUstream stream, void** params) {
    return launch(function, {gx, gy, gz}, {bx, by, bz}, stream, params, nullptr);
}
CUresult CUDAAPI cuLaunchKernelEx(const CUlaunchConfig* c, CUfunction function, void** params, void** extra) {
    if (!c) return CUDA_ERROR_INVALID_VALUE;
    return launch(function, {c->gridDimX, c->gridDimY, c->gridDimZ}, {c->blockDimX, c->blockDimY, c->blockDimZ},
                  c->hStream, params, extra);
}

}  // extern "C"
