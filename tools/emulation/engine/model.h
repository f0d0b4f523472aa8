// Which GPU is emulated, and how long what it runs takes. From the environment, once a process: STANDIN_GPU_MODEL,
// STANDIN_TIME_SCALE, STANDIN_TIME (README.md).
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine.h"

namespace opus::standin {

// Its maker's published figures; products of matrices by their densest unit, without sparsity.
struct GpuModel {
    const char* name;
    int major, minor;  // compute capability
    int multiprocessors;
    std::size_t memory_bytes;
    double flops_16bit, flops_32bit;  // a second; 32 bit: TF32
    double bytes_a_second;
    int shared_bytes;  // of a multiprocessor
    int l2_bytes;
};

STANDIN_API const GpuModel& gpu_model();

// What a product of matrices takes: as long as its arithmetic or its bytes, whichever is longer.
STANDIN_API std::int64_t matmul_ns(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t batch, int element_bytes);
// Any other kernel, by its name.
STANDIN_API std::int64_t kernel_ns(const char* name);

// One line on stderr, once for each name: a call that is not emulated was made.
STANDIN_API void say_refused(const char* call);

}  // namespace opus::standin
