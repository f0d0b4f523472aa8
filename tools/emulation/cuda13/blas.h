// What cuBLAS and cuBLASLt have in common here. Their headers are not needed: what is used of them is a few numbers.
#pragma once

#include <cstdint>

#include "engine/model.h"

namespace opus::standin {

using BlasStatus = int;
inline constexpr BlasStatus kBlasSuccess = 0, kBlasInvalidValue = 7, kBlasExecutionFailed = 13, kBlasNotSupported = 15;
inline constexpr int kBlasVersion = 130400;  // 13.4.0

// Bytes of an element of a type of library_types.h.
inline int element_bytes(int type) {
    switch (type) {
        case 2:   // R_16F
        case 14:  // R_16BF
            return 2;
        case 0:   // R_32F
        case 10:  // R_32I
            return 4;
        case 1:  // R_64F
        case 4:  // C_32F
            return 8;
        case 5:  // C_64F
            return 16;
        default: return 1;
    }
}

struct Product {
    std::int64_t m = 0, n = 0, k = 0, batch = 1;
    int element_bytes = 4;
};

// Takes its time on the stream and computes nothing.
inline BlasStatus multiply(void* stream, const Product& p) {
    Stream* on = resolve_stream(stream);
    if (!on) return kBlasInvalidValue;
    if (device_error(current_device()) != 0) return kBlasExecutionFailed;
    if (p.m > 0 && p.n > 0 && p.batch > 0) compute(on, matmul_ns(p.m, p.n, p.k, p.batch, p.element_bytes), {});
    return kBlasSuccess;
}

}  // namespace opus::standin

// A call that is not emulated: an error that names it.
#define STANDIN_REFUSED(name, error)                            \
    extern "C" STANDIN_API int refused_##name() __asm__(#name); \
    extern "C" STANDIN_API int refused_##name() {               \
        opus::standin::say_refused(#name);                      \
        return error;                                           \
    }
